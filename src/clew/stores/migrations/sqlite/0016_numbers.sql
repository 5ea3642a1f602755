-- Integers for what clients know by a number: tenants, users of a tenant, files of a tenant. One that was given stays.
CREATE TABLE numbers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    kind   TEXT NOT NULL,
    tenant TEXT NOT NULL,
    name   TEXT NOT NULL,
    UNIQUE (kind, tenant, name)
);
