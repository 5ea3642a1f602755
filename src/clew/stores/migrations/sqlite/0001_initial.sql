-- The schema of Clew 0.1.0 on SQLite. Times are microseconds since the epoch, UTC. JSON is text, returned as stored.

---------------------------------------------------------------------------------------------------------------------
-- Threads and their log

-- One row per thread: a cache over its events for status reads, lists and claims.
CREATE TABLE threads (
    id               TEXT PRIMARY KEY,
    tenant           TEXT NOT NULL,
    user_id          TEXT NOT NULL,
    graph            TEXT NOT NULL,
    name             TEXT NOT NULL,
    status           TEXT NOT NULL,
    stage            TEXT NOT NULL,
    round            INTEGER NOT NULL,
    round_seq        INTEGER NOT NULL,
    settings         TEXT NOT NULL,
    fsm_state        TEXT NOT NULL,
    stats            TEXT NOT NULL,
    redacted         TEXT NOT NULL,
    last_seq         INTEGER NOT NULL,
    failure_reason   TEXT,
    ttl              INTEGER,
    created_at       INTEGER NOT NULL,
    round_started_at INTEGER,
    last_active_at   INTEGER NOT NULL,
    prune_after      INTEGER,
    priority         INTEGER,
    -- The columns below are written by the store; the log does not contain them.
    last_accessed_at INTEGER NOT NULL,
    expires_at       INTEGER,
    deleted_at       INTEGER,
    lease_owner      TEXT,
    lease_until      INTEGER,
    fence            INTEGER NOT NULL DEFAULT 0,
    recoveries       INTEGER NOT NULL DEFAULT 0,
    -- While it waits for a runner: its place in the order of claims, and since when it waits.
    rank             INTEGER NOT NULL DEFAULT 0,
    start_tag        INTEGER NOT NULL DEFAULT 0,
    queued_at        INTEGER,
    -- Checksum of the row. If it does not match, another program changed the row, and the log is read instead.
    seal             INTEGER
) WITHOUT ROWID;

CREATE INDEX threads_to_claim ON threads (lease_until) WHERE status = 'running' AND deleted_at IS NULL;
CREATE INDEX threads_to_claim_by_tenant ON threads (tenant, lease_until) WHERE status = 'running' AND deleted_at IS NULL;
CREATE INDEX threads_waiting ON threads (rank, start_tag, queued_at)
    WHERE status = 'running' AND deleted_at IS NULL AND lease_until IS NULL;
CREATE INDEX threads_waiting_by_tenant ON threads (tenant, rank, start_tag)
    WHERE status = 'running' AND deleted_at IS NULL AND lease_until IS NULL;
CREATE INDEX threads_blocked ON threads (id) WHERE status = 'blocked' AND deleted_at IS NULL;
CREATE INDEX threads_by_creation ON threads (tenant, created_at, id);
CREATE INDEX threads_by_expiry ON threads (expires_at);
CREATE INDEX threads_to_prune ON threads ((last_accessed_at + prune_after), id) WHERE prune_after IS NOT NULL;
CREATE INDEX threads_by_access ON threads (last_accessed_at);
CREATE INDEX threads_deleted ON threads (deleted_at) WHERE deleted_at IS NOT NULL;

-- Start-time fair queueing: the start tag of the last claim of each tenant at each priority, while threads wait.
CREATE TABLE turns (
    priority INTEGER NOT NULL,
    tenant   TEXT NOT NULL,
    tag      INTEGER NOT NULL,
    PRIMARY KEY (priority, tenant)
) WITHOUT ROWID;

CREATE INDEX turns_by_tag ON turns (priority, tag);

-- The event log, the source of truth. Rows are inserted, and deleted with their thread; never updated.
CREATE TABLE events (
    thread_id TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    id        TEXT NOT NULL,
    round     INTEGER NOT NULL,
    type      TEXT NOT NULL,
    version   INTEGER NOT NULL,
    content   TEXT NOT NULL,
    at        INTEGER NOT NULL,
    UNIQUE (thread_id, seq)
);

-- Clients that poll pass the id of the last record they read.
CREATE UNIQUE INDEX events_by_id ON events (id) WHERE type IN ('user_msg', 'assistant_msg', 'log');

-- Tool calls and questions to people, derived from the log. Only `started_at` is not in the log: it is written before a
-- tool runs, so that a call that may have had its effect is known after a crash.
CREATE TABLE tool_calls (
    thread_id    TEXT NOT NULL,
    tool_call_id TEXT NOT NULL,
    round        INTEGER NOT NULL,
    executor     TEXT NOT NULL,
    kind         TEXT NOT NULL,
    name         TEXT NOT NULL,
    status       TEXT NOT NULL,
    idempotent   INTEGER NOT NULL,
    prompt       TEXT NOT NULL,
    args         TEXT NOT NULL,
    result       TEXT,
    deadline     INTEGER,
    created_at   INTEGER NOT NULL,
    started_at   INTEGER,
    resolved_at  INTEGER,
    PRIMARY KEY (thread_id, tool_call_id)
) WITHOUT ROWID;

CREATE INDEX tool_calls_due ON tool_calls (deadline) WHERE status = 'pending' AND deadline IS NOT NULL;

-- Thread metadata set by clients: one row per value. `path` (the keys that lead to it) and `value` are JSON.
CREATE TABLE labels (
    thread_id TEXT NOT NULL,
    path      TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (thread_id, path)
) WITHOUT ROWID;

CREATE INDEX labels_by_value ON labels (path, substr(value, 1, 200));

-- The thread that reserved a key last, such as a worktree: it holds the key while it is active.
CREATE TABLE reservations (
    kind      TEXT NOT NULL,
    key       TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;

CREATE INDEX reservations_by_thread ON reservations (thread_id);

---------------------------------------------------------------------------------------------------------------------
-- LangGraph: checkpoints, store

-- Checkpoints are ordered by `seq`, never by a clock: ids made after the clock was set back sort wrongly.
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

-- A channel's value at a version: whole, or as a delta over `base`. Rows are never updated.
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

-- Pending writes of tasks, kept until the step that applies them is stored: one row per task.
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

-- The LangGraph store. A path is the labels of a namespace, each followed by a period.
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

-- Embeddings of store items: one row per indexed text, as 32-bit floats. Triggers keep them in step with their items,
-- whatever writes those.
CREATE TABLE store_vectors (
    tenant TEXT NOT NULL,
    path   TEXT NOT NULL,
    key    TEXT NOT NULL,
    number INTEGER NOT NULL,
    dims   INTEGER NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (tenant, path, key, number)
);

CREATE TRIGGER store_items_deleted AFTER DELETE ON store_items BEGIN
    DELETE FROM store_vectors WHERE tenant = old.tenant AND path = old.path AND key = old.key;
END;

CREATE TRIGGER store_items_replaced AFTER UPDATE OF value ON store_items BEGIN
    DELETE FROM store_vectors WHERE tenant = old.tenant AND path = old.path AND key = old.key;
END;

---------------------------------------------------------------------------------------------------------------------
-- Chat histories

-- One row per conversation; its path ends in the conversation key. `thread_id` is set for the history of a single
-- thread, deleted with it; `user_id` for a history begun by a run of a user.
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
    thread_id   TEXT,
    user_id     TEXT NOT NULL DEFAULT '',
    UNIQUE (tenant, path)
);

CREATE INDEX histories_by_thread ON histories (thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX histories_by_user ON histories (tenant, user_id) WHERE user_id <> '';

-- Without a rowid, the rows of a conversation lie together, and its last messages are read in one piece.
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

---------------------------------------------------------------------------------------------------------------------
-- Model calls and summaries

-- Requests to the model, for audits. Off by default.
CREATE TABLE model_calls (
    id               TEXT PRIMARY KEY,
    thread_id        TEXT NOT NULL,
    turn_ref         INTEGER NOT NULL,
    status           TEXT NOT NULL,
    model            TEXT NOT NULL,
    rendered_context TEXT NOT NULL,
    usage            TEXT NOT NULL,
    latency_ms       INTEGER NOT NULL,
    summary_version  TEXT,
    evictions        TEXT NOT NULL,
    created_at       INTEGER NOT NULL
);

CREATE INDEX model_calls_by_thread ON model_calls (thread_id, turn_ref);
CREATE INDEX model_calls_by_age ON model_calls (created_at);

-- Summaries of a range of a thread's events.
CREATE TABLE summaries (
    thread_id  TEXT NOT NULL,
    from_seq   INTEGER NOT NULL,
    to_seq     INTEGER NOT NULL CHECK (to_seq >= from_seq),
    version    TEXT NOT NULL,
    content    TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (thread_id, to_seq, version)
) WITHOUT ROWID;

-- The words of messages, and of a thread's name as event ''. Derived from the log, and found by full-text search.
CREATE TABLE message_words (
    word_row  INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    event_id  TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    words     TEXT NOT NULL,
    UNIQUE (thread_id, event_id)
);
CREATE VIRTUAL TABLE message_index USING fts5(words, content='message_words', content_rowid='word_row');
CREATE TRIGGER message_words_added AFTER INSERT ON message_words BEGIN
    INSERT INTO message_index (rowid, words) VALUES (new.word_row, new.words);
END;
CREATE TRIGGER message_words_removed AFTER DELETE ON message_words BEGIN
    INSERT INTO message_index (message_index, rowid, words) VALUES ('delete', old.word_row, old.words);
END;

-- How far the words of a log are indexed.
CREATE TABLE search_positions (
    thread_id TEXT PRIMARY KEY,
    seq       INTEGER NOT NULL
) WITHOUT ROWID;

---------------------------------------------------------------------------------------------------------------------
-- Files and documents

-- The bytes of files, addressed by content, in parts of bounded size.
CREATE TABLE blobs (
    sha256   TEXT NOT NULL,
    part     INTEGER NOT NULL,
    data     BLOB NOT NULL,
    added_at INTEGER NOT NULL,
    PRIMARY KEY (sha256, part)
);

-- Uploaded files.
CREATE TABLE files (
    id         TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    name       TEXT NOT NULL,
    mime       TEXT NOT NULL,
    size       INTEGER NOT NULL,
    sha256     TEXT NOT NULL,
    created_at INTEGER NOT NULL
);

CREATE INDEX files_by_owner ON files (tenant, user_id, created_at);
CREATE INDEX files_by_blob ON files (sha256);

-- A file as part of a thread.
CREATE TABLE documents (
    id         TEXT PRIMARY KEY,
    thread_id  TEXT NOT NULL,
    file_id    TEXT NOT NULL,
    name       TEXT NOT NULL,
    ext        TEXT NOT NULL,
    mime       TEXT NOT NULL,
    size       INTEGER NOT NULL,
    sha256     TEXT NOT NULL,
    created_at INTEGER NOT NULL
);

CREATE INDEX documents_by_thread ON documents (thread_id);
CREATE INDEX documents_by_blob ON documents (sha256);

-- The extracted content items of a document.
CREATE TABLE contents (
    document_id  TEXT NOT NULL,
    sequence_nr  INTEGER NOT NULL,
    thread_id    TEXT NOT NULL,
    name         TEXT NOT NULL,
    ext          TEXT NOT NULL,
    content_type TEXT NOT NULL,
    data         TEXT NOT NULL,
    metadata     TEXT NOT NULL,
    summary      TEXT NOT NULL,
    PRIMARY KEY (document_id, sequence_nr)
);

CREATE INDEX contents_by_thread ON contents (thread_id);

---------------------------------------------------------------------------------------------------------------------
-- Assistants, runs, crons

-- Assistants made by clients, and the current version of each. Ids are unique within a tenant.
CREATE TABLE assistants (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- Every version of every assistant.
CREATE TABLE assistant_versions (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    version     INTEGER NOT NULL,
    graph       TEXT NOT NULL,
    name        TEXT NOT NULL,
    description TEXT,
    config      TEXT NOT NULL,
    context     TEXT NOT NULL,
    metadata    TEXT NOT NULL,
    made_at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, id, version)
);

-- Stream parts, for clients that join a run or a thread, or reconnect. Their numbers grow within the thread.
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

-- Processes with clients that read the stream parts of a thread: where it runs, its parts are kept for them.
CREATE TABLE stream_readers (
    thread_id TEXT NOT NULL,
    process   TEXT NOT NULL,
    until_at  INTEGER NOT NULL,
    PRIMARY KEY (thread_id, process)
) WITHOUT ROWID;

-- Run hooks: after a run has ended, call its webhook and delete its temporary thread. Written with the run.
CREATE TABLE run_hooks (
    run_id       TEXT NOT NULL PRIMARY KEY,
    thread_id    TEXT NOT NULL,
    webhook      TEXT NOT NULL,
    is_temporary INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    claimed_by   TEXT,
    -- When its webhook was given up, and why. It is never due again, unless a person asks for it.
    failed_at    INTEGER,
    reason       TEXT
) WITHOUT ROWID;

CREATE INDEX run_hooks_due ON run_hooks (due_at);
CREATE INDEX run_hooks_by_thread ON run_hooks (thread_id);
CREATE INDEX run_hooks_failed ON run_hooks (failed_at) WHERE failed_at IS NOT NULL;
-- A process works on it; after the death of that process it is due.
CREATE INDEX run_hooks_claimed ON run_hooks (claimed_by) WHERE claimed_by IS NOT NULL;

-- Scheduled runs. `next_at` is NULL for a cron that is never due again.
CREATE TABLE crons (
    id            TEXT NOT NULL PRIMARY KEY,
    tenant        TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    thread_id     TEXT,
    schedule      TEXT NOT NULL,
    timezone      TEXT,
    end_at        INTEGER,
    is_enabled    INTEGER NOT NULL,
    keeps         INTEGER NOT NULL,
    spec          TEXT NOT NULL,
    input         TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    next_at       INTEGER,
    counted_at    INTEGER NOT NULL,
    claimed_until INTEGER NOT NULL DEFAULT 0,
    claimed_by    TEXT
) WITHOUT ROWID;

CREATE INDEX crons_by_owner ON crons (tenant, user_id);
CREATE INDEX crons_by_thread ON crons (thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX crons_claimed ON crons (claimed_by) WHERE claimed_by IS NOT NULL;
CREATE INDEX crons_due ON crons (next_at) WHERE is_enabled = 1;
-- After the clock was set back, `next_at` of crons computed by the wrong clock is computed again.
CREATE INDEX crons_counted ON crons (counted_at) WHERE is_enabled = 1;

---------------------------------------------------------------------------------------------------------------------
-- Channels

-- Messages received from channels, each admitted once. `number` is their order within a conversation.
CREATE TABLE inbox (
    source       TEXT NOT NULL,
    source_id    TEXT NOT NULL,
    fingerprint  TEXT NOT NULL,
    thread_id    TEXT,
    payload      TEXT NOT NULL,
    status       TEXT NOT NULL,
    admitted_at  INTEGER NOT NULL,
    done_at      INTEGER,
    conversation TEXT,
    number       INTEGER,
    PRIMARY KEY (source, source_id)
) WITHOUT ROWID;

CREATE INDEX inbox_queued ON inbox (admitted_at) WHERE status = 'queued';
CREATE INDEX inbox_by_conversation ON inbox (source, conversation, number) WHERE status = 'queued';
CREATE INDEX inbox_by_thread ON inbox (thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX inbox_by_age ON inbox (done_at) WHERE status = 'done';

-- One row per chat: its thread, the last event sent to it, and the lease of the worker that serves it.
-- A row without a thread is an account that is polled for messages; its cursor is the provider's.
CREATE TABLE conversations (
    source      TEXT NOT NULL,
    key         TEXT NOT NULL,
    thread_id   TEXT,
    cursor      TEXT NOT NULL,
    wakes       INTEGER NOT NULL,
    seen_wakes  INTEGER NOT NULL,
    seen_seq    INTEGER NOT NULL,
    is_active   INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    lease_owner TEXT,
    lease_until INTEGER,
    PRIMARY KEY (source, key)
) WITHOUT ROWID;

CREATE INDEX conversations_leased ON conversations (lease_owner) WHERE lease_owner IS NOT NULL;
CREATE INDEX conversations_active ON conversations (due_at) WHERE is_active = 1;
CREATE INDEX conversations_by_thread ON conversations (thread_id) WHERE thread_id IS NOT NULL;

---------------------------------------------------------------------------------------------------------------------
-- Access

CREATE TABLE api_keys (
    id         TEXT PRIMARY KEY,
    hash       TEXT NOT NULL UNIQUE,
    prefix     TEXT NOT NULL,
    name       TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
);

-- The audit trail: which caller did what, and when.
CREATE TABLE audit (
    id         TEXT PRIMARY KEY,
    at         INTEGER NOT NULL,
    tenant     TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL,
    method     TEXT NOT NULL,
    path       TEXT NOT NULL,
    thread_id  TEXT NOT NULL,
    status     INTEGER NOT NULL,
    request_id TEXT NOT NULL
);

CREATE INDEX audit_by_tenant ON audit (tenant, id);
CREATE INDEX audit_by_time ON audit (at);

-- The keys that values are encrypted with, by their ids, each with a text that only this key decrypts. A key named
-- `none` stands for values from before the first key.
CREATE TABLE encryption_keys (
    id          TEXT PRIMARY KEY,
    check_value TEXT NOT NULL,
    added_at    INTEGER NOT NULL
);

-- Responses to requests with an idempotency key, returned again when the request is repeated.
CREATE TABLE idempotency (
    tenant      TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    thread_id   TEXT NOT NULL,
    response    TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

CREATE INDEX idempotency_by_age ON idempotency (created_at);
CREATE INDEX idempotency_by_thread ON idempotency (thread_id);

-- Signatures already used, kept for their validity window.
CREATE TABLE used_signatures (
    signature TEXT PRIMARY KEY,
    used_at   INTEGER NOT NULL
) WITHOUT ROWID;

-- Integer ids for clients that need them: of tenants, of users in a tenant, of files in a tenant. Never given twice.
CREATE TABLE numbers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    kind   TEXT NOT NULL,
    tenant TEXT NOT NULL,
    name   TEXT NOT NULL,
    UNIQUE (kind, tenant, name)
);

---------------------------------------------------------------------------------------------------------------------
-- Retention and cluster state

-- Threads for external cleanup jobs, served by threads_by_expiry and threads_by_access. `metadata` is NULL where the
-- settings are not valid JSON: one damaged value would make `metadata ->> 'x'` fail for every row.
CREATE VIEW thread_metadata AS
SELECT
    id AS thread_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', last_accessed_at / 1000000.0, 'unixepoch') AS last_accessed_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000000.0, 'unixepoch') AS expires_at,
    NULLIF(user_id, '') AS user_id,
    CASE
        WHEN deleted_at IS NOT NULL THEN 'expired'
        WHEN status <> 'running' AND expires_at <= (julianday('now') - 2440587.5) * 86400000000.0 THEN 'expired'
        WHEN status = 'completed' THEN 'completed'
        ELSE 'active'
    END AS status,
    stage AS workflow_step,
    -- What clients set as metadata, put together from its values. Left out is one that is damaged, or whose name has a
    -- character that JSON escapes: SQLite has no path for it.
    (
        WITH RECURSIVE
            leaf (n, place, value) AS (
                SELECT
                    row_number() OVER (ORDER BY path),
                    (SELECT '$' || group_concat('.' || json_quote(step.value), '') FROM json_each(labels.path) AS step),
                    value
                FROM labels
                WHERE thread_id = threads.id AND json_valid(value)
                    AND CASE WHEN json_valid(path) THEN json_type(path) = 'array' AND NOT EXISTS (
                        SELECT 1 FROM json_each(labels.path) AS step WHERE instr(json_quote(step.value), '\') > 0
                    ) END
            ),
            whole (n, object) AS (
                SELECT 0, '{}'
                UNION ALL
                SELECT leaf.n, json_set(whole.object, leaf.place, json(leaf.value))
                FROM whole JOIN leaf ON leaf.n = whole.n + 1
            )
        SELECT object FROM whole ORDER BY n DESC LIMIT 1
    ) AS metadata
FROM threads;

-- Cleanups. One that is not finished is continued in the background, after the last thread it checked.
CREATE TABLE cleanups (
    id          TEXT PRIMARY KEY,
    selection   TEXT NOT NULL,
    deleted     INTEGER NOT NULL,
    failed      INTEGER NOT NULL,
    after_age   INTEGER,
    after_id    TEXT,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER
);

CREATE INDEX cleanups_unfinished ON cleanups (started_at) WHERE finished_at IS NULL;

-- Ids of deleted threads. Writes under these ids are refused until the tombstone is old enough to be removed.
CREATE TABLE tombstones (
    thread_id  TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    deleted_at INTEGER NOT NULL,
    purged_at  INTEGER
) WITHOUT ROWID;

CREATE INDEX tombstones_to_purge ON tombstones (deleted_at) WHERE purged_at IS NULL;
CREATE INDEX tombstones_by_age ON tombstones (purged_at) WHERE purged_at IS NOT NULL;

-- Periodic jobs that one process does for the cluster: the lease on each, and when it was last done.
CREATE TABLE duties (
    name        TEXT PRIMARY KEY,
    owner       TEXT,
    lease_until INTEGER,
    last_at     INTEGER,
    jumped_at   INTEGER
) WITHOUT ROWID;

-- The processes that serve this database, each with its last sign of life. For operators: nothing is decided by it.
CREATE TABLE processes (
    name       TEXT PRIMARY KEY,
    host       TEXT NOT NULL,
    version    TEXT NOT NULL,
    role       TEXT NOT NULL,
    slots      INTEGER NOT NULL,
    graphs     TEXT NOT NULL,
    key_id     TEXT NOT NULL, -- what it encrypts with
    started_at INTEGER NOT NULL,
    beat_at    INTEGER NOT NULL
) WITHOUT ROWID;

-- Tokens that models read and wrote: one row per owner, graph, model and day (counted from the epoch, UTC). It names no
-- thread, so that a sum outlives the threads it is made of.
CREATE TABLE token_usage (
    tenant     TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    graph      TEXT NOT NULL,
    model      TEXT NOT NULL,
    day        INTEGER NOT NULL,
    tokens_in  INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    PRIMARY KEY (tenant, user_id, graph, model, day)
) WITHOUT ROWID;

CREATE INDEX token_usage_by_graph ON token_usage (graph, day);
CREATE INDEX token_usage_by_tenant ON token_usage (tenant, day);
