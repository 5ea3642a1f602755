"""A LangGraph project on disk with a web application of its own: langgraph.json, agent.py and webapp.py."""

import json
from pathlib import Path
from typing import Any

AGENT = """
import asyncio
import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import StateGraph


class State(TypedDict, total=False):
    words: Annotated[list[str], operator.add]
    seen: dict[str, Any]


async def first(state, config):
    return {"words": ["first"], "seen": {k: v for k, v in config["configurable"].items() if "-" in k or k == "cookie"}}


async def second(state):
    for _ in range(state["words"].count("wait")):
        await asyncio.sleep(60)
    return {"words": ["second"]}


graph = StateGraph(State).add_node(first).add_node(second)
graph = graph.add_edge("__start__", "first").add_edge("first", "second").compile()
"""

WEBAPP = """
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request, WebSocket
from fastapi.responses import JSONResponse
from langgraph_sdk import get_client
from pydantic import BaseModel


class Empty(Exception):
    pass


class ErrorOut(BaseModel):
    reason: str


@asynccontextmanager
async def lifespan(app):
    app.state.found = len(await get_client().assistants.search(graph_id="agent"))
    print("webapp has started", flush=True)
    yield {"word": "shared"}
    print("webapp has ended", flush=True)


app = FastAPI(lifespan=lifespan, debug=True)


@app.middleware("http")
async def mark(request: Request, call_next):
    if request.url.path.endswith("/blocked"):
        return JSONResponse({"blocked": True}, 403)
    response = await call_next(request)
    user = request.scope.get("user")
    response.headers["X-Webapp"] = user.identity if user is not None else "none"
    return response


@app.exception_handler(Empty)
async def empty(request: Request, exc: Empty):
    return JSONResponse({"empty": True}, 410)


@app.get("/hello")
async def hello(request: Request) -> dict[str, object]:
    thread = await get_client().threads.create()
    return {"found": request.app.state.found, "word": request.state.word, "thread": thread["thread_id"],
            "url": request.url_for("hello").path}


@app.get("/me")
def me(request: Request) -> dict[str, object]:
    return {"identity": request.user.identity, "permissions": request.user.permissions}


@app.get("/fails")
def fails() -> ErrorOut:
    raise RuntimeError("a private text")


@app.get("/empty")
def nothing() -> None:
    raise Empty


@app.get("/teapot")
def teapot() -> None:
    raise HTTPException(418, "short and stout")


@app.get("/threads/{thread_id}/state")
def state(thread_id: str) -> str:
    return "mine"


@app.get("/ok")
def ok() -> str:
    return "mine"


@app.websocket("/echo")
async def echo(socket: WebSocket):
    await socket.accept()
    await socket.send_text(await socket.receive_text())
    await socket.close()
"""


def write_project(folder: Path, *, webapp: str = WEBAPP, **http: Any) -> None:
    (folder / "agent.py").write_text(AGENT)
    (folder / "webapp.py").write_text(webapp)
    project = {"dependencies": ["."], "graphs": {"agent": "./agent.py:graph"}, "http": http}
    (folder / "langgraph.json").write_text(json.dumps(project))
