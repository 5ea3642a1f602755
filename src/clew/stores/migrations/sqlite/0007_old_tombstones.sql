-- Tombstones by age: one that is old enough guards against nobody any more.
CREATE INDEX tombstones_by_age ON tombstones (purged_at) WHERE purged_at IS NOT NULL;
