"""List deltas: which parts of an older list a list keeps, and what it gained. Pure; knows no database.

An element is kept when it is the same object and has not been changed in place since it was stored. Changes are
searched among the elements that a node returned; where that is not known, among all.
"""

from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass
from operator import attrgetter, is_
from typing import Any, TypeAlias

import orjson

from clew.checkpointer.messages import MESSAGES
from clew.domain.errors import Corrupt

# A list as pieces in order: [start, stop] is a run of the older list, a number that many of its own elements.
Pieces: TypeAlias = list[list[int] | int]

# Before a list is given out again, this many of its newest elements are compared, and as many of the others in
# turn. Comparing all of them would be what a turn of a long thread spends its time on.
WINDOW = 128

_SCALARS = frozenset({str, int, float, bool, type(None), bytes})
# To compare with; never given out.
_EMPTY: dict[type, Any] = {dict: {}, list: []}
_fields = attrgetter("__dict__")


@dataclass(frozen=True, slots=True)
class Delta:
    """What makes a new list of an older one. Without pieces: all of the older list, then what was gained."""

    gained: list[Any]
    pieces: Pieces | None = None

    @property
    def splice(self) -> str | None:
        return None if self.pieces is None else orjson.dumps(self.pieces).decode()


class Remembered:
    """A list as it was stored. Its elements are shared with the graph, so a copy of their values is kept.

    Never changed, but for one thing: lists that only grow share their storage, each knowing its own length.
    """

    __slots__ = ("_elements", "_ids", "_length", "_messages_only", "_next", "_stamps", "faithful")

    def __init__(
        self,
        elements: list[Any],
        stamps: list[Any],
        ids: set[int],
        *,
        messages_only: bool,
        faithful: bool,
        next_look: int = 0,
    ) -> None:
        self._elements = elements
        self._stamps = stamps
        self._ids = ids
        self._length = len(elements)
        self._messages_only = messages_only
        self._next = next_look
        # Whether the elements equal what the serializer makes of them and back.
        self.faithful = faithful

    @classmethod
    def of(cls, elements: Sequence[Any], *, loaded: bool = False) -> "Remembered":
        """Elements that were `loaded` came out of the serializer, so they are faithful whatever they are."""
        stamper = _Stamper()
        stamps = [stamper.stamp(element) for element in elements]
        ids, alone = _ids_of(elements)
        return cls(
            list(elements),
            stamps,
            ids,
            messages_only=stamper.messages_only,
            faithful=loaded or (stamper.plain and alone),
        )

    def __len__(self) -> int:
        return self._length

    def copy(self) -> list[Any]:
        return self._elements[: self._length]

    def intact(self) -> bool:
        """Whether a copy may be given out: no element was changed, and a reader from disk would see the same."""
        if not self.faithful:
            return False
        if self._length <= 2 * WINDOW:
            return self._unchanged(0, self._length)
        oldest = self._length - WINDOW
        start = self._next if self._next < oldest else 0
        self._next = start + WINDOW
        return self._unchanged(oldest, self._length) and self._unchanged(start, min(start + WINDOW, oldest))

    def delta_to(self, new: list[Any], touched: Collection[int] | None = None) -> Delta | None:
        """What `new` gained over this; nothing if it keeps nothing of it.

        `touched` are the ids of the objects that may have been changed; without it, any may.
        """
        length = self._length
        old = self._elements if len(self._elements) == length else self.copy()
        if len(new) >= length and all(map(is_, old, new)):
            gained = new[length:]
            # What was returned is as a rule what is new; then no old element is compared.
            if touched is not None and set(touched) <= set(map(id, gained)):
                return Delta(gained)
            if self._unchanged(0, length):
                return Delta(gained)
        return self._splice(new, touched)

    def then(self, delta: Delta, *, loaded: bool = False) -> "Remembered":
        """The list that the delta makes of this one."""
        gained = Remembered.of(delta.gained, loaded=loaded)
        # One object in two places comes back from disk as two: such a list is not given out.
        alone = self._ids.isdisjoint(gained._ids)
        if delta.pieces is not None:
            elements = build(self.copy(), delta.pieces, gained._elements)
            stamps = build(self._stamps[: self._length], delta.pieces, gained._stamps)
            ids, alone = _ids_of(elements)
        elif len(self._elements) == self._length:
            # No other list has grown from this one yet: grow in place. A second branch gets storage of its own.
            elements, stamps, ids = self._elements, self._stamps, self._ids
            elements += gained._elements
            stamps += gained._stamps
            ids |= gained._ids
        else:
            elements = self.copy() + gained._elements
            stamps = self._stamps[: self._length] + gained._stamps
            ids = self._ids | gained._ids
        return Remembered(
            elements,
            stamps,
            ids,
            messages_only=self._messages_only and gained._messages_only,
            faithful=self.faithful and gained.faithful and alone,
            next_look=self._next,
        )

    def _unchanged(self, start: int, stop: int) -> bool:
        elements = self._elements[start:stop]
        # The common case without a Python frame an element: 0.1 us against 0.2.
        values = list(map(_fields, elements)) if self._messages_only else list(map(_comparable, elements))
        return _equal(values, self._stamps[start:stop])

    def _splice(self, new: list[Any], touched: Collection[int] | None) -> Delta | None:
        old = self._elements
        places = {id(old[index]): index for index in range(self._length)}
        pieces: Pieces = []
        gained: list[Any] = []
        following = -1  # where the run that is being followed would go on
        for element in new:
            if 0 <= following < self._length and old[following] is element:
                index = following
            else:
                index = places.get(id(element), -1)
            sure = touched is not None and id(element) not in touched
            if index >= 0 and (sure or _equal(_comparable(element), self._stamps[index])):
                following = index + 1
                _extend_run(pieces, index)
            else:
                following = -1
                _extend_own(pieces)
                gained.append(element)
        return Delta(gained, pieces) if len(gained) < len(new) else None


def touched_by(value: Any) -> set[int]:
    """The ids of the objects in what a node returned for a list: its elements, or itself."""
    elements = value if isinstance(value, list | tuple | set) else (value,)
    return {id(element) for element in elements if type(element) not in _SCALARS}


def build(old: list[Any], pieces: Pieces | None, gained: list[Any]) -> list[Any]:
    """The list that a delta describes. Raises Corrupt if the pieces do not fit."""
    if pieces is None:
        return old + gained
    result: list[Any] = []
    used = 0
    for piece in pieces:
        if isinstance(piece, int):
            result += gained[used : used + piece]
            used += piece
        else:
            result += old[piece[0] : piece[1]]
    if used != len(gained):
        raise Corrupt("a stored list does not fit what it is built of")
    return result


def parse_splice(splice: str | None) -> Pieces | None:
    """Raises Corrupt for anything that `Delta.splice` does not make."""
    if splice is None:
        return None
    try:
        pieces = orjson.loads(splice)
    except ValueError:
        pieces = None
    if not isinstance(pieces, list) or not all(_is_piece(piece) for piece in pieces):
        raise Corrupt("a stored list cannot be put together")
    return pieces


def _extend_run(pieces: Pieces, index: int) -> None:
    last = pieces[-1] if pieces else 0
    if isinstance(last, list) and last[1] == index:
        last[1] += 1
    else:
        pieces.append([index, index + 1])


def _extend_own(pieces: Pieces) -> None:
    if pieces and isinstance(pieces[-1], int):
        pieces[-1] += 1
    else:
        pieces.append(1)


def _is_piece(piece: object) -> bool:
    if isinstance(piece, list):
        return len(piece) == 2 and all(type(index) is int and index >= 0 for index in piece)
    return type(piece) is int and piece >= 0


def _ids_of(elements: Sequence[Any]) -> tuple[set[int], bool]:
    """The ids of what can be changed in place, and whether each is there only once."""
    ids = [id(element) for element in elements if type(element) not in _SCALARS]
    unique = set(ids)
    return unique, len(unique) == len(ids)


def _comparable(element: Any) -> Any:
    return element.__dict__ if type(element) in MESSAGES else element


def _equal(value: Any, stamp: Any) -> bool:
    try:
        return bool(value == stamp)
    except Exception:  # noqa: BLE001 - a user's __eq__ failed, so nothing is known: not the same
        return False


class _Stamper:
    """Copies the values of elements, and remembers whether all of them were plain data or messages of plain data."""

    def __init__(self) -> None:
        self.plain = True
        self.messages_only = True

    def stamp(self, element: Any) -> Any:
        if type(element) in MESSAGES:
            stamp = element.__dict__.copy()
            for name, value in element.__dict__.items():
                # Most fields are text, nothing or empty; asking here saves a call each.
                if type(value) not in _SCALARS:
                    empty = _EMPTY.get(type(value))
                    stamp[name] = empty if empty == value else self._copy(value)
            return stamp
        self.messages_only = False
        return self._copy(element)

    def _copy(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SCALARS:
            return value
        if kind is dict:
            if not all(type(key) is str for key in value):
                self.plain = False
            return {key: self._copy(item) for key, item in value.items()}
        if kind is list:
            return [self._copy(item) for item in value]
        self.plain = False
        try:
            return deepcopy(value)
        except Exception:  # noqa: BLE001 - what cannot be copied equals nothing, and is stored anew each time
            return object()
