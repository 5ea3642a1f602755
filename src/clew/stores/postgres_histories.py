"""Chat history appends on Postgres: seqs and rows in one statement, one round trip and one commit."""

from collections.abc import Sequence
from typing import Final

from clew.domain.items import to_path
from clew.ports.cipher import Cipher
from clew.ports.histories import HistoryId, NewMessage, Shape
from clew.stores.postgres import PostgresDatabase, beside_loop
from clew.stores.sql.histories import NEXT_SEQS, HistoryRows
from clew.stores.sql.private import sealed_row
from clew.stores.sql.work import Database, Value

# What `_add` in sql/histories.py does in two statements. A message that is stored already undoes both.
STATEMENT: Final = f"""
WITH history AS ({NEXT_SEQS}), message AS (
    SELECT * FROM unnest($8::text[], $9::text[], $10::text[]) WITH ORDINALITY AS m (role, content, id, number)
), added AS (
    INSERT INTO history_messages (history_id, seq, role, content, at, message_id, origin)
    SELECT h.id, h.last_seq - $6 + m.number, m.role, m.content, h.updated_at, m.id, $11
    FROM history AS h, message AS m
)
SELECT last_seq FROM history
"""  # noqa: S608 - put together of constants


class PostgresHistories(HistoryRows):
    """The Histories port on Postgres, where one round trip less counts."""

    def __init__(self, db: PostgresDatabase) -> None:
        super().__init__(db)
        self._server = db

    async def _append(
        self, place: HistoryId, messages: Sequence[NewMessage], shape: Shape, origin: str | None, user_id: str
    ) -> int:
        rows = await self._server.fetch(
            STATEMENT,
            place.tenant,
            to_path(place.path),
            shape.chunk_size,
            shape.value_field,
            shape.meta_key,
            len(messages),
            user_id,
            [message.role for message in messages],
            await beside_loop(self._db.cipher, _contents, messages, self._db.cipher),
            [message.id for message in messages],
            origin,
        )
        return int(rows[0][0])


def _contents(messages: Sequence[NewMessage], cipher: Cipher) -> list[Value]:
    return [
        sealed_row("history_messages", ("content",), (message.content,), cipher)[0] for message in messages
    ]


def open_histories(db: Database) -> HistoryRows:
    """The Histories port as it is best on this database."""
    return PostgresHistories(db) if isinstance(db, PostgresDatabase) else HistoryRows(db)
