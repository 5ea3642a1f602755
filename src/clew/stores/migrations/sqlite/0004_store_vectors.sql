-- Embeddings of store items: one row per indexed text, as 32-bit floats. Triggers keep them in step with their items,
-- whatever writes those.
CREATE TABLE store_vectors (
    tenant TEXT NOT NULL,
    path   TEXT NOT NULL,
    key    TEXT NOT NULL,
    number INTEGER NOT NULL,
    dims   INTEGER NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (tenant, path, key, number)
);

CREATE TRIGGER store_items_deleted AFTER DELETE ON store_items BEGIN
    DELETE FROM store_vectors WHERE tenant = old.tenant AND path = old.path AND key = old.key;
END;

CREATE TRIGGER store_items_replaced AFTER UPDATE OF value ON store_items BEGIN
    DELETE FROM store_vectors WHERE tenant = old.tenant AND path = old.path AND key = old.key;
END;
