"""A LangGraph project with authentication of its own: graphs that tell who runs them, and handlers in every mood."""

import asyncio
import operator
import time
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from langgraph_sdk import Auth

GRAPHS = ("who", "ask")
TOKENS = {"alice-token-1234": "alice", "bob-token-12345": "bob"}


class Seen(TypedDict):
    seen: Annotated[list[Any], operator.add]


async def look(state: Seen, config: RunnableConfig, runtime: Runtime[Any]) -> Seen:
    given = config["configurable"]
    user = given.get("langgraph_auth_user")
    told = None if user is None else {**user, "attribute": user.identity}
    info = runtime.server_info
    ids = [given.get("langgraph_auth_user_id"), given.get("langgraph_auth_permissions")]
    forged = sorted(name for name in given if name.startswith("langgraph_auth_any"))
    shown = None if info is None or info.user is None else info.user["identity"]
    await asyncio.sleep(0.01)
    return {"seen": [{"user": told, "ids": ids, "runtime": shown, "forged": forged}]}


def question(state: Seen, config: RunnableConfig) -> Seen:
    answer = interrupt("Go on?")
    return {"seen": [answer, config["configurable"].get("langgraph_auth_user_id")]}


def _graph(name: str, node: Any) -> Any:
    graph = StateGraph(Seen)
    graph.add_node(name, node)
    graph.add_edge(START, name)
    return graph.compile()


who = _graph("look", look)
ask = _graph("question", question)


def _user(authorization: str | None) -> dict[str, Any]:
    scheme, _, token = (authorization or "").partition(" ")
    if scheme != "Bearer" or token not in TOKENS:
        raise Auth.exceptions.HTTPException(
            status_code=401, detail="who are you?", headers={"WWW-Authenticate": "Custom"}
        )
    name = TOKENS[token]
    return {
        "identity": name,
        "display_name": name.title(),
        "permissions": ["threads:read"],
        "org": "acme",
        "access_token": token,
        "copy": token,
    }


# As in LangGraph's tutorial: each user's own threads, assistants and crons, and a namespace of the store.
private = Auth()


@private.authenticate
async def authenticate(authorization: str | None) -> dict[str, Any]:
    return _user(authorization)


@private.on
async def add_owner(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> dict[str, Any]:
    owner = {"owner": ctx.user.identity}
    value.setdefault("metadata", {}).update(owner)
    return owner


@private.on.store
async def own_namespace(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> None:
    value["namespace"] = (ctx.user.identity, *(value["namespace"] or ()))


def _signed_in(make: Any = None) -> Auth:
    auth = Auth()
    auth.authenticate(authenticate)
    if make is not None:
        auth.on(make)
    return auth


async def _allow(ctx: Auth.types.AuthContext, value: Any) -> bool:
    return True


async def _deny(ctx: Auth.types.AuthContext, value: Any) -> bool:
    return False


async def _raise(ctx: Auth.types.AuthContext, value: Any) -> bool:
    raise RuntimeError("alice-token-1234 is secret")


async def _odd(ctx: Auth.types.AuthContext, value: Any) -> Any:
    return {"owner": {"$regex": ".*"}}


async def _hang(ctx: Auth.types.AuthContext, value: Any) -> bool:
    await asyncio.sleep(60)
    return True


allows = _signed_in(_allow)
denies = _signed_in(_deny)
raises = _signed_in(_raise)
odd = _signed_in(_odd)
slow = _signed_in(_hang)
open_to_all = _signed_in()

refuses = Auth()
fails = Auth()
hangs = Auth()


@refuses.authenticate
def refuse(headers: dict[bytes, bytes], path: str, method: str, path_params: Any, query_params: Any) -> str:
    assert isinstance(headers, dict) and path.startswith("/") and method  # noqa: PT018 - no test
    raise Auth.exceptions.HTTPException(status_code=403, detail="not you", headers={"X-Why": "because"})


@fails.authenticate
def fail(request: Any, scope: Any) -> str:
    raise KeyError(request.headers.get("authorization"))


@hangs.authenticate
def hang(authorization: str) -> str:
    time.sleep(3)
    return "nobody"
