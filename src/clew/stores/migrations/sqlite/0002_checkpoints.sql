-- LangGraph's checkpoints. Their order is `seq`, never a clock: ids made after the clock was set back sort wrongly.
CREATE TABLE checkpoints (
    seq       INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    ns        TEXT NOT NULL,
    id        TEXT NOT NULL,
    parent_id TEXT,
    run_id    TEXT,
    body      TEXT NOT NULL,
    metadata  TEXT NOT NULL,
    apart     TEXT NOT NULL,
    UNIQUE (thread_id, id, ns)
);

CREATE INDEX checkpoints_by_age ON checkpoints (thread_id, ns, seq);
CREATE INDEX checkpoints_by_run ON checkpoints (run_id) WHERE run_id IS NOT NULL;

-- A channel's value at a version: whole, or as what it gained over `base`. Rows are never updated.
CREATE TABLE checkpoint_blobs (
    thread_id TEXT NOT NULL,
    ns        TEXT NOT NULL,
    channel   TEXT NOT NULL,
    version   TEXT NOT NULL,
    base      TEXT,
    root      TEXT,
    splice    TEXT,
    kind      TEXT NOT NULL,
    data      BLOB NOT NULL,
    UNIQUE (thread_id, ns, channel, version)
);

-- What tasks wrote before the step that takes it over was stored: one row a task.
CREATE TABLE checkpoint_writes (
    thread_id     TEXT NOT NULL,
    ns            TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    task_id       TEXT NOT NULL,
    path          TEXT NOT NULL,
    entries       TEXT NOT NULL,
    data          BLOB NOT NULL,
    UNIQUE (thread_id, checkpoint_id, ns, task_id)
);
