"""Keep threads, events and all that hangs on them. Know no rules: the SQL is written once, two databases drive it."""
