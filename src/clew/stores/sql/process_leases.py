"""Leases by process: which processes hold any, and their end when one died."""

from clew.stores.sql.work import Statement, Work

# Between the name of a process and what tells its leases of conversations apart.
SEPARATOR = "/"


def lease_owners(leased: str) -> Work[list[str]]:
    """Those that hold leases of threads (`leased` is the condition), conversations, run hooks or crons."""
    rows = yield Statement(
        f"SELECT lease_owner FROM threads WHERE {leased}"
        " UNION SELECT lease_owner FROM conversations WHERE lease_owner IS NOT NULL AND lease_until > clew_now()"
        " UNION SELECT claimed_by FROM run_hooks WHERE claimed_by IS NOT NULL"
        " UNION SELECT claimed_by FROM crons WHERE claimed_by IS NOT NULL"
    )
    return sorted({owner.partition(SEPARATOR)[0] for (owner,) in rows})


def end_other_leases(process: str) -> Work[int]:
    """All but those of threads; how many there were."""
    hooks = yield Statement(
        "UPDATE run_hooks SET due_at = clew_now(), claimed_by = NULL WHERE claimed_by = $1 RETURNING run_id",
        (process,),
    )
    crons = yield Statement(
        "UPDATE crons SET claimed_until = 0, claimed_by = NULL WHERE claimed_by = $1 RETURNING id",
        (process,),
    )
    conversations = yield Statement(
        "UPDATE conversations SET lease_owner = NULL, lease_until = NULL"
        f" WHERE lease_owner LIKE $1 || '{SEPARATOR}%' RETURNING key",
        (process,),
    )
    return len(hooks) + len(crons) + len(conversations)


def claimant(process: str | None, holder: str) -> str:
    return holder if process is None else f"{process}{SEPARATOR}{holder}"
