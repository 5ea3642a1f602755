"""What a killed process leaves behind: its connections to a server go on with what they were told last."""

import psycopg

from tests.processes import until

OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


def until_gone(where: str) -> None:
    """Nobody is connected any more. A commit that was on its way has come, and meets nobody who reads or writes."""
    if where.startswith("postgres"):
        with psycopg.connect(where, autocommit=True) as connection:
            until(lambda: connection.execute(OTHERS).fetchone() == (0,))
