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
