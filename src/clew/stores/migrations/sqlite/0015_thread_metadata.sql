-- `metadata` is null where it is not JSON: `metadata ->> 'x'` would fail for every row.
DROP VIEW IF EXISTS thread_metadata;

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
    CASE WHEN json_valid(settings) THEN settings END AS metadata
FROM threads;
