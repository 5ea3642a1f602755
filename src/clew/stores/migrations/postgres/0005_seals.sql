-- Tells a thread's row that Clew wrote from one that was changed by other hands: then the log's word stands.
ALTER TABLE threads ADD COLUMN seal BIGINT;
