"""Telemetry of a process, for its operator: the names of every metric and log field, and how log lines are written.

Product code logs through `logging.getLogger(__name__)` with `extra={...}` and counts on a `Metrics` it was given.
"""

from clew.telemetry.fields import FIELDS
from clew.telemetry.logs import configure_logs, log_context
from clew.telemetry.metrics import CHANNELS, Metrics, channel_label, shared_metrics

__all__ = [
    "CHANNELS",
    "FIELDS",
    "Metrics",
    "channel_label",
    "configure_logs",
    "log_context",
    "shared_metrics",
]
