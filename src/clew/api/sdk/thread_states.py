"""Thread states as LangGraph's clients see them, and threads found by what is in their states."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clew.domain.errors import Corrupt, Invalid, NotFound, Permanent, SchemaMismatch
from clew.domain.items import holds
from clew.domain.redaction import without
from clew.domain.runs import still_asked
from clew.domain.thread import Json, Owner, Status, Thread
from clew.domain.views import EMPTY_STATE
from clew.engine.redaction import redacted_texts
from clew.engine.threads import Threads
from clew.ports.thread_metadata import ThreadSearch

# So many states are compared for one search, and so many at once. A state is stored as its graph wrote it, so that the
# database cannot compare it.
MOST_STATES = 1000
AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStates:
    threads: Threads

    async def read(
        self, thread: Thread, place: Mapping[str, str] | None = None, *, subgraphs: bool = False
    ) -> Mapping[str, Json]:
        """The newest state, or the one at `place`, without redacted texts. Raises NotFound, SchemaMismatch, Corrupt."""
        posed = await self.threads.with_graph(thread)
        found = (
            await self.threads.graph_driver.snapshot(posed, place, subgraphs=subgraphs)
            if posed.graph
            else EMPTY_STATE
        )
        if place is None and thread.status is Status.BLOCKED:
            found = _asking(found, thread)
        if place is not None and found["checkpoint"] is None:
            raise NotFound(f"thread {thread.id!r} has no such checkpoint")
        return without_texts(found, await redacted_texts(self.threads.store, thread))

    async def search(self, wanted: ThreadSearch, values: Mapping[str, Json]) -> list[str]:
        """The ids of all threads, on any page, whose newest state holds these values. Raises Invalid for too many."""
        candidates = await self.threads.metadata.count(wanted)
        if candidates > MOST_STATES:
            raise Invalid(
                f"the states of {candidates} threads would have to be read, and at most {MOST_STATES} are;"
                " narrow the search by metadata, ids or status",
                field="values",
            )
        ids = await self.threads.metadata.find(replace(wanted, limit=MOST_STATES, offset=0))
        found: list[str] = []
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            fits = await asyncio.gather(*(self._holds(one, wanted.owner, values) for one in some))
            found += (one for one, is_found in zip(some, fits, strict=True) if is_found)
        return found

    async def _holds(self, thread_id: str, owner: Owner, values: Mapping[str, Json]) -> bool:
        """A state that cannot be read holds nothing: its thread does not spoil the search."""
        try:
            thread = await self.threads.store.get_listed(thread_id, owner)
            state = await self.read(thread) if thread.is_readable else EMPTY_STATE
        except (NotFound, Corrupt, SchemaMismatch, Permanent):
            return False
        return bool(state["created_at"]) and holds(state["values"], values)


def selected_state(state: Mapping[str, Json], select: Sequence[str] | None) -> Mapping[str, Json]:
    """The fields that were asked for; `values.messages` is one of the values. Raises Invalid for an unknown field."""
    if not select:
        return state
    shown: dict[str, Json] = {}
    for field in select:
        name, _, key = field.partition(".")
        if name not in EMPTY_STATE or (key and name != "values"):
            raise Invalid(
                f"no field {field!r}; there are {', '.join(EMPTY_STATE)}, values.<key>", field="select"
            )
        if not key:
            shown[name] = state[name]
        elif isinstance(values := shown.setdefault("values", {}), dict) and key in state["values"]:
            shown["values"] = {**values, key: state["values"][key]}
    return shown


def _asking(state: Mapping[str, Json], thread: Thread) -> Mapping[str, Json]:
    """The state with the interrupts that still wait for an answer."""
    asks = still_asked(thread, state["interrupts"])
    asked_by = {one["id"]: number for number, task in enumerate(state["tasks"]) for one in task["interrupts"]}
    # A question that is not a LangGraph interrupt was asked beside one that is.
    first = min((asked_by[one["id"]] for one in asks if one["id"] in asked_by), default=0)
    tasks = [
        {**task, "interrupts": [one for one in asks if asked_by.get(one["id"], first) == number]}
        for number, task in enumerate(state["tasks"])
    ]
    return {**state, "tasks": tasks, "interrupts": asks}


def without_texts(state: Mapping[str, Json], hidden: Sequence[str]) -> Mapping[str, Json]:
    """The state without these redacted texts in the graph's inputs and outputs."""
    if not hidden:
        return state
    shown = {name: without(state[name], hidden) for name in ("values", "interrupts")}
    return {**state, **shown, "tasks": [_task_without(task, hidden) for task in state["tasks"]]}


def _task_without(task: Mapping[str, Json], hidden: Sequence[str]) -> Mapping[str, Json]:
    shown = {name: without(task[name], hidden) for name in ("result", "error", "interrupts")}
    return {**task, **shown, "state": task["state"] and without_texts(task["state"], hidden)}
