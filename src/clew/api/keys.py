"""/api/keys: API keys, listed, created and revoked; /api/me: the caller's own rights."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal, Self, TypeAlias

from fastapi import APIRouter, Path, Query
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from clew.api.access import needs
from clew.api.credentials import MAX_USER, SCOPES, TENANT, USUAL_SCOPES, Principal, is_user, mint
from clew.api.guard import Caller
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import WireModel
from clew.api.workflow_schemas import Given
from clew.domain.errors import Invalid, NotFound
from clew.domain.records import ApiKey
from clew.domain.thread import Owner
from clew.ports.api_keys import Keys

KeyState: TypeAlias = Literal["active", "expired", "revoked"]
KeyId = Annotated[str, Path(max_length=64)]


class MeOut(WireModel):
    """The caller, as the server sees it."""

    tenant: str
    user: str
    """Empty for a key of the whole tenant."""
    key_id: str
    """Empty for a caller on this machine that needs no key."""
    scopes: list[str]


class KeyOut(WireModel):
    """A key without its secret."""

    id: str
    name: str
    tenant: str
    user: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    state: KeyState

    @classmethod
    def of(cls, api_key: ApiKey, *, now: datetime, **more: str) -> Self:
        return cls(
            id=api_key.id,
            name=api_key.name,
            tenant=api_key.owner.tenant,
            user=api_key.owner.user_id,
            scopes=sorted(api_key.scopes),
            created_at=api_key.created_at,
            expires_at=api_key.expires_at,
            state=_state(api_key, now),
            **more,
        )


class NewKeyOut(KeyOut):
    key: str
    """The key itself. It is not stored and cannot be shown again."""


class KeysOut(WireModel):
    keys: list[KeyOut]


class KeyIn(Given):
    name: Annotated[str, Field(min_length=1, max_length=100)]
    scopes: Annotated[tuple[str, ...], Field(max_length=len(SCOPES), strict=False)] = USUAL_SCOPES
    user: Annotated[str, Field(max_length=MAX_USER)] = ""
    """Whose data it sees; left out: the whole tenant's."""
    tenant: Annotated[str | None, Field(max_length=64)] = None
    """Another tenant than the caller's: with the scope `operator`."""
    expires_days: Annotated[int | None, Field(ge=1, le=3650)] = None
    """Left out: never."""

    @field_validator("name", "user")
    @classmethod
    def _is_one_line(cls, text: str) -> str:
        if not is_user(text):
            raise PydanticCustomError("line", "expected one line")
        return text

    @field_validator("tenant")
    @classmethod
    def _is_tenant(cls, text: str | None) -> str | None:
        if text is not None and not TENANT.fullmatch(text):
            raise PydanticCustomError("tenant", "expected up to 64 letters, digits and . _ : @ -")
        return text

    @field_validator("scopes")
    @classmethod
    def _are_scopes(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if not scopes or not set(scopes) <= set(SCOPES):
            raise PydanticCustomError("scope", "expected some of {known}", {"known": ", ".join(SCOPES)})
        return scopes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRoutes:
    keys: Keys
    clock: Callable[[], datetime]

    def router(self) -> APIRouter:
        router = Router(prefix="/api", tags=["operation"])
        router.get("/me", dependencies=[needs("read")])(self.get_me)
        router.get("/keys", dependencies=[needs("admin")], responses=errors(Invalid))(self.list_keys)
        router.post("/keys", dependencies=[needs("admin")], responses=errors(Invalid))(self.create_api_key)
        router.delete("/keys/{key_id}", dependencies=[needs("admin")], responses=errors(Invalid, NotFound))(
            self.revoke_api_key
        )
        return router

    async def get_me(self, caller: Caller) -> MeOut:
        """Who the caller is and what it may do."""
        return MeOut(
            tenant=caller.tenant, user=caller.user_id, key_id=caller.key_id, scopes=sorted(caller.scopes)
        )

    async def list_keys(
        self,
        caller: Caller,
        tenant: Annotated[
            str | None, Query(max_length=64, description="Another tenant, or * for all: with scope operator.")
        ] = None,
    ) -> KeysOut:
        """The keys of the caller's tenant, oldest first; a key of one user sees that user's."""
        if tenant not in (None, caller.tenant):
            caller.require("operator")
        owner = None if tenant == "*" else Owner(tenant=tenant or caller.tenant, user_id=caller.user_id)
        now = self.clock()
        return KeysOut(keys=[KeyOut.of(key, now=now) for key in await self.keys.find(owner)])

    async def create_api_key(self, caller: Caller, body: KeyIn) -> NewKeyOut:
        """Create a key. It has no scope that the caller lacks. The answer shows it once."""
        for scope in body.scopes:
            caller.require(scope)
        text, key = mint(
            name=body.name,
            owner=_owner_of(caller, body),
            scopes=frozenset(body.scopes),
            now=self.clock(),
            lifetime=None if body.expires_days is None else timedelta(days=body.expires_days),
        )
        await self.keys.add(key)
        return NewKeyOut.of(key, now=self.clock(), key=text)

    async def revoke_api_key(self, caller: Caller, key_id: KeyId) -> KeyOut:
        """Revoke a key for good. Running servers notice within two seconds."""
        owner = None if "operator" in caller.scopes else caller.itself
        now = self.clock()
        return KeyOut.of(await self.keys.revoke(key_id, now=now, owner=owner), now=now)


def keys_router(keys: Keys, *, clock: Callable[[], datetime]) -> APIRouter:
    return KeyRoutes(keys=keys, clock=clock).router()


def _owner_of(caller: Principal, body: KeyIn) -> Owner:
    tenant = body.tenant or caller.tenant
    if tenant != caller.tenant:
        caller.require("operator")
    if caller.user_id and body.user not in ("", caller.user_id):
        raise Invalid("a key of one user creates keys of that user", field="user")
    return Owner(tenant=tenant, user_id=caller.user_id or body.user)


def _state(key: ApiKey, now: datetime) -> KeyState:
    if key.revoked_at is not None:
        return "revoked"
    return "active" if key.is_valid(now=now) else "expired"
