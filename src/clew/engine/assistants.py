"""Assistants: one for each graph, and those that clients created."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid5

from clew.domain.assistants import Assistant, AssistantPatch, Object, Search, new_assistant, revised
from clew.domain.errors import Conflict, Invalid, InvalidState, NotFound
from clew.domain.items import contains
from clew.domain.thread import Owner
from clew.ports.assistants import Assistants
from clew.ports.authorization import FilteredOwner
from clew.ports.clock import Clock
from clew.ports.graphs import GraphIntrospection, Graphs
from clew.ports.thread_metadata import ThreadMetadata, ThreadSearch

# Of the ids that LangGraph gives to its own assistants, one for each graph.
NAMESPACE = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantCatalog:
    """The system's assistants are there as long as their graph is. They are stored only where a tenant changed one."""

    assistants: Assistants
    graphs: Graphs
    introspection: GraphIntrospection
    labels: ThreadMetadata
    delete_thread: Callable[[str, Owner], Awaitable[None]]
    clock: Clock
    new_id: Callable[[], str]
    since: datetime  # the age of the system's assistants: the same in every process, or pages would overlap
    hidden: Collection[str] = ()  # graphs without an assistant
    descriptions: Mapping[str, str | None] = field(default_factory=dict)

    async def get(self, assistant_id: str, owner: Owner) -> Assistant:
        """The same as `resolve`; but an owner's filter hides the graphs' own assistants too, as LangGraph's server does."""
        found = await self.resolve(assistant_id, owner)
        if not _is_seen(found, owner):
            raise NotFound(f"no assistant {assistant_id!r}")
        return found

    async def resolve(self, assistant_id: str, owner: Owner) -> Assistant:
        """The assistant of a run, by its id or by its graph's name. Raises NotFound, Invalid."""
        graph = self._system_graph(assistant_id)
        if graph is None:
            found = await self.assistants.get(as_id(assistant_id), owner)
        else:
            (found,) = await self._system([graph], owner)
        if found.graph not in self._graphs:
            raise NotFound(f"no assistant {assistant_id!r}")
        return found

    async def find(self, owner: Owner, wanted: Search) -> tuple[list[Assistant], int]:
        """A page of those that are wanted, and how many there are in all. The graphs' own are in their order."""
        if wanted.graph is not None:
            self._require_graph(wanted.graph)
        system = await self._system(self._graphs, owner)
        ids = {one.id for one in system}
        stored = await self.assistants.find(owner, wanted, graphs=self._graphs)
        found = sorted((one for one in stored if one.id not in ids), key=lambda one: one.id)
        found += (
            one for one in system if wanted.wants(one) and one.graph in self._graphs and _is_seen(one, owner)
        )
        return wanted.page(found), len(found)

    async def create(
        self,
        owner: Owner,
        graph: str,
        wish: AssistantPatch,
        *,
        assistant_id: str | None = None,
        keeps: bool = False,
    ) -> Assistant:
        """Make one. If there is one of this id already: Conflict, or that one as it is if the caller `keeps` it."""
        self._require_graph(graph)
        made = new_assistant(
            self.new_id() if assistant_id is None else as_id(assistant_id), graph, wish, now=self.clock()
        )
        is_free = self._system_graph(made.id) is None
        if is_free and await self.assistants.add(made, owner):
            return made
        try:
            if keeps:
                return await self.resolve(made.id, owner)
        except NotFound:
            pass  # another user's, and the answer is the same as for one that is the caller's
        raise Conflict(f"there is an assistant {made.id!r} already")

    async def revise(self, assistant_id: str, owner: Owner, wish: AssistantPatch) -> Assistant:
        if wish.graph is not None:
            self._require_graph(wish.graph)
        if (graph := self._system_graph(assistant_id)) is not None:
            await self.get(assistant_id, owner)
            assistant_id = await self._stored(graph, owner)
        now = self.clock()
        return await self.assistants.revise(
            as_id(assistant_id), owner, lambda before: revised(before, wish, now=now)
        )

    async def versions(
        self, assistant_id: str, owner: Owner, *, metadata: Object, limit: int, offset: int
    ) -> list[Assistant]:
        """The newest first."""
        if (graph := self._system_graph(assistant_id)) is not None:
            await self.get(assistant_id, owner)
            assistant_id = system_id(graph)
            if not await self.assistants.of_tenant(owner.tenant, [assistant_id]):
                system = self._of_graph(graph)
                return [system][offset : offset + limit] if contains(system.metadata, metadata) else []
            owner = Owner(tenant=owner.tenant)
        found = await self.assistants.versions(
            as_id(assistant_id), owner, metadata=metadata, limit=limit, offset=offset
        )
        return list(found)

    async def set_latest(self, assistant_id: str, owner: Owner, version: int) -> Assistant:
        if (graph := self._system_graph(assistant_id)) is not None:
            await self.get(assistant_id, owner)
            (system,) = await self._system([graph], owner)
            if version == system.version:
                return system
            if not await self.assistants.of_tenant(owner.tenant, [system.id]):
                raise NotFound(f"assistant {assistant_id!r} has no version {version}")
            assistant_id = await self._stored(graph, owner)
        return await self.assistants.set_latest(as_id(assistant_id), owner, version, now=self.clock())

    async def delete(self, assistant_id: str, owner: Owner, *, with_threads: bool = False) -> None:
        """Delete it, and before it the owner's threads that it ran last."""
        if (graph := self._system_graph(assistant_id)) is not None:
            raise InvalidState(f"the assistant of graph {graph!r} itself cannot be deleted")
        found = await self.assistants.get(as_id(assistant_id), owner)
        if with_threads:
            await self._delete_threads(found.id, owner)
        await self.assistants.delete(found.id, owner)

    async def _delete_threads(self, assistant_id: str, owner: Owner) -> None:
        wanted = ThreadSearch(owner=owner, labels={"assistant_id": assistant_id}, limit=100)
        while some := await self.labels.find(wanted):
            for thread_id in some:
                with suppress(NotFound):  # it was deleted meanwhile
                    await self.delete_thread(thread_id, owner)

    @property
    def _graphs(self) -> list[str]:
        return [name for name in self.graphs.graphs if name not in self.hidden]

    def _system_graph(self, assistant_id: str) -> str | None:
        """The graph whose own assistant this is: by the graph's name, or by the assistant's id."""
        if assistant_id in self._graphs:
            return assistant_id
        wanted = as_id(assistant_id)
        return next((graph for graph in self._graphs if system_id(graph) == wanted), None)

    async def _system(self, graphs: Sequence[str], owner: Owner) -> list[Assistant]:
        """The own assistants of these graphs, in this order: as they are, or as the tenant changed them."""
        changed = await self.assistants.of_tenant(owner.tenant, [*map(system_id, graphs)])
        return [changed.get(system_id(graph)) or self._of_graph(graph) for graph in graphs]

    async def _stored(self, graph: str, owner: Owner) -> str:
        """The id of a graph's own assistant, stored so that it can be changed. Raises InvalidState for one user's key:
        every user of the tenant runs it."""
        if owner.user_id:
            raise InvalidState(
                f"the assistant of graph {graph!r} itself is for every user of its tenant, and this is one user's key:"
                " make an assistant of your own to change"
            )
        system = self._of_graph(graph)
        await self.assistants.add(system, owner)
        return system.id

    def _of_graph(self, graph: str) -> Assistant:
        return Assistant(
            id=system_id(graph),
            graph=graph,
            name=self.introspection.title(graph),
            description=self.descriptions.get(graph),
            metadata={"created_by": "system"},
            created_at=self.since,
            updated_at=self.since,
        )

    def _require_graph(self, graph: str) -> None:
        if graph not in self._graphs:
            there = ", ".join(sorted(self._graphs))
            raise NotFound(f"no graph {graph!r} is registered here; there are {there}")


def _is_seen(assistant: Assistant, owner: Owner) -> bool:
    return not isinstance(owner, FilteredOwner) or owner.assistants.matches(assistant.metadata)


def system_id(graph: str) -> str:
    """Of the assistant every graph has: the same id as on any server of LangGraph's."""
    return str(uuid5(NAMESPACE, graph))


def as_id(text: str) -> str:
    """The one way to write an id. Raises Invalid."""
    try:
        return str(UUID(text))
    except ValueError:
        raise Invalid("an assistant is named by its id, which is a UUID, or by its graph") from None
