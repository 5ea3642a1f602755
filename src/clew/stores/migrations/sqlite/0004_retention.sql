-- Threads as those see them who clean up. The indexes behind it are threads_by_expiry and threads_by_access.
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
    settings AS metadata
FROM threads;

CREATE INDEX threads_deleted ON threads (deleted_at) WHERE deleted_at IS NOT NULL;

-- What one process does for all of them: who is at it, and when it was last done.
CREATE TABLE duties (
    name        TEXT PRIMARY KEY,
    owner       TEXT,
    lease_until INTEGER,
    last_at     INTEGER,
    jumped_at   INTEGER
) WITHOUT ROWID;

-- Cleanups. One that is not finished goes on by itself, from behind the last thread it looked at.
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

-- Signatures that were used, for as long as they would be believed.
CREATE TABLE used_signatures (
    signature TEXT PRIMARY KEY,
    used_at   INTEGER NOT NULL
) WITHOUT ROWID;
