-- Stream parts are read by run and over all runs of a thread; their numbers grow within the thread.
DROP TABLE chunks;

CREATE TABLE chunks (
    thread_id TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    number    BIGINT NOT NULL,
    name      TEXT NOT NULL,
    data      BYTEA NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (thread_id, number)
);

CREATE INDEX chunks_by_age ON chunks (at);
