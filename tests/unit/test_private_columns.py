"""Private columns: a statement whose private arguments cannot be found is refused, and not written as plain text."""

import pytest

from clew.stores.sql.private import private_arguments


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO events (thread_id, seq, content) VALUES ($1, $2, upper($3))",
        "INSERT INTO events (seq, content) VALUES ($1, $2)",
        "INSERT INTO events VALUES ($1, $2, $3)",
        "INSERT INTO events AS e (thread_id, seq, content) VALUES ($1, $2, $3)",
        "REPLACE INTO events (thread_id, seq, content) TABLE others",
        "MERGE INTO events USING others ON TRUE WHEN MATCHED THEN UPDATE SET content = $1",
        "WITH a AS (INSERT INTO events (thread_id, seq, content) VALUES ($1, $2, $3) RETURNING seq)"
        " INSERT INTO summaries (thread_id, to_seq, version, content) VALUES ($1, $2, $4, $5)",
        "WITH a AS (UPDATE threads SET name = $2 WHERE id = $1 RETURNING id)"
        " UPDATE files SET name = $3 WHERE id = $4",
        "UPDATE store_items SET value = value || $1 WHERE tenant = $2 AND path = $3 AND key = $4",
        "UPDATE threads SET name = $1 WHERE user_id = $2",
    ],
)
def test_what_cannot_be_encrypted_is_refused(sql: str) -> None:
    with pytest.raises(LookupError):
        private_arguments(sql)


def test_private_arguments_are_found_with_the_key_of_their_row() -> None:
    sql = "INSERT INTO events (thread_id, seq, round, content) VALUES ($1, $2, $3, $4)"
    assert private_arguments(sql) == ((3, "events.content", (0, 1)),)
    assert private_arguments("UPDATE threads SET round = $2 WHERE id = $1") == ()
    assert private_arguments("INSERT INTO duties (name) VALUES ($1)") == ()
