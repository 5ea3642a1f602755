-- One damaged value, cast as it is, would make every row of a view unreadable.
CREATE OR REPLACE FUNCTION clew_jsonb(value TEXT) RETURNS JSONB LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN value::JSONB;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;

-- `metadata` as JSONB; null where it cannot be read. A view's column cannot change its type, so the view is made anew.
DROP VIEW IF EXISTS thread_metadata;

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
    clew_jsonb(settings) AS metadata
FROM threads;
