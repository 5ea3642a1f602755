-- Assistants that people made, and which version of each counts. Tenants may use the same ids.
CREATE TABLE assistants (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- All that was ever said of them.
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
