"""Idempotency-Key header: a request sent several times under one key is carried out once."""

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Annotated, TypeAlias

from fastapi import Header
from pydantic_core import to_json

from clew.api.credentials import Principal
from clew.domain.errors import AlreadyDone, InvalidState
from clew.domain.thread import Json, Thread
from clew.ports.guards import Once
from clew.ports.inbox import Inbox

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="The same request under the same key gets the first answer again and is not repeated.",
    ),
]

MakeOnce: TypeAlias = Callable[[Thread], Once]


async def only_once(
    inbox: Inbox,
    caller: Principal,
    key: str | None,
    asked: Json,
    do: Callable[[MakeOnce | None], Awaitable[Thread]],
    answer: Callable[[Thread], Json],
) -> Json:
    """Carry out the request, or return the stored answer if the same caller sent it under this key before.

    Raises Duplicate if the key was used for something else.
    """
    if key is None:
        return answer(await do(None))
    # People of one tenant may well choose the same keys.
    name = f"{caller.user_id.replace('%', '%25').replace('/', '%2F')}/{key}"
    fingerprint = sha256(to_json(asked)).hexdigest()
    before = await inbox.answered(caller.tenant, name, fingerprint)
    if before is not None:
        return before
    try:
        return answer(
            await do(
                lambda thread: Once(
                    tenant=caller.tenant, key=name, fingerprint=fingerprint, response=answer(thread)
                )
            )
        )
    except AlreadyDone as exc:
        return exc.answer
    except InvalidState:
        # Perhaps this very request, sent twice at once, has put the thread into this state.
        before = await inbox.answered(caller.tenant, name, fingerprint)
        if before is None:
            raise
        return before
