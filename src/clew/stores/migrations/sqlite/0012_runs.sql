-- What a client calls a thread by: one row a name, the value as JSON.
CREATE TABLE labels (
    thread_id TEXT NOT NULL,
    name      TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (thread_id, name)
) WITHOUT ROWID;

CREATE INDEX labels_by_value ON labels (name, value);

-- What a run streamed, for those who come back to it.
CREATE TABLE chunks (
    thread_id TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    number    INTEGER NOT NULL,
    name      TEXT NOT NULL,
    data      BLOB NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (thread_id, run_id, number)
) WITHOUT ROWID;

CREATE INDEX chunks_by_age ON chunks (at);
