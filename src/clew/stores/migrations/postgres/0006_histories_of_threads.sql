-- The thread a history is the memory of, where no other conversation key was found: it goes with its thread.
ALTER TABLE histories ADD COLUMN thread_id TEXT;

CREATE INDEX histories_by_thread ON histories (thread_id) WHERE thread_id IS NOT NULL;
