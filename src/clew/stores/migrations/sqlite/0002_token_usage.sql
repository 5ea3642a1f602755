-- Tokens that models read and wrote: one row per owner, graph, model and day (counted from the epoch, UTC). It names no
-- thread, so that a sum outlives the threads it is made of.
CREATE TABLE token_usage (
    tenant     TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    graph      TEXT NOT NULL,
    model      TEXT NOT NULL,
    day        INTEGER NOT NULL,
    tokens_in  INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    PRIMARY KEY (tenant, user_id, graph, model, day)
) WITHOUT ROWID;

CREATE INDEX token_usage_by_graph ON token_usage (graph, day);
CREATE INDEX token_usage_by_tenant ON token_usage (tenant, day);
