"""A LangGraph project with authentication of its own: graphs that tell who runs them, and handlers in every mood."""

import asyncio
import itertools
import operator
import time
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from langgraph_sdk import Auth

GRAPHS = ("who", "ask", "recall", "made")
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
    await asyncio.sleep(state["seen"][0] if state["seen"] else 0)
    return {"seen": [{"user": told, "ids": ids, "runtime": shown, "forged": forged}]}


def question(state: Seen, config: RunnableConfig) -> Seen:
    answer = interrupt("Go on?")
    return {"seen": [answer, config["configurable"].get("langgraph_auth_user_id")]}


def remember(state: MessagesState) -> Any:
    return {"messages": [AIMessage(content=", ".join(one.text for one in state["messages"]))]}


def _graph(name: str, node: Any, schema: Any = Seen) -> Any:
    graph = StateGraph(schema)
    graph.add_node(name, node)
    graph.add_edge(START, name)
    return graph.compile()


who = _graph("look", look)
ask = _graph("question", question)
recall = _graph("remember", remember, MessagesState)


def made(config: RunnableConfig) -> Any:
    """A factory, of which the user is told too."""
    user = config["configurable"].get("langgraph_auth_user")
    return _graph("tell", lambda _: {"seen": [user and user.identity]})


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


# An identity provider that does not answer.
waiting = Auth()


@waiting.authenticate
async def authenticate_at_last(authorization: str | None) -> str:
    if authorization is None:
        raise Auth.exceptions.HTTPException(status_code=401, detail="who are you?")
    await asyncio.sleep(60)
    return "alice"


# It counts how often it is asked, and tells it in a field of the user.
counting = Auth()
_asked = itertools.count(1)


@counting.authenticate
async def authenticate_and_count(authorization: str | None) -> dict[str, Any]:
    count = next(_asked)
    return {**_user(authorization), "count": count}


# All of them in one: a header says what the handlers do.
moody = Auth()


@moody.authenticate
def authenticate_in_a_mood(headers: dict[bytes, bytes], scope: Any) -> Any:
    mood = headers.get(b"x-mood", b"").decode()
    match mood:
        case "refuses":
            raise Auth.exceptions.HTTPException(status_code=403, detail="no", headers={"X-Why": "because"})
        case "fails":
            raise KeyError("alice-token-1234")
        case "hangs":
            time.sleep(20)
        case "returns nothing":
            return None
        case "":
            raise Auth.exceptions.HTTPException
        case _:
            pass
    return {"identity": "alice", "mood": mood}


@moody.on
async def decide_in_a_mood(ctx: Auth.types.AuthContext, value: Any) -> Any:
    match ctx.user["mood"]:
        case "filter":
            return {"owner": "alice"}
        case "deny":
            return False
        case "assert":
            raise AssertionError("not yours")
        case "raise":
            raise RuntimeError("alice-token-1234")
        case "odd filter":
            return {"owner": {"$regex": ".*"}}
        case "odd result":
            return 7
        case "conflict":
            raise Auth.exceptions.HTTPException(status_code=409, detail="later", headers={"X-Why": "because"})
        case "no runs":
            return ctx.action != "create_run"
        case "tags runs":
            if ctx.action == "create_run":
                value["kwargs"]["config"] = {"tags": ["tagged"]}
            return True
        case "hang":
            await asyncio.sleep(60)
            return True
        case _:
            return True
