"""Idempotency-Key header: a request sent several times under one key is carried out once."""

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentRequest:
    """A request and the answer that is stored for its key. Without a key no answer is stored."""

    inbox: Inbox
    tenant: str
    key: str | None
    fingerprint: str

    @classmethod
    def of(cls, inbox: Inbox, caller: Principal, key: str | None, asked: Json) -> "IdempotentRequest":
        if key is None:
            return cls(inbox=inbox, tenant=caller.tenant, key=None, fingerprint="")
        # People of one tenant may well choose the same keys.
        name = f"{caller.user_id.replace('%', '%25').replace('/', '%2F')}/{key}"
        digest = sha256(to_json(asked)).hexdigest()
        return cls(inbox=inbox, tenant=caller.tenant, key=name, fingerprint=digest)

    async def stored_answer(self) -> Json:
        """The answer to the same request, sent before; None if it is new. Raises Duplicate if the key was used for
        something else."""
        return (
            None if self.key is None else await self.inbox.answered(self.tenant, self.key, self.fingerprint)
        )

    def storing(self, answer: Callable[[Thread], Json]) -> MakeOnce | None:
        """The guard that stores the answer with the change that it is about."""
        if (key := self.key) is None:
            return None
        return lambda thread: Once(
            tenant=self.tenant, key=key, fingerprint=self.fingerprint, response=answer(thread)
        )

    async def answer_after(self, refusal: AlreadyDone | InvalidState) -> Json:
        """Perhaps this very request, sent twice at once, has put the thread into its state. Raises the refusal if not."""
        answer = refusal.answer if isinstance(refusal, AlreadyDone) else await self.stored_answer()
        if answer is None:
            raise refusal
        return answer
