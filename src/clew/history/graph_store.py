"""Store of LangGraph on our database: a batch is one transaction, a namespace matches whole labels, a get only reads."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)

from clew.domain import items
from clew.domain.errors import ClewError, Invalid
from clew.domain.items import (
    Fields,
    Namespace,
    Question,
    Vector,
    asked_below,
    check_filter,
    shown_below,
    user_label,
)
from clew.domain.retention import minutes
from clew.domain.thread import Owner
from clew.history.embedding import warn_unindexed
from clew.history.store_items import NO_INDEX
from clew.ports.histories import Histories
from clew.ports.items import ItemIndex, Items

logger = logging.getLogger(__name__)
T = TypeVar("T")

MAX_INTEGER: Final = 2**62
# The tenant of a store that names none: the same as of a server without API keys, and of a bot without `tenant`.
DEFAULT_TENANT: Final = Owner().tenant


class GraphStore(BaseStore):
    """A `BaseStore` on SQLite or Postgres, for one tenant: inside a served graph the thread's, else `default`.

    Where the thread is one user's, so is the store: its namespaces begin with a label that only the whole tenant sees.

    - Reads in a batch see what was there before its writes; of two writes to one key the last counts.
    - A value is JSON. One caller's bad value fails that caller only.
    - `ttl` is in minutes. An item past its time is not shown, even before it is swept, unless the configuration says
      `omit_expired: False`. Reading an item refreshes its time (unless `refresh_ttl` is off), but not on every read: at most
      once in a tenth of its life.
    - Chat histories appear as the items of their documented form and cannot be written this way; see ChatHistory.
    - With an index `query` ranks the items that have vectors by similarity, with scores. Texts are embedded before the
      transaction; if that fails, nothing is written. Without an index `query` is refused.
    """

    __slots__ = ("backend", "histories", "index", "items", "loop", "root", "tenant", "ttl_config")

    supports_ttl = True

    def __init__(
        self,
        items: Items,
        histories: Histories,
        *,
        backend: str = "sqlite",
        tenant: str = DEFAULT_TENANT,
        user_id: str = "",
        ttl: TTLConfig | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        index: ItemIndex | None = None,
    ) -> None:
        """Made inside the event loop it will be used in, or given that loop: the methods without `a` hand their work to it."""
        self.items = items
        self.loop = loop or asyncio.get_running_loop()
        self.histories = histories
        self.backend = backend
        self.tenant = tenant
        self.root = user_label(user_id)
        self.ttl_config = ttl
        self.index = index

    def for_owner(self, owner: Owner) -> "GraphStore":
        """The same store as another tenant, or one user of it, sees it."""
        return GraphStore(
            self.items,
            self.histories,
            backend=self.backend,
            tenant=owner.tenant,
            user_id=owner.user_id,
            ttl=self.ttl_config,
            loop=self.loop,
            index=self.index,
        )

    def for_tenant(self, tenant: str) -> "GraphStore":
        """The same store as all of another tenant sees it."""
        return self.for_owner(Owner(tenant=tenant))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await self.at_home(self._batch(list(ops)))

    async def _batch(self, ops: Sequence[Op]) -> list[Result]:
        plan = _BatchPlan(ops, self.root, await self._embedded(ops))
        expired = self.ttl_config is not None and self.ttl_config.get("omit_expired") is False
        if plan.changes:
            changes = await self._indexed(plan)
            answers = await self.items.change(self.tenant, plan.questions, changes, expired=expired)
        else:
            answers = await self.items.ask(self.tenant, plan.questions, expired=expired)
        await self._refresh(plan.worn(answers))
        return plan.results(answers)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        if _running_loop() is self.loop:
            raise asyncio.InvalidStateError(
                "a synchronous call to the store would block the event loop it works in; await its `a` twin"
            )
        return asyncio.run_coroutine_threadsafe(self.abatch(ops), self.loop).result()

    async def sweep_ttl(self) -> int:
        """Remove every item past its time, in small transactions; returns how many. Any tenant's sweep sweeps for all."""
        swept = 0
        while some := await self.at_home(self.items.sweep(limit=1000)):
            swept += some
        return swept

    async def at_home(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something of this store's from any event loop: the database's connections belong to one of them."""
        if asyncio.get_running_loop() is self.loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def _embedded(self, ops: Sequence[Op]) -> Mapping[str, Vector]:
        queries = [op.query for op in ops if isinstance(op, SearchOp) and op.query]
        if self.index is not None:
            return await self.index.embed_queries(queries)
        if queries:
            raise Invalid(NO_INDEX, field="query")
        return {}

    async def _indexed(self, plan: "_BatchPlan") -> list[items.ItemChange]:
        if self.index is not None:
            return await self.index.embed_items(
                [(plan.changes[name], plan.fields[name]) for name in plan.changes]
            )
        if any(plan.fields.values()):
            warn_unindexed()
        return list(plan.changes.values())

    async def _refresh(self, names: Sequence[tuple[Namespace, str]]) -> None:
        if not names:
            return
        try:
            await self.items.refresh(self.tenant, names)
        except ClewError as exc:
            # The caller asked for a value and has it; that it may expire early is no reason to withhold it.
            logger.warning("could not refresh the time to live of %d store items: %s", len(names), exc.code)


class _BatchPlan:
    """LangGraph's operations as ours: reads, changes, and which result belongs where.

    Everything is below `root`, and shown as if it were not.
    """

    def __init__(
        self, ops: Sequence[Op], root: Namespace = (), near: Mapping[str, Vector] = MappingProxyType({})
    ) -> None:
        self.ops = ops
        self.root = root
        self.fields: dict[tuple[Namespace, str], Fields] = {}
        self.questions: list[Question] = []
        self.changes: dict[tuple[Namespace, str], items.ItemChange] = {}
        for op in ops:
            validate_op_namespace(op)
            match op:
                case PutOp():
                    if not op.namespace:
                        raise ValueError("a namespace cannot be empty")
                    name = ((*root, *_labels(op.namespace)), _key(op.key))
                    self.changes.pop(name, None)
                    self.changes[name] = _change(op, *name)
                    self.fields[name] = op.index
                case _:
                    self.questions.append(asked_below(_question(op, near), root))

    def results(self, answers: Sequence[items.Answer]) -> list[Result]:
        rest = iter(answers)
        depth = len(self.root)
        return [
            None if isinstance(op, PutOp) else _result(op, shown_below(next(rest), depth)) for op in self.ops
        ]

    def worn(self, answers: Sequence[items.Answer]) -> list[tuple[Namespace, str]]:
        """The items read with the wish to keep them whose life has run long enough to be worth a write."""
        rest = iter(answers)
        found: list[items.Item] = []
        for op in self.ops:
            if isinstance(op, PutOp):
                continue
            answer = next(rest)
            if isinstance(op, GetOp) and op.refresh_ttl and isinstance(answer, items.Item):
                found.append(answer)
            elif isinstance(op, SearchOp) and op.refresh_ttl:
                found.extend(cast("Sequence[items.Item]", answer))
        return list({(item.namespace, item.key): None for item in found if item.is_worn})


def _question(op: Op, near: Mapping[str, Vector]) -> Question:
    match op:
        case GetOp():
            return items.GetItem(namespace=_labels(op.namespace), key=_key(op.key))
        case SearchOp():
            check_filter(op.filter)
            return items.FindItems(
                prefix=_labels(op.namespace_prefix),
                near=near[op.query] if op.query else None,
                filter=op.filter or None,
                limit=_count(op.limit),
                offset=_count(op.offset),
            )
        case ListNamespacesOp():
            conditions = op.match_conditions or ()
            return items.ListNamespaces(
                patterns=tuple(items.Pattern(at=c.match_type, labels=_labels(c.path)) for c in conditions),
                max_depth=op.max_depth,
                limit=_count(op.limit),
                offset=_count(op.offset),
            )
        case _:
            raise ValueError(f"unknown operation {type(op).__name__}")


def _change(op: PutOp, namespace: Namespace, key: str) -> items.ItemChange:
    if op.value is None:
        return items.DeleteItem(namespace=namespace, key=key)
    ttl = None if op.ttl is None else minutes(op.ttl, field="ttl")
    return items.PutItem(namespace=namespace, key=key, value=dict(op.value), ttl=ttl)


def _result(op: Op, answer: items.Answer) -> Result:
    if isinstance(op, SearchOp):
        return [
            SearchItem(**_fields(item), score=item.score) for item in cast("Sequence[items.Item]", answer)
        ]
    if isinstance(op, GetOp):
        return Item(**_fields(answer)) if isinstance(answer, items.Item) else None
    return list(cast("Sequence[Namespace]", answer))


def _fields(item: items.Item) -> dict[str, Any]:
    return {
        "namespace": item.namespace,
        "key": item.key,
        "value": item.value,
        "created_at": item.created_at,
        "updated_at": item.updated_at,
    }


def _labels(labels: Sequence[str]) -> Namespace:
    for label in labels:
        _check_text(label, "namespace")
    return tuple(labels)


def _key(key: str) -> str:
    _check_text(key, "key")
    return key


def _check_text(text: str, field: str) -> None:
    """What one database cannot hold, none of them takes."""
    if "\x00" in text or (not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)):
        raise Invalid(f"a {field} holds a character that cannot be stored", field)


def _count(number: int) -> int:
    if number < 0:
        raise Invalid("a limit and an offset are not below zero", "limit")
    return min(number, MAX_INTEGER)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
