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
