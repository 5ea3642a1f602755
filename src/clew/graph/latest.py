"""Latest state of a thread as it is stored, read without its graph."""

from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from clew.domain.errors import Corrupt
from clew.domain.thread import Json
from clew.graph.stream import as_json

# How LangGraph names the channels by which it drives a graph; what the graph itself knows is in the others.
_INNER = ("__", "branch:")


async def latest_state(saver: BaseCheckpointSaver[Any], thread_id: str) -> Json:
    """The values by channel, None if there is no checkpoint. Raises Corrupt."""
    found = await saver.aget_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
    if found is None:
        return None
    values = found.checkpoint["channel_values"]
    try:
        return as_json({name: value for name, value in values.items() if not name.startswith(_INNER)})
    except ValueError as exc:
        raise Corrupt(f"the state of thread {thread_id!r} cannot be shown as JSON") from exc
