-- Which thread took a worktree last: it has it for as long as it is active.
CREATE TABLE worktrees (
    path      TEXT NOT NULL PRIMARY KEY,
    thread_id TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX worktrees_by_thread ON worktrees (thread_id);
