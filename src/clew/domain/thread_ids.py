"""Ids of threads that callers choose. Each tenant may choose any: one that another tenant has is kept with a mark.

Without that, a refusal would tell one tenant which ids another one uses. Only its owner meets a marked id, and is shown it
without its mark.
"""

import re
from functools import lru_cache
from hashlib import sha256

from clew.domain.errors import NotFound

_MARKED = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}~[0-9a-f]{16}", re.ASCII)


class KeptUnderMark(NotFound):
    """There is no thread of this id, and there will be none: the caller's is kept with a mark."""


@lru_cache(1024)
def mark_of(tenant: str) -> str:
    return f"~{sha256(tenant.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def marked(thread_id: str, tenant: str) -> str:
    """Under which a thread is kept where another tenant's has the id that was chosen for it."""
    return thread_id + mark_of(tenant)


def is_marked(thread_id: str) -> bool:
    return _MARKED.fullmatch(thread_id) is not None
