-- A history is its tenant's by the column alone, as an item is, and its user's if a run of a user began it.
ALTER TABLE histories ADD COLUMN user_id TEXT NOT NULL DEFAULT '';

CREATE INDEX histories_by_user ON histories (tenant, user_id) WHERE user_id <> '';

-- Until now a served graph named the tenant once more in the path, and a program outside a server named none.
UPDATE store_items SET tenant = 'default' WHERE tenant = '' AND NOT EXISTS (SELECT 1 FROM store_items AS o
    WHERE o.tenant = 'default' AND o.path = store_items.path AND o.key = store_items.key);

CREATE TABLE history_places (
    id     INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    path   TEXT NOT NULL,
    keep   INTEGER NOT NULL
);

INSERT INTO history_places (id, tenant, path, keep)
SELECT id, tenant, path, min(id) OVER (PARTITION BY tenant, path) FROM (
    SELECT id,
        CASE WHEN is_labelled = 1 THEN
            replace(replace(replace(substr(path, 8, instr(path, '.') - 8), '_x2e', '.'), '_x3a', ':'), '_x40', '@')
        WHEN tenant = '' THEN 'default' ELSE tenant END AS tenant,
        CASE WHEN is_labelled = 1 THEN substr(path, instr(path, '.') + 1) ELSE path END AS path
    FROM (
        SELECT id, tenant, path, CASE WHEN substr(path, 1, 7) = 'tenant:'
            AND length(path) - length(replace(path, '.', '')) > 2 THEN 1 ELSE 0 END AS is_labelled
        FROM histories
    ) AS labelled
) AS placed;

-- Two that were one conversation become one again, in the order of time.
CREATE TABLE history_merged AS
SELECT p.keep AS history_id, row_number() OVER (PARTITION BY p.keep ORDER BY m.at, m.history_id, m.seq) AS seq,
    m.role, m.content, m.at, m.message_id, m.origin
FROM history_messages AS m JOIN history_places AS p ON p.id = m.history_id
WHERE p.keep IN (SELECT keep FROM history_places GROUP BY keep HAVING count(*) > 1)
AND (m.message_id IS NULL OR NOT EXISTS (
    SELECT 1 FROM history_messages AS o JOIN history_places AS q ON q.id = o.history_id
    WHERE q.keep = p.keep AND o.message_id = m.message_id AND o.history_id < m.history_id
));

DELETE FROM history_messages WHERE history_id IN (
    SELECT id FROM history_places WHERE keep IN (SELECT history_id FROM history_merged)
);

UPDATE histories SET
    last_seq = (SELECT count(*) FROM history_merged WHERE history_id = histories.id),
    version = (SELECT sum(h.version) FROM histories AS h JOIN history_places AS p ON p.id = h.id WHERE p.keep = histories.id),
    created_at = (SELECT min(h.created_at) FROM histories AS h JOIN history_places AS p ON p.id = h.id WHERE p.keep = histories.id),
    updated_at = (SELECT max(h.updated_at) FROM histories AS h JOIN history_places AS p ON p.id = h.id WHERE p.keep = histories.id)
WHERE id IN (SELECT history_id FROM history_merged);

DELETE FROM histories WHERE id IN (SELECT id FROM history_places WHERE id <> keep);

INSERT INTO history_messages (history_id, seq, role, content, at, message_id, origin)
SELECT history_id, seq, role, content, at, message_id, origin FROM history_merged;

UPDATE histories SET
    tenant = (SELECT p.tenant FROM history_places AS p WHERE p.id = histories.id),
    path = (SELECT p.path FROM history_places AS p WHERE p.id = histories.id)
WHERE id IN (SELECT p.id FROM history_places AS p JOIN histories AS h ON h.id = p.id
    WHERE p.tenant <> h.tenant OR p.path <> h.path);

DROP TABLE history_merged;
DROP TABLE history_places;
