-- Threads that wait for an answer: looked through now and then for calls of which no row is left.
CREATE INDEX threads_blocked ON threads (id) WHERE status = 'blocked' AND deleted_at IS NULL;
