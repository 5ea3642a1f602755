-- The schema of Clew 0.1.0 on Postgres. Times are microseconds since the epoch, UTC. JSON is text, returned as stored.

-- The database's own clock, the only one by which leases are measured.
CREATE FUNCTION clew_now() RETURNS BIGINT LANGUAGE SQL VOLATILE
    RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT;

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
    round            BIGINT NOT NULL,
    round_seq        BIGINT NOT NULL,
    settings         TEXT NOT NULL,
    fsm_state        TEXT NOT NULL,
    stats            TEXT NOT NULL,
    redacted         TEXT NOT NULL,
    last_seq         BIGINT NOT NULL,
    failure_reason   TEXT,
    ttl              BIGINT,
    created_at       BIGINT NOT NULL,
    round_started_at BIGINT,
    last_active_at   BIGINT NOT NULL,
    prune_after      BIGINT,
    priority         BIGINT,
    -- The columns below are written by the store; the log does not contain them.
    last_accessed_at BIGINT NOT NULL,
    expires_at       BIGINT,
    deleted_at       BIGINT,
    lease_owner      TEXT,
    lease_until      BIGINT,
    fence            BIGINT NOT NULL DEFAULT 0,
    recoveries       BIGINT NOT NULL DEFAULT 0,
    -- While it waits for a runner: its place in the order of claims, and since when it waits.
    rank             BIGINT NOT NULL DEFAULT 0,
    start_tag        BIGINT NOT NULL DEFAULT 0,
    queued_at        BIGINT,
    -- Checksum of the row. If it does not match, another program changed the row, and the log is read instead.
    seal             BIGINT
);

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
    priority BIGINT NOT NULL,
    tenant   TEXT NOT NULL,
    tag      BIGINT NOT NULL,
    PRIMARY KEY (priority, tenant)
);

CREATE INDEX turns_by_tag ON turns (priority, tag);

-- The event log, the source of truth. Rows are inserted, and deleted with their thread; never updated.
CREATE TABLE events (
    thread_id TEXT NOT NULL,
    seq       BIGINT NOT NULL,
    id        TEXT NOT NULL,
    round     BIGINT NOT NULL,
    type      TEXT NOT NULL,
    version   BIGINT NOT NULL,
    content   TEXT NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (thread_id, seq)
);

-- Clients that poll pass the id of the last record they read.
CREATE UNIQUE INDEX events_by_id ON events (id) WHERE type IN ('user_msg', 'assistant_msg', 'log');

-- Tool calls and questions to people, derived from the log. Only `started_at` is not in the log: it is written before a
-- tool runs, so that a call that may have had its effect is known after a crash.
CREATE TABLE tool_calls (
    thread_id    TEXT NOT NULL,
    tool_call_id TEXT NOT NULL,
    round        BIGINT NOT NULL,
    executor     TEXT NOT NULL,
    kind         TEXT NOT NULL,
    name         TEXT NOT NULL,
    status       TEXT NOT NULL,
    idempotent   BIGINT NOT NULL,
    prompt       TEXT NOT NULL,
    args         TEXT NOT NULL,
    result       TEXT,
    deadline     BIGINT,
    created_at   BIGINT NOT NULL,
    started_at   BIGINT,
    resolved_at  BIGINT,
    PRIMARY KEY (thread_id, tool_call_id)
);

CREATE INDEX tool_calls_due ON tool_calls (deadline) WHERE status = 'pending' AND deadline IS NOT NULL;

-- Thread metadata set by clients: one row per value. `path` (the keys that lead to it) and `value` are JSON.
CREATE TABLE labels (
    thread_id TEXT NOT NULL,
    path      TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (thread_id, path)
);

CREATE INDEX labels_by_value ON labels (path, substr(value, 1, 200));

-- The thread that reserved a key last, such as a worktree: it holds the key while it is active.
CREATE TABLE reservations (
    kind      TEXT NOT NULL,
    key       TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    PRIMARY KEY (kind, key)
);

CREATE INDEX reservations_by_thread ON reservations (thread_id);

---------------------------------------------------------------------------------------------------------------------
-- LangGraph: checkpoints, store

-- Checkpoints are ordered by `seq`, never by a clock: ids made after the clock was set back sort wrongly.
CREATE TABLE checkpoints (
    seq       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread_id TEXT NOT NULL,
    ns        TEXT NOT NULL,
    id        TEXT COLLATE "C" NOT NULL,
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
-- Versions are read as ranges, so they compare byte by byte in any locale.
CREATE TABLE checkpoint_blobs (
    thread_id TEXT NOT NULL,
    ns        TEXT NOT NULL,
    channel   TEXT NOT NULL,
    version   TEXT COLLATE "C" NOT NULL,
    base      TEXT,
    root      TEXT COLLATE "C",
    splice    TEXT,
    kind      TEXT NOT NULL,
    data      BYTEA NOT NULL,
    PRIMARY KEY (thread_id, ns, channel, version)
);

-- Pending writes of tasks, kept until the step that applies them is stored: one row per task.
CREATE TABLE checkpoint_writes (
    thread_id     TEXT NOT NULL,
    ns            TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    task_id       TEXT NOT NULL,
    path          TEXT NOT NULL,
    entries       TEXT NOT NULL,
    data          BYTEA NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_id, ns, task_id)
);

-- The LangGraph store. A path is the labels of a namespace, each followed by a period. It compares byte by byte, so
-- that a range of texts is a range of namespaces in any locale.
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

-- Embeddings of store items: one row per indexed text. A search reads them as vectors of the extension pgvector, which
-- the table itself does not need. A trigger keeps them in step with their items, whatever writes those.
CREATE TABLE store_vectors (
    tenant TEXT NOT NULL,
    path   TEXT COLLATE "C" NOT NULL,
    key    TEXT COLLATE "C" NOT NULL,
    number INTEGER NOT NULL,
    dims   INTEGER NOT NULL,
    vector REAL[] NOT NULL,
    PRIMARY KEY (tenant, path, key, number)
);

CREATE FUNCTION clew_delete_vectors() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM store_vectors WHERE tenant = old.tenant AND path = old.path AND key = old.key;
    RETURN NULL;
END
$$;

CREATE TRIGGER store_items_changed AFTER DELETE OR UPDATE OF value ON store_items
    FOR EACH ROW EXECUTE FUNCTION clew_delete_vectors();

---------------------------------------------------------------------------------------------------------------------
-- Chat histories

-- One row per conversation; its path ends in the conversation key. `thread_id` is set for the history of a single
-- thread, deleted with it; `user_id` for a history begun by a run of a user.
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
    thread_id   TEXT,
    user_id     TEXT NOT NULL DEFAULT '',
    UNIQUE (tenant, path)
);

CREATE INDEX histories_by_thread ON histories (thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX histories_by_user ON histories (tenant, user_id) WHERE user_id <> '';

-- The messages of a conversation.
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

---------------------------------------------------------------------------------------------------------------------
-- Model calls and summaries

-- Requests to the model, for audits. Off by default.
CREATE TABLE model_calls (
    id               TEXT PRIMARY KEY,
    thread_id        TEXT NOT NULL,
    turn_ref         BIGINT NOT NULL,
    status           TEXT NOT NULL,
    model            TEXT NOT NULL,
    rendered_context TEXT NOT NULL,
    usage            TEXT NOT NULL,
    latency_ms       BIGINT NOT NULL,
    summary_version  TEXT,
    evictions        TEXT NOT NULL,
    created_at       BIGINT NOT NULL
);

CREATE INDEX model_calls_by_thread ON model_calls (thread_id, turn_ref);
CREATE INDEX model_calls_by_age ON model_calls (created_at);

-- Summaries of a range of a thread's events.
CREATE TABLE summaries (
    thread_id  TEXT NOT NULL,
    from_seq   BIGINT NOT NULL,
    to_seq     BIGINT NOT NULL CHECK (to_seq >= from_seq),
    version    TEXT NOT NULL,
    content    TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (thread_id, to_seq, version)
);

-- The words of messages, and of a thread's name as event ''. Derived from the log, and found by full-text search.
CREATE TABLE message_words (
    thread_id TEXT NOT NULL,
    event_id  TEXT NOT NULL,
    seq       BIGINT NOT NULL,
    words     TSVECTOR NOT NULL,
    PRIMARY KEY (thread_id, event_id)
);
CREATE INDEX message_words_by_word ON message_words USING gin (words);

-- How far the words of a log are indexed.
CREATE TABLE search_positions (
    thread_id TEXT PRIMARY KEY,
    seq       BIGINT NOT NULL
);

---------------------------------------------------------------------------------------------------------------------
-- Files and documents

-- The bytes of files, addressed by content, in parts of bounded size.
CREATE TABLE blobs (
    sha256   TEXT NOT NULL,
    part     BIGINT NOT NULL,
    data     BYTEA NOT NULL,
    added_at BIGINT NOT NULL,
    PRIMARY KEY (sha256, part)
);

-- Uploaded files.
CREATE TABLE files (
    id         TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    name       TEXT NOT NULL,
    mime       TEXT NOT NULL,
    size       BIGINT NOT NULL,
    sha256     TEXT NOT NULL,
    created_at BIGINT NOT NULL
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
    size       BIGINT NOT NULL,
    sha256     TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE INDEX documents_by_thread ON documents (thread_id);
CREATE INDEX documents_by_blob ON documents (sha256);

-- The extracted content items of a document.
CREATE TABLE contents (
    document_id  TEXT NOT NULL,
    sequence_nr  BIGINT NOT NULL,
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
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
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
    made_at     BIGINT NOT NULL,
    PRIMARY KEY (tenant, id, version)
);

-- Stream parts, for clients that join a run or a thread, or reconnect. Their numbers grow within the thread.
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

-- Processes with clients that read the stream parts of a thread: where it runs, its parts are kept for them.
CREATE TABLE stream_readers (
    thread_id TEXT NOT NULL,
    process   TEXT NOT NULL,
    until_at  BIGINT NOT NULL,
    PRIMARY KEY (thread_id, process)
);

-- Run hooks: after a run has ended, call its webhook and delete its temporary thread. Written with the run.
CREATE TABLE run_hooks (
    run_id       TEXT NOT NULL PRIMARY KEY,
    thread_id    TEXT NOT NULL,
    webhook      TEXT NOT NULL,
    is_temporary INTEGER NOT NULL,
    due_at       BIGINT NOT NULL,
    attempts     INTEGER NOT NULL,
    claimed_by   TEXT,
    -- When its webhook was given up, and why. It is never due again, unless a person asks for it.
    failed_at    BIGINT,
    reason       TEXT
);

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
    end_at        BIGINT,
    is_enabled    INTEGER NOT NULL,
    keeps         INTEGER NOT NULL,
    spec          TEXT NOT NULL,
    input         TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    next_at       BIGINT,
    counted_at    BIGINT NOT NULL,
    claimed_until BIGINT NOT NULL DEFAULT 0,
    claimed_by    TEXT
);

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
    admitted_at  BIGINT NOT NULL,
    done_at      BIGINT,
    conversation TEXT,
    number       BIGINT,
    PRIMARY KEY (source, source_id)
);

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
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);

-- The audit trail: which caller did what, and when.
CREATE TABLE audit (
    id         TEXT COLLATE "C" PRIMARY KEY,
    at         BIGINT NOT NULL,
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
    added_at    BIGINT NOT NULL
);

-- Responses to requests with an idempotency key, returned again when the request is repeated.
CREATE TABLE idempotency (
    tenant      TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    thread_id   TEXT NOT NULL,
    response    TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (tenant, key)
);

CREATE INDEX idempotency_by_age ON idempotency (created_at);
CREATE INDEX idempotency_by_thread ON idempotency (thread_id);

-- Signatures already used, kept for their validity window.
CREATE TABLE used_signatures (
    signature TEXT PRIMARY KEY,
    used_at   BIGINT NOT NULL
);

-- Integer ids for clients that need them: of tenants, of users in a tenant, of files in a tenant. Never given twice.
CREATE TABLE numbers (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind   TEXT NOT NULL,
    tenant TEXT NOT NULL,
    name   TEXT NOT NULL,
    UNIQUE (kind, tenant, name)
);

---------------------------------------------------------------------------------------------------------------------
-- Retention and cluster state

-- What clients set as metadata, put together from its values. One that is damaged is left out: it would make every row of
-- the view unreadable.
CREATE FUNCTION clew_metadata(thread TEXT) RETURNS JSONB LANGUAGE plpgsql STABLE AS $$
DECLARE
    leaf RECORD;
    place TEXT[];
    whole JSONB := '{}';
BEGIN
    FOR leaf IN SELECT path, value FROM labels WHERE thread_id = thread ORDER BY path LOOP
        BEGIN
            place := ARRAY(SELECT jsonb_array_elements_text(leaf.path::JSONB));
            FOR depth IN 1 .. cardinality(place) - 1 LOOP
                IF jsonb_typeof(whole #> place[:depth]) IS DISTINCT FROM 'object' THEN
                    whole := jsonb_set(whole, place[:depth], '{}');
                END IF;
            END LOOP;
            whole := jsonb_set(whole, place, leaf.value::JSONB);
        EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
            CONTINUE;
        END;
    END LOOP;
    RETURN whole;
END
$$;

-- Threads for external cleanup jobs, served by threads_by_expiry and threads_by_access.
CREATE VIEW thread_metadata AS
SELECT
    id AS thread_id,
    TIMESTAMPTZ 'epoch' + created_at * INTERVAL '1 microsecond' AS created_at,
    TIMESTAMPTZ 'epoch' + last_accessed_at * INTERVAL '1 microsecond' AS last_accessed_at,
    TIMESTAMPTZ 'epoch' + expires_at * INTERVAL '1 microsecond' AS expires_at,
    NULLIF(user_id, '') AS user_id,
    CASE
        WHEN deleted_at IS NOT NULL THEN 'expired'
        WHEN status <> 'running' AND expires_at <= clew_now() THEN 'expired'
        WHEN status = 'completed' THEN 'completed'
        ELSE 'active'
    END AS status,
    stage AS workflow_step,
    clew_metadata(id) AS metadata
FROM threads;

-- Cleanups. One that is not finished is continued in the background, after the last thread it checked.
CREATE TABLE cleanups (
    id          TEXT PRIMARY KEY,
    selection   TEXT NOT NULL,
    deleted     BIGINT NOT NULL,
    failed      BIGINT NOT NULL,
    after_age   BIGINT,
    after_id    TEXT,
    started_at  BIGINT NOT NULL,
    finished_at BIGINT
);

CREATE INDEX cleanups_unfinished ON cleanups (started_at) WHERE finished_at IS NULL;

-- Ids of deleted threads. Writes under these ids are refused until the tombstone is old enough to be removed.
CREATE TABLE tombstones (
    thread_id  TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    deleted_at BIGINT NOT NULL,
    purged_at  BIGINT
);

CREATE INDEX tombstones_to_purge ON tombstones (deleted_at) WHERE purged_at IS NULL;
CREATE INDEX tombstones_by_age ON tombstones (purged_at) WHERE purged_at IS NOT NULL;

-- Periodic jobs that one process does for the cluster: the lease on each, and when it was last done.
CREATE TABLE duties (
    name        TEXT PRIMARY KEY,
    owner       TEXT,
    lease_until BIGINT,
    last_at     BIGINT,
    jumped_at   BIGINT
);

-- The processes that serve this database, each with its last sign of life. For operators: nothing is decided by it.
CREATE TABLE processes (
    name       TEXT PRIMARY KEY,
    host       TEXT NOT NULL,
    version    TEXT NOT NULL,
    role       TEXT NOT NULL,
    slots      BIGINT NOT NULL,
    graphs     TEXT NOT NULL,
    key_id     TEXT NOT NULL, -- what it encrypts with
    started_at BIGINT NOT NULL,
    beat_at    BIGINT NOT NULL
);

-- Tokens that models read and wrote: one row per owner, graph, model and day (counted from the epoch, UTC). It names no
-- thread, so that a sum outlives the threads it is made of.
CREATE TABLE token_usage (
    tenant     TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    graph      TEXT NOT NULL,
    model      TEXT NOT NULL,
    day        BIGINT NOT NULL,
    tokens_in  BIGINT NOT NULL,
    tokens_out BIGINT NOT NULL,
    PRIMARY KEY (tenant, user_id, graph, model, day)
);

CREATE INDEX token_usage_by_graph ON token_usage (graph, day);
CREATE INDEX token_usage_by_tenant ON token_usage (tenant, day);
