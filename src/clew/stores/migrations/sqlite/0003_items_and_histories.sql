-- Times are microseconds since the epoch, UTC. JSON is text, returned as it was stored.

-- The store of LangGraph. A path is the labels of a namespace, each followed by a period.
CREATE TABLE store_items (
    tenant     TEXT NOT NULL,
    path       TEXT NOT NULL,
    key        TEXT NOT NULL,
    value      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    ttl        INTEGER,
    expires_at INTEGER,
    PRIMARY KEY (tenant, path, key)
);

CREATE INDEX store_items_by_expiry ON store_items (expires_at) WHERE expires_at IS NOT NULL;

-- One row a conversation. Its path ends in the conversation key.
CREATE TABLE histories (
    id          INTEGER PRIMARY KEY,
    tenant      TEXT NOT NULL,
    path        TEXT NOT NULL,
    chunk_size  INTEGER NOT NULL CHECK (chunk_size > 0),
    value_field TEXT NOT NULL,
    meta_key    TEXT NOT NULL,
    last_seq    INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    UNIQUE (tenant, path)
);

-- The truth of a conversation. The rows of one lie together, so that its end is read in one piece.
CREATE TABLE history_messages (
    history_id INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    role       TEXT NOT NULL,
    content    TEXT NOT NULL,
    at         INTEGER NOT NULL,
    message_id TEXT,
    origin     TEXT,
    PRIMARY KEY (history_id, seq)
) WITHOUT ROWID;

CREATE UNIQUE INDEX history_messages_by_id ON history_messages (history_id, message_id) WHERE message_id IS NOT NULL;
