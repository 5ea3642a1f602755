-- The thread that reserved a key last: it holds the key while it is active.
CREATE TABLE reservations (
    kind      TEXT NOT NULL,
    key       TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    PRIMARY KEY (kind, key)
);

CREATE INDEX reservations_by_thread ON reservations (thread_id);
