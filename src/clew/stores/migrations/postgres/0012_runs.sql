-- What a client calls a thread by: one row a value, with the names that lead to it, both as JSON.
CREATE TABLE labels (
    thread_id TEXT NOT NULL,
    path      TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (thread_id, path)
);

CREATE INDEX labels_by_value ON labels (path, substr(value, 1, 200));

-- What a run streamed, for those who come back to it.
CREATE TABLE chunks (
    thread_id TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    number    BIGINT NOT NULL,
    name      TEXT NOT NULL,
    data      BYTEA NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (thread_id, run_id, number)
);

CREATE INDEX chunks_by_age ON chunks (at);
