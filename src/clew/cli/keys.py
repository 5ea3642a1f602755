"""`clew keys`: create, list and revoke API keys."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from clew.api.credentials import MAX_USER, SCOPES, TENANT, USUAL_SCOPES, is_user, mint
from clew.cli.opening import run, stores_of
from clew.cli.output import say, say_json, say_table
from clew.cli.terminal import confirm
from clew.domain.errors import Invalid
from clew.domain.records import ApiKey
from clew.domain.thread import Owner
from clew.ports.audit import AuditEntry
from clew.server.database import new_id, utc_now

_MAX_NAME = 100


def create(
    *,
    name: str,
    tenant: str,
    user: str,
    scopes: Sequence[str] | None,
    expires_days: int | None,
    config: Path | None,
    as_json: bool,
) -> None:
    scopes = scopes or USUAL_SCOPES
    _check(name, tenant, user, scopes)
    text, key = mint(
        name=name,
        owner=Owner(tenant=tenant, user_id=user),
        scopes=frozenset(scopes),
        now=utc_now(),
        lifetime=None if expires_days is None else timedelta(days=expires_days),
    )

    async def add() -> None:
        async with stores_of(config, create=True) as stores:
            await stores.keys.add(key)
            await stores.audit_trail.add([_entry("create_key", key.id, key.owner.tenant)])

    run(add())
    if as_json:
        say_json({"key": text, **_described(key, utc_now())})
        return
    say(text)
    say()
    say(f"This is {key.id} ({key.name}), and the only time it is shown.")
    say(f"It sees {_whose(key)} and may: {', '.join(sorted(key.scopes))}.")
    say("Send it as  Authorization: Bearer <key>  or  X-API-Key: <key>.")


def show_all(*, config: Path | None, as_json: bool) -> None:
    async def find() -> Sequence[ApiKey]:
        async with stores_of(config) as stores:
            return await stores.keys.find()

    found, now = run(find()), utc_now()
    if as_json:
        say_json([_described(key, now) for key in found])
    elif not found:
        say("No keys. Clew accepts requests from this machine only. Create one: clew keys create --name ...")
    else:
        say_table(
            ["id", "name", "tenant", "user", "scopes", "created", "expires", "state"],
            [_row(key, now) for key in found],
            whole=("id", "state"),
            short=("name", "tenant", "user"),
        )


def revoke(key_id: str, *, yes: bool, config: Path | None, as_json: bool) -> None:
    confirm(f"Revoke {key_id} for good?", yes=yes)

    async def strike() -> None:
        async with stores_of(config) as stores:
            await stores.keys.revoke(key_id, now=utc_now())
            tenants = {key.id: key.owner.tenant for key in await stores.keys.find()}
            await stores.audit_trail.add([_entry("revoke_key", key_id, tenants[key_id])])

    run(strike())
    if as_json:
        say_json({"id": key_id, "state": "revoked"})
    else:
        say(f"{key_id} is revoked. Running servers notice within two seconds.")


def _entry(action: str, key_id: str, tenant: str) -> AuditEntry:
    return AuditEntry(
        id=new_id(),
        at=utc_now(),
        tenant=tenant,
        user_id="",
        actor="cli",
        action=action,
        method="",
        path=key_id,
        thread_id="",
        status=0,
        request_id="",
    )


def _check(name: str, tenant: str, user: str, scopes: Sequence[str]) -> None:
    if not name or not name.isprintable() or len(name) > _MAX_NAME:
        raise Invalid(f"--name: expected one line of up to {_MAX_NAME} characters")
    if not TENANT.fullmatch(tenant):
        raise Invalid("--tenant: expected up to 64 letters, digits and . _ : @ -")
    if not is_user(user):
        raise Invalid(f"--user: expected one line of up to {MAX_USER} characters")
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise Invalid(f"--scope: no scope {unknown[0][:40]!r}; there are {', '.join(SCOPES)}")


def _described(key: ApiKey, now: datetime) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.owner.tenant,
        "user": key.owner.user_id,
        "scopes": sorted(key.scopes),
        "createdAt": key.created_at.isoformat(),
        "expiresAt": None if key.expires_at is None else key.expires_at.isoformat(),
        "state": _state(key, now),
    }


def _row(key: ApiKey, now: datetime) -> list[str]:
    return [
        key.id,
        key.name,
        key.owner.tenant,
        key.owner.user_id or "(all)",
        " ".join(sorted(key.scopes)),
        f"{key.created_at:%Y-%m-%d %H:%M}",
        "never" if key.expires_at is None else f"{key.expires_at:%Y-%m-%d %H:%M}",
        _state(key, now),
    ]


def _state(key: ApiKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "active" if key.is_valid(now=now) else "expired"


def _whose(key: ApiKey) -> str:
    whole = f"everything of the tenant {key.owner.tenant}"
    return f"what {key.owner.user_id} of the tenant {key.owner.tenant} owns" if key.owner.user_id else whole
