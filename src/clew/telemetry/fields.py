"""Log fields: those a log line may have. Any other is left out, since it may hold a conversation."""

FIELDS = frozenset(
    {
        # what it is about
        "thread_id",
        "run_id",
        "cron_id",
        "graph",
        "app",
        "round",
        "seq",
        "stage",
        "status",
        "call_id",
        "tool",
        "executor",
        "checkpoint_id",
        "namespace",
        "key",
        "file_id",
        # who
        "tenant",
        "user_id",
        "key_id",
        "runner",
        "chore",
        "channel",
        "source",
        "source_id",
        "profile",
        "driver",
        "model",
        # one HTTP request
        "request_id",
        "method",
        "route",
        "status_code",
        "headers",
        # how it went
        "code",
        "error_class",
        "attempt",
        "seconds",
        "retry_seconds",
        "count",
        "deleted",
        "preserved",
        "failed",
        "bytes",
        # where the project's code failed
        "file",
        "line",
        "function",
        # the process and what it stands on
        "address",
        "backend",
        "database",
        "migration",
        "setting",
        "signal",
        "version",
    }
)
