-- Times are microseconds since the epoch, UTC. JSON is text, returned as it was stored.

-- The store of LangGraph. A path is the labels of a namespace, each followed by a period; it is
-- compared byte by byte, so that a range of texts is a range of namespaces in any locale.
CREATE TABLE store_items (
    tenant     TEXT NOT NULL,
    path       TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    value      TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    ttl        BIGINT,
    expires_at BIGINT,
    PRIMARY KEY (tenant, path, key)
);

CREATE INDEX store_items_by_expiry ON store_items (expires_at) WHERE expires_at IS NOT NULL;

-- One row a conversation. Its path ends in the conversation key.
CREATE TABLE histories (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      TEXT NOT NULL,
    path        TEXT COLLATE "C" NOT NULL,
    chunk_size  BIGINT NOT NULL CHECK (chunk_size > 0),
    value_field TEXT NOT NULL,
    meta_key    TEXT NOT NULL,
    last_seq    BIGINT NOT NULL,
    version     BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    UNIQUE (tenant, path)
);

-- The truth of a conversation.
CREATE TABLE history_messages (
    history_id BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    role       TEXT NOT NULL,
    content    TEXT NOT NULL,
    at         BIGINT NOT NULL,
    message_id TEXT,
    origin     TEXT,
    PRIMARY KEY (history_id, seq)
);

CREATE UNIQUE INDEX history_messages_by_id ON history_messages (history_id, message_id) WHERE message_id IS NOT NULL;
