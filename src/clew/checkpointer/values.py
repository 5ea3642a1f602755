"""Channel values as rows and back: whole, or as what a list gained."""

import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from langgraph.checkpoint.serde.base import SerializerProtocol

from clew.checkpointer.deltas import Delta, Remembered, build, parse_splice
from clew.domain.errors import Corrupt
from clew.ports.checkpoints import ChannelValue, Version

# A list is written whole again once the changes since are this many times as big. So all wholes together stay
# within a quarter more than the last one, and a reader of the newest never reads more than five times its size.
GROWTH = 4
# What a change costs a reader beside its bytes, and below which size a list is not worth counting.
LINK = 64
SMALL = 2048

# Between the kind of a write that is a change, and what it leaves of the list it changes.
CHANGE = "|"

_OURS = re.compile(r"\d{10}\.[A-Za-z0-9_-]{8}")


@dataclass(frozen=True, slots=True)
class HeldList:
    """A list in memory as it is stored."""

    version: str
    elements: Remembered
    root: str
    whole: int  # bytes of the root
    since: int  # bytes since then
    origin: str  # what the next change builds on: this version, or the one before if this changed nothing

    @property
    def size(self) -> int:
        return self.whole + self.since


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """Any other value in memory, still packed: unpacking it for each reader keeps them apart."""

    version: str
    kind: str
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that is in the database and nowhere else; as what, whole or a change, is not known."""

    version: str
    size: int = 0


Held: TypeAlias = HeldList | HeldBytes


class Missing(Corrupt):
    """A stored value is not there, or what it is built of."""


def next_version(current: Version | None) -> str:
    """A version above `current`. The second half is random: two forks of one checkpoint must not share a version."""
    count = 0 if current is None else int(str(current).partition(".")[0])
    return f"{count + 1:010}.{secrets.token_urlsafe(6)}"


def is_ours(version: Version) -> bool:
    """Whether the version names one value for ever. A number from elsewhere may come back with another value."""
    return isinstance(version, str) and _OURS.fullmatch(version) is not None


def load(serde: SerializerProtocol, kind: str, data: bytes) -> Any:
    """What is stored in a row. Raises Corrupt, whatever is wrong with it."""
    try:
        return serde.loads_typed((kind, data))
    except Corrupt:
        raise
    except Exception as exc:
        raise Corrupt(f"a stored value cannot be read back ({type(exc).__name__})") from exc


def pack(
    serde: SerializerProtocol,
    channel: str,
    version: Version,
    value: Any,
    base: Held | None = None,
    touched: Collection[int] | None = None,
) -> tuple[ChannelValue, Held | None]:
    """The value as it goes into the database, and to remember it by if its version can be trusted.

    For `touched` see `Remembered.delta_to`.
    """
    if not is_ours(version):
        return _whole(serde, channel, str(version), value), None
    version = str(version)
    if type(value) is not list:
        packed = _whole(serde, channel, version, value)
        return packed, HeldBytes(version, packed.kind, packed.data)
    if isinstance(base, HeldList) and (change := _change(serde, channel, version, value, base, touched)):
        return change
    packed = _whole(serde, channel, version, value, root=version)
    held = HeldList(version, Remembered.of(value), version, len(packed.data), 0, version)
    return packed, held


def pack_write(serde: SerializerProtocol, value: Any, held: Held | Stored | None) -> tuple[str, bytes]:
    """What a task returned for a channel; as a change to what the channel `held`, where it is mostly that.

    Many a node returns its whole list with one more element. Stored whole each time, these would outgrow all else.
    """
    if (
        type(value) is list
        and isinstance(held, HeldList)
        and 2 * len(value) > len(held.elements)
        and (delta := held.elements.delta_to(value)) is not None
        and 2 * len(delta.gained) < len(value)
    ):
        kind, data = serde.dumps_typed(delta.gained)
        return f"{kind}{CHANGE}{delta.splice or ''}", bytes(data)
    kind, data = serde.dumps_typed(value)
    return kind, bytes(data)


def unpack_write(serde: SerializerProtocol, kind: str, data: bytes, held: Any) -> Any:
    """What a task returned for a channel that held this value. Raises Corrupt."""
    kind, is_change, splice = kind.partition(CHANGE)
    value = load(serde, kind, data)
    if not is_change:
        return value
    if type(value) is not list or type(held) is not list:
        raise Corrupt("a stored write builds on a list that is not there")
    return build(held, parse_splice(splice or None), value)


def unpack(serde: SerializerProtocol, held: Held) -> Any:
    """The value for one reader. Lists share their elements with other readers, everything else is their own."""
    if isinstance(held, HeldList):
        return held.elements.copy()
    return load(serde, held.kind, held.data)


def assemble(
    serde: SerializerProtocol,
    stored: Mapping[str, ChannelValue],
    version: str,
    base: Held | None = None,
) -> Held:
    """Put one channel's value together from its stored versions, on top of `base` where that is one of them.

    Raises Missing if a part is not there, Corrupt if the parts do not fit.
    """
    chain: list[ChannelValue] = []
    start: HeldList | None = None
    wanted: str | None = version
    while wanted is not None:
        if isinstance(base, HeldList) and wanted == base.version:
            start = base
            break
        value = stored.get(wanted)
        if value is None or len(chain) > len(stored):
            raise Missing(f"a stored value is gone: version {wanted[:40]}")
        chain.append(value)
        wanted = value.base
    chain.reverse()
    if start is None and len(chain) == 1:
        return _loaded(serde, chain[0])
    return _built(serde, chain, start)


def _loaded(serde: SerializerProtocol, stored: ChannelValue) -> Held:
    if stored.root is None:
        return HeldBytes(stored.version, stored.kind, stored.data)
    elements = Remembered.of(_load_list(serde, stored), loaded=True)
    return HeldList(stored.version, elements, stored.version, len(stored.data), 0, stored.version)


def _built(serde: SerializerProtocol, chain: list[ChannelValue], start: HeldList | None) -> HeldList:
    if start is None:
        return _built_cold(serde, chain)
    elements, since = start.elements, start.since
    for link in chain:
        delta = Delta(_load_list(serde, link), parse_splice(link.splice))
        elements = elements.then(delta, loaded=True)
        since += len(link.data) + LINK
    return HeldList(chain[-1].version, elements, start.root, start.whole, since, chain[-1].version)


def _built_cold(serde: SerializerProtocol, chain: list[ChannelValue]) -> HeldList:
    """From nothing: all that was ever gained is taken in at one go at the end."""
    root, *links = chain
    elements = _load_list(serde, root)
    since = 0
    for link in links:
        gained = _load_list(serde, link)
        if link.splice is None:
            elements += gained
        else:
            elements = build(elements, parse_splice(link.splice), gained)
        since += len(link.data) + LINK
    version = chain[-1].version
    remembered = Remembered.of(elements, loaded=True)
    return HeldList(version, remembered, root.version, len(root.data), since, version)


def _load_list(serde: SerializerProtocol, stored: ChannelValue) -> list[Any]:
    value = load(serde, stored.kind, stored.data)
    if type(value) is not list:
        raise Corrupt("a stored list is built of something that is no list")
    return value


def _change(
    serde: SerializerProtocol,
    channel: str,
    version: str,
    value: list[Any],
    base: HeldList,
    touched: Collection[int] | None,
) -> tuple[ChannelValue, Held] | None:
    """The list as a change to `base`, unless there is little left of it or it is time to write it whole."""
    delta = base.elements.delta_to(value, touched)
    if delta is None:
        return None
    kind, data = serde.dumps_typed(delta.gained)
    since = base.since + len(data) + LINK
    if since > GROWTH * max(base.whole, SMALL):
        return None
    packed = ChannelValue(
        channel=channel,
        version=version,
        kind=kind,
        data=data,
        base=base.origin,
        root=base.root,
        splice=delta.splice,
    )
    # A version that gained nothing is no link in the chain: thousands of them cost a reader nothing.
    idle = delta.pieces is None and not delta.gained
    held = HeldList(
        version,
        base.elements.then(delta),
        base.root,
        base.whole,
        since,
        base.origin if idle else version,
    )
    return packed, held


def _whole(
    serde: SerializerProtocol, channel: str, version: str, value: Any, root: str | None = None
) -> ChannelValue:
    kind, data = serde.dumps_typed(value)
    return ChannelValue(channel=channel, version=version, kind=kind, data=bytes(data), root=root)
