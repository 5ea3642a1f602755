"""Settings of the queue: which tenants get more turns, and how many runs may run and wait."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar

from clew.config.declare import Section, setting
from clew.config.kinds import SettingKind, whole

_TENANT = re.compile(r"[^\s=,]{1,64}")
_WEIGHT = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3})?")
LEAST, MOST = 0.01, 100.0


def weights() -> SettingKind[Mapping[str, float]]:
    """A mapping in YAML; in a variable one text like `acme=3,free=0.5`."""

    def read(raw: object) -> Mapping[str, float]:
        given = _pairs(raw) if isinstance(raw, str) else raw
        if isinstance(given, dict):
            return MappingProxyType({_tenant(tenant): _weight(weight) for tenant, weight in given.items()})
        raise ValueError

    return SettingKind(f"tenants with a weight from {LEAST} to {MOST:.0f} each, like acme=3,free=0.5", read)


def _pairs(text: str) -> dict[str, str]:
    pairs = [pair.split("=") for pair in text.split(",")] if text else []
    if any(len(pair) != 2 for pair in pairs) or len({pair[0].strip() for pair in pairs}) < len(pairs):
        raise ValueError
    return {tenant.strip(): weight.strip() for tenant, weight in pairs}


def _tenant(raw: object) -> str:
    if isinstance(raw, str) and _TENANT.fullmatch(raw):
        return raw
    raise ValueError


def _weight(raw: object) -> float:
    if isinstance(raw, bool) or not _WEIGHT.fullmatch(str(raw)):
        raise ValueError
    if LEAST <= float(str(raw)) <= MOST:
        return float(str(raw))
    raise ValueError


class QueueSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_QUEUE_"

    tenant_weights: Annotated[Mapping[str, float], weights()] = setting(
        "", "Turns of tenants whose runs wait, compared with 1 for every other tenant."
    )
    running_per_tenant: Annotated[int, whole(0, 1_000_000)] = setting(
        0, "Runs of one tenant at once, in all processes; others wait. 0 is any number."
    )
    running_per_user: Annotated[int, whole(0, 1_000_000)] = setting(
        0, "Runs of one user at once; 0 is any number."
    )
    running_per_graph: Annotated[int, whole(0, 1_000_000)] = setting(
        0, "Runs of one graph at once; 0 is any number."
    )
    waiting_per_tenant: Annotated[int, whole(0, 1_000_000)] = setting(
        0, "Runs of one tenant that may wait; further ones get a 429. 0 is any number."
    )
    waiting_per_user: Annotated[int, whole(0, 1_000_000)] = setting(
        0, "Runs of one user that may wait; 0 is any number."
    )
    waiting_per_graph: Annotated[int, whole(0, 1_000_000)] = setting(
        0, "Runs of one graph that may wait; 0 is any number."
    )
