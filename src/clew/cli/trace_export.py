"""Trace export: reads logs from the database and sends their rounds as traces."""

from datetime import datetime, timedelta
from pathlib import Path

from clew.cli.opening import OTHERS, read_settings, run
from clew.cli.output import complain, say, say_json
from clew.domain.errors import ClewError, Unavailable
from clew.domain.thread import Thread
from clew.engine.round_traces import RoundTraces
from clew.ports.threads import Store
from clew.server.database import open_stores, utc_now
from clew.server.traces import open_sender

PAGE = 200


def export(since: datetime | timedelta, *, config: Path | None, as_json: bool) -> None:
    """Raises ConfigError, and Unavailable when the collector does not accept a trace."""
    settings = read_settings(config, level="warning", without=OTHERS)
    sender = open_sender(settings)

    async def work() -> dict[str, int]:
        sent = {"threads": 0, "spans": 0, "failed": 0}
        async with open_stores(settings) as stores:
            store = stores.threads
            traces = RoundTraces(store, stores.audit, sender)
            begin = since if isinstance(since, datetime) else utc_now() - since
            before: tuple[datetime, str] | None = None
            while page := await store.find(active_since=begin, before=before, limit=PAGE):
                before = (page[-1].created_at, page[-1].id)
                for thread in page:
                    spans = await _send(thread, store, traces)
                    sent["failed"] += spans is None
                    sent["threads"] += spans is not None
                    sent["spans"] += spans or 0
        return sent

    async def _send(thread: Thread, store: Store, traces: RoundTraces) -> int | None:
        try:
            spans = await traces.spans_of_log(thread, await store.read(thread.id))
        except ClewError as exc:
            complain(exc)
            return None
        if spans and not sender(spans):
            raise Unavailable(f"the collector at {settings.traces.endpoint} did not accept the traces")
        return len(spans)

    sent = run(work())
    sender.close()
    if as_json:
        say_json(sent)
    else:
        failed = f"; {sent['failed']} could not be read" if sent["failed"] else ""
        say(f"{sent['spans']} spans of {sent['threads']} threads sent{failed}.")
