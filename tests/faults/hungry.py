"""Graphs that want more memory than there is: in a node, and in the state that is to be stored."""

from typing import Any

from tests.chains import chain
from tests.odd_graphs import Notes

GRAPHS = "graphs:\n" + "".join(
    f"  {name}: tests.faults.hungry:{name}\n" for name in ("greedy", "huge", "modest")
)
MEGABYTE = 1 << 20


def takes_bit_by_bit(state: Notes) -> Notes:
    taken = []
    while True:
        taken.append(bytearray(32 * MEGABYTE))


def returns_much(state: Notes) -> Notes:
    return {"log": ["x" * (300 * MEGABYTE)]}


def is_modest(state: Notes) -> Notes:
    return {"log": ["little"]}


def greedy() -> Any:
    return chain(Notes, takes_bit_by_bit)


def huge() -> Any:
    return chain(Notes, returns_much)


def modest() -> Any:
    return chain(Notes, is_modest)
