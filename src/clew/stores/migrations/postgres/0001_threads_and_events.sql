-- Times are microseconds since the epoch, UTC. JSON is text, returned as it was stored.

-- The database's own time, the only one leases are measured by.
CREATE FUNCTION clew_now() RETURNS BIGINT LANGUAGE SQL VOLATILE
    RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT;

-- One row a thread: a cache over its events, kept for cheap status reads, lists and claims.
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
    -- Kept by the store alone, not folded from the log.
    last_accessed_at BIGINT NOT NULL,
    expires_at       BIGINT,
    deleted_at       BIGINT,
    lease_owner      TEXT,
    lease_until      BIGINT,
    fence            BIGINT NOT NULL DEFAULT 0,
    recoveries       BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX threads_to_claim ON threads (lease_until) WHERE status = 'running' AND deleted_at IS NULL;
CREATE INDEX threads_by_creation ON threads (tenant, created_at, id);
CREATE INDEX threads_by_expiry ON threads (expires_at);
CREATE INDEX threads_by_access ON threads (last_accessed_at);

-- The truth. Rows are inserted, and deleted with their thread; never updated.
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

-- Pollers name the last record they saw.
CREATE UNIQUE INDEX events_by_id ON events (id) WHERE type IN ('user_msg', 'assistant_msg', 'log');

-- Derived from the log, but for `started`: the mark that an effect may have happened.
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

CREATE TABLE summaries (
    thread_id  TEXT NOT NULL,
    from_seq   BIGINT NOT NULL,
    to_seq     BIGINT NOT NULL CHECK (to_seq >= from_seq),
    version    TEXT NOT NULL,
    content    TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (thread_id, to_seq, version)
);

-- What was sent to the model, for audits. Off by default.
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

-- The bytes of files by what they are, in parts of bounded size.
CREATE TABLE blobs (
    sha256   TEXT NOT NULL,
    part     BIGINT NOT NULL,
    data     BYTEA NOT NULL,
    added_at BIGINT NOT NULL,
    PRIMARY KEY (sha256, part)
);

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

-- What came in from a channel, admitted once.
CREATE TABLE inbox (
    source      TEXT NOT NULL,
    source_id   TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    thread_id   TEXT,
    payload     TEXT NOT NULL,
    status      TEXT NOT NULL,
    admitted_at BIGINT NOT NULL,
    done_at     BIGINT,
    PRIMARY KEY (source, source_id)
);

CREATE INDEX inbox_queued ON inbox (admitted_at) WHERE status = 'queued';
CREATE INDEX inbox_by_thread ON inbox (thread_id) WHERE thread_id IS NOT NULL;

-- What a repeated request is answered with.
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

CREATE TABLE api_keys (
    id           TEXT PRIMARY KEY,
    hash         TEXT NOT NULL UNIQUE,
    prefix       TEXT NOT NULL,
    name         TEXT NOT NULL,
    tenant       TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    scopes       TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    revoked_at   BIGINT
);

-- Threads that were deleted. Nothing may be written under these ids again.
CREATE TABLE tombstones (
    thread_id  TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    deleted_at BIGINT NOT NULL,
    purged_at  BIGINT
);

CREATE INDEX tombstones_to_purge ON tombstones (deleted_at) WHERE purged_at IS NULL;
