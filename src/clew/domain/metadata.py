"""Metadata that callers hang on what is theirs, and when it is what somebody looks for."""

from collections.abc import Mapping

from clew.domain.items import same
from clew.domain.thread import Json


def contains(whole: Json, part: Json) -> bool:
    """Whether an object has every field of another, with objects inside of it treated likewise; else the same value."""
    if isinstance(part, Mapping) and isinstance(whole, Mapping):
        return all(name in whole and contains(whole[name], value) for name, value in part.items())
    return same(whole, part)
