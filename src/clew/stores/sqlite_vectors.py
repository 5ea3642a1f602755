"""Vectors in SQLite: `vec_distance_cosine` of sqlite-vec, or the same in Python where that cannot be loaded."""

import sqlite3
from array import array
from functools import lru_cache
from importlib.util import find_spec
from math import hypot, sqrt
from operator import mul

# Not every Python can load extensions into SQLite: those of python.org for macOS and of pyenv cannot.
LOADS_EXTENSION = find_spec("sqlite_vec") is not None and hasattr(sqlite3.Connection, "enable_load_extension")


def add_vectors(connection: sqlite3.Connection) -> None:
    """Let statements compare vectors on this connection."""
    if not LOADS_EXTENSION:
        connection.create_function("vec_distance_cosine", 2, cosine_distance, deterministic=True)
        return
    import sqlite_vec  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

    connection.enable_load_extension(True)
    try:
        sqlite_vec.load(connection)
    finally:
        connection.enable_load_extension(False)


def cosine_distance(one: bytes, other: bytes) -> float:
    """The distance of two vectors of 32-bit floats: 0 for the same direction, 1 for none in common, 2 for opposite ones."""
    left, right = array("f", one), _query(other)
    scale = sqrt(sum(map(mul, left, left))) * right[1]
    return 1 - sum(map(mul, left, right[0])) / scale if scale else 1.0


@lru_cache(maxsize=16)
def _query(vector: bytes) -> "tuple[array[float], float]":
    """A query is compared with many."""
    floats = array("f", vector)
    return floats, hypot(*floats)
