"""Names in a run's config, context and metadata that only the server may set."""

from collections.abc import Mapping
from typing import Final

from clew.domain.thread import Json

# Under which a node finds who is calling, and which request that was. A node trusts what stands there.
AUTH: Final = ("langgraph_auth", "langgraph_request_id")
# And where in which thread it is, under which fence, and what LangGraph keeps there for itself.
RESERVED: Final = (*AUTH, "clew_", "__", "checkpoint_", "thread_id")


def is_free(name: str) -> bool:
    return not name.startswith(RESERVED)


def without_auth(given: Mapping[str, Json]) -> dict[str, Json]:
    """What a caller may say: everything but who it is."""
    return {name: value for name, value in given.items() if not name.startswith(AUTH)}
