"""SQL of every table, one module a subject, written once for SQLite and Postgres."""
