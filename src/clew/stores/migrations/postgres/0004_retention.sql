-- Threads as those see them who clean up. The indexes behind it are threads_by_expiry and threads_by_access.
-- `metadata` is text: one damaged value, cast to JSON, would make every row unreadable.
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
    settings AS metadata
FROM threads;

CREATE INDEX threads_deleted ON threads (deleted_at) WHERE deleted_at IS NOT NULL;

-- What one process does for all of them: who is at it, and when it was last done.
CREATE TABLE duties (
    name        TEXT PRIMARY KEY,
    owner       TEXT,
    lease_until BIGINT,
    last_at     BIGINT,
    jumped_at   BIGINT
);

-- Cleanups. One that is not finished goes on by itself, from behind the last thread it looked at.
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

-- Signatures that were used, for as long as they would be believed.
CREATE TABLE used_signatures (
    signature TEXT PRIMARY KEY,
    used_at   BIGINT NOT NULL
);
