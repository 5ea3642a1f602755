"""Metrics: every counter, timer and gauge, by name."""

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CHANNELS = ("telegram", "wecom_cs", "wecom_aibot", "wecom_dm", "other")

_MILLISECONDS = (0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LONG_SECONDS = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """One set of metrics on a registry of its own, so that two apps in one process do not add up."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry = registry or CollectorRegistry()
        self._http(registry)
        self._commits(registry)
        self._runs(registry)
        self._queue(registry)
        self._channels(registry)
        self._histories(registry)

    def _http(self, registry: CollectorRegistry) -> None:
        self.http_requests = Counter(
            "clew_http_requests_total", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self.http_seconds = Histogram(
            "clew_http_request_seconds",
            "From the request to the end of its answer.",
            ["method", "route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.loop_lag = Histogram(
            "clew_event_loop_lag_seconds",
            "How late the event loop was, asked twice a second; above 2 the log names what blocked it.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.streams = Gauge("clew_streams", "Open event streams.", ["kind"], registry=registry)

    def _commits(self, registry: CollectorRegistry) -> None:
        self.commits = Counter(
            "clew_commits_total", "Changes saved or refused.", ["backend", "outcome"], registry=registry
        )
        self.commit_seconds = Histogram(
            "clew_commit_seconds",
            "From the call to the acknowledgement.",
            ["backend"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.commit_batch = Histogram(
            "clew_commit_batch_changes",
            "Changes that shared one transaction.",
            ["backend"],
            buckets=_ROWS,
            registry=registry,
        )

    def _runs(self, registry: CollectorRegistry) -> None:
        self.rounds = Counter(
            "clew_rounds_total", "Rounds that ended, by how.", ["graph", "status"], registry=registry
        )
        self.round_seconds = Histogram(
            "clew_round_seconds", "Length of a round.", ["graph"], buckets=_LONG_SECONDS, registry=registry
        )
        self.running = Gauge("clew_threads_running", "Threads this process is stepping.", registry=registry)
        self.retries = Counter("clew_retries_total", "Attempts repeated.", ["error_class"], registry=registry)
        self.tool_calls = Counter(
            "clew_tool_calls_total", "Tool calls that ended.", ["executor", "outcome"], registry=registry
        )
        self.lost_leases = Counter(
            "clew_lost_leases_total",
            "Threads this process ran until another took them over.",
            registry=registry,
        )
        self.deleted_threads = Counter(
            "clew_deleted_threads_total", "Threads deleted, by what.", ["reason"], registry=registry
        )

    def _queue(self, registry: CollectorRegistry) -> None:
        """Of all processes on the database: take the maximum over them, and not the sum."""
        self.runs_waiting = Gauge(
            "clew_runs_waiting",
            "Runs that wait for a slot or for another run of their thread.",
            registry=registry,
        )
        self.oldest_wait = Gauge(
            "clew_oldest_wait_seconds", "How long the oldest waiting run waits.", registry=registry
        )
        self.slots = Gauge(
            "clew_slots", "Runs that all live processes can execute at once.", registry=registry
        )
        self.workers = Gauge("clew_workers", "Live processes that execute runs.", registry=registry)

    def _channels(self, registry: CollectorRegistry) -> None:
        self.deliveries = Counter(
            "clew_channel_deliveries_total",
            "What providers delivered, by what became of it.",
            ["channel", "outcome"],
            registry=registry,
        )
        self.chat_answers = Counter(
            "clew_channel_answers_total",
            "Answers to chats, by how sending them went.",
            ["channel", "outcome"],
            registry=registry,
        )

    def _histories(self, registry: CollectorRegistry) -> None:
        history = ["backend", "channel", "outcome"]
        self.history_key_failures = Counter(
            "agent_history_key_resolution_failures_total",
            "Runs for which no conversation key could be found.",
            history,
            registry=registry,
        )
        self.history_read_failures = Counter(
            "agent_history_store_read_failures_total",
            "Runs that went on without their history.",
            history,
            registry=registry,
        )
        self.history_write_failures = Counter(
            "agent_history_store_write_failures_total",
            "Runs whose turns were not stored.",
            history,
            registry=registry,
        )
        self.history_truncations = Counter(
            "agent_history_truncation_events_total",
            "Prompts cut down to max_messages.",
            history,
            registry=registry,
        )
        self.history_read_ms = Histogram(
            "agent_history_store_read_latency_ms",
            "Reading the tail of a history.",
            history,
            buckets=_MILLISECONDS,
            registry=registry,
        )
        self.history_write_ms = Histogram(
            "agent_history_store_write_latency_ms",
            "Appending a turn to a history.",
            history,
            buckets=_MILLISECONDS,
            registry=registry,
        )

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)


@cache
def shared_metrics() -> Metrics:
    """For nodes in a graph outside of Clew, where no app hands out its own."""
    return Metrics()


def channel_label(conversation_key: str) -> str:
    """The channel in a conversation key. A label must not grow with the number of users."""
    prefix = conversation_key.partition(":")[0]
    return prefix if prefix in CHANNELS else "other"
