-- Scheduled runs. `next_at` is NULL for what is never due again.
CREATE TABLE crons (
    id            TEXT NOT NULL PRIMARY KEY,
    tenant        TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    thread_id     TEXT,
    schedule      TEXT NOT NULL,
    timezone      TEXT,
    end_at        BIGINT,
    is_enabled    INTEGER NOT NULL,
    keeps         INTEGER NOT NULL,
    spec          TEXT NOT NULL,
    input         TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    next_at       BIGINT,
    counted_at    BIGINT NOT NULL,
    claimed_until BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX crons_by_owner ON crons (tenant, user_id);
CREATE INDEX crons_by_thread ON crons (thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX crons_due ON crons (next_at) WHERE is_enabled = 1;
-- By a clock that was wrong: these are counted anew.
CREATE INDEX crons_counted ON crons (counted_at) WHERE is_enabled = 1;

-- What happens when a run ends: its webhook is called, its temporary thread is deleted. Written when the run is.
CREATE TABLE run_hooks (
    run_id       TEXT NOT NULL PRIMARY KEY,
    thread_id    TEXT NOT NULL,
    webhook      TEXT NOT NULL,
    is_temporary INTEGER NOT NULL,
    due_at       BIGINT NOT NULL,
    attempts     INTEGER NOT NULL
);

CREATE INDEX run_hooks_due ON run_hooks (due_at);
CREATE INDEX run_hooks_by_thread ON run_hooks (thread_id);
