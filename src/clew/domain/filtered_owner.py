"""Filtered owner: a tenant as a caller of custom authentication sees it, through the filters of the project's handlers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from clew.domain.metadata_filters import NOTHING, MetadataFilter
from clew.domain.thread import Json, Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredOwner(Owner):
    """What no handler was asked about is hidden: a filter that was not set matches nothing."""

    threads: MetadataFilter = NOTHING
    assistants: MetadataFilter = NOTHING
    crons: MetadataFilter = NOTHING
    # Written to each thread that is opened for this owner, in the same transaction.
    metadata: Mapping[str, Json] = field(default_factory=dict, compare=False)


def plain(owner: Owner) -> Owner:
    """Without filters: what is stored as the owner of something."""
    return Owner(tenant=owner.tenant, user_id=owner.user_id)
