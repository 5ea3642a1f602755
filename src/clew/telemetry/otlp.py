"""OTLP: sends spans to a collector by HTTP, with OpenTelemetry's own exporter. Needs the extra `otel`."""

from collections.abc import Sequence
from datetime import datetime

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import Event as OtelEvent
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from clew.telemetry.spans import Span

BATCH = 500


class OtlpSender:
    """Blocks while it sends: call it in a thread. Headers, certificate and time limit are OpenTelemetry's variables."""

    def __init__(self, endpoint: str, *, version: str) -> None:
        self._exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
        self._resource = Resource({SERVICE_NAME: "clew", SERVICE_VERSION: version}).merge(Resource.create())
        named = self._resource.attributes.get(SERVICE_NAME)
        if str(named).startswith("unknown_service"):
            self._resource = self._resource.merge(Resource({SERVICE_NAME: "clew"}))
        self._scope = InstrumentationScope("clew", version)

    def __call__(self, spans: Sequence[Span]) -> bool:
        """Whether the collector has accepted all of them."""
        return all(
            self._exporter.export([self._readable(span) for span in spans[at : at + BATCH]])
            is SpanExportResult.SUCCESS
            for at in range(0, len(spans), BATCH)
        )

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.id),
            parent=None if span.parent_id is None else _context(span.trace_id, span.parent_id),
            resource=self._resource,
            attributes=span.attributes,
            events=[
                OtelEvent(event.name, attributes=event.attributes, timestamp=_nanoseconds(event.at))
                for event in span.events
            ],
            links=[Link(_context(span.trace_id, linked)) for linked in span.links],
            kind=SpanKind.INTERNAL,
            instrumentation_scope=self._scope,
            status=Status(StatusCode.ERROR if span.has_failed else StatusCode.UNSET),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
        )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp()) * 10**9 + at.microsecond * 1000
