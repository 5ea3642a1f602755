"""An OTLP collector of the tests: takes traces by HTTP on loopback and keeps their spans."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(slots=True)
class Collector:
    address: str = ""
    is_away: bool = False
    spans: dict[str, Any] = field(default_factory=dict)  # by span id: one that comes again replaces itself
    services: set[str] = field(default_factory=set)

    def named(self, name: str) -> Any:
        (found,) = [span for span in self.spans.values() if span.name == name]
        return found

    def receive(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            self.services.add(attributes(resource.resource)["service.name"])
            for scope in resource.scope_spans:
                self.spans.update({span.span_id.hex(): span for span in scope.spans})


def attributes(holder: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in holder.attributes}


@contextmanager
def collecting() -> Generator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            is_taken = self.path == "/v1/traces" and not collector.is_away
            if is_taken:
                collector.receive(body)
            self.send_response(200 if is_taken else 400)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
