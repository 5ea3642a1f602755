-- Stream parts are read by run and over all runs of a thread; their numbers grow within the thread.
DROP TABLE chunks;

CREATE TABLE chunks (
    thread_id TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    number    INTEGER NOT NULL,
    name      TEXT NOT NULL,
    data      BLOB NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (thread_id, number)
) WITHOUT ROWID;

CREATE INDEX chunks_by_age ON chunks (at);
