-- Which thread took a worktree last: it has it for as long as it is active.
-- The row without a path is the one lock: whoever takes a worktree holds it meanwhile.
CREATE TABLE worktrees (
    path      TEXT NOT NULL PRIMARY KEY,
    thread_id TEXT NOT NULL
);

CREATE INDEX worktrees_by_thread ON worktrees (thread_id);

INSERT INTO worktrees (path, thread_id) VALUES ('', '');
