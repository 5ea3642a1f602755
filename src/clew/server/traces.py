"""Traces composition: opens what sends spans to the collector of the settings."""

from typing import TYPE_CHECKING

from clew import __version__
from clew.config import Settings
from clew.domain.errors import ConfigError

if TYPE_CHECKING:
    from clew.telemetry.otlp import OtlpSender


def open_sender(settings: Settings) -> "OtlpSender":
    """Raises ConfigError without a collector, and without the packages of the extra."""
    if settings.traces.endpoint is None:
        raise ConfigError("OTEL_EXPORTER_OTLP_ENDPOINT is not set: where should traces go?")
    try:
        from clew.telemetry.otlp import OtlpSender  # noqa: PLC0415 - needs the extra
    except ModuleNotFoundError as exc:
        raise ConfigError(
            "OTEL_EXPORTER_OTLP_ENDPOINT needs another package: pip install 'clew-server[otel]'"
        ) from exc
    return OtlpSender(settings.traces.endpoint, version=__version__)
