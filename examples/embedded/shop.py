"""A FastAPI application that embeds Clew: its own routes, its own users, durable runs behind them.

uvicorn shop:app
curl localhost:8000/refunds -H 'x-user: ann' --json '{"amount": 42}'
curl localhost:8000/refunds/ID/approve -H 'x-user: ann' -X POST
curl localhost:8000/refunds/ID -H 'x-user: ann'
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException
from httpx import AsyncClient, Response
from pydantic import BaseModel

from clew import open_server

HERE = Path(__file__).parent


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # Recovers the runs of a killed process, and runs new ones until the application ends.
    async with open_server(HERE / "clew.yaml") as clew:
        app.state.clew = clew
        app.mount(
            "/agents", clew.asgi
        )  # for clients with an API key of `clew keys create`; leave it out to hide Clew
        yield


app = FastAPI(lifespan=lifespan)


class Refund(BaseModel):
    amount: int


async def runs_of_user(x_user: Annotated[str, Header()]) -> AsyncIterator[AsyncClient]:
    """Put your own authentication here: the client sees only what belongs to this user."""
    async with app.state.clew.client(user=x_user) as client:
        yield client


Runs = Annotated[AsyncClient, Depends(runs_of_user)]


@app.post("/refunds", status_code=201)
async def begin(refund: Refund, runs: Runs) -> dict[str, Any]:
    body = {"graph": "refund", "input": {"amount": refund.amount}}
    return shown(await runs.post("/api/workflows/start?wait=10", json=body))


@app.post("/refunds/{refund_id}/approve")
async def approve(refund_id: str, runs: Runs) -> dict[str, Any]:
    shown(await runs.post(f"/api/workflows/{refund_id}/approve"))
    return shown(await runs.get(f"/api/workflows/{refund_id}/status?wait=10"))


@app.get("/refunds/{refund_id}")
async def show(refund_id: str, runs: Runs) -> dict[str, Any]:
    state = shown(await runs.get(f"/api/workflows/{refund_id}/state"))
    return {"outcome": state["values"].get("outcome", "waits for an approval")}


def shown(answer: Response) -> dict[str, Any]:
    if answer.is_error:
        raise HTTPException(
            answer.status_code, "no such refund" if answer.status_code == 404 else "not possible now"
        )
    found: dict[str, Any] = answer.json()
    return found
