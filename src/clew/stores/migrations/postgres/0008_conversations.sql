-- One row a chat of a channel: the thread it is led in, what was said to it already, and who sees to it now.
-- A row without a thread is an account whose messages are fetched; its cursor is the provider's.
CREATE TABLE conversations (
    source      TEXT NOT NULL,
    key         TEXT NOT NULL,
    thread_id   TEXT,
    cursor      TEXT NOT NULL,
    wakes       BIGINT NOT NULL,
    seen_wakes  BIGINT NOT NULL,
    seen_seq    BIGINT NOT NULL,
    is_active   INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    due_at      BIGINT NOT NULL,
    lease_owner TEXT,
    lease_until BIGINT,
    PRIMARY KEY (source, key)
);

CREATE INDEX conversations_active ON conversations (due_at) WHERE is_active = 1;
CREATE INDEX conversations_by_thread ON conversations (thread_id) WHERE thread_id IS NOT NULL;

-- What waits in a conversation, in the order it was admitted in.
ALTER TABLE inbox ADD COLUMN conversation TEXT;
ALTER TABLE inbox ADD COLUMN number BIGINT;

CREATE INDEX inbox_by_conversation ON inbox (source, conversation, number) WHERE status = 'queued';
