"""Webhook body: a run that is over, with its values."""

from collections.abc import Callable, Collection
from datetime import datetime

from pydantic_core import to_json

from clew.api.sdk.run_schemas import RunOut
from clew.api.sdk.streaming import failure
from clew.domain.runs import Run, RunStatus
from clew.domain.thread import Json


def report(
    clock: Callable[[], datetime], *, fields: Collection[str] | None = None
) -> Callable[[Run, Json], bytes]:
    """The run with the values its thread had at its end; and why it failed, if it did. Of that only these `fields`."""

    def told(run: Run, values: Json) -> bytes:
        shown = RunOut.of(run).model_dump(mode="json")
        times = {
            "run_started_at": run.created_at.isoformat(),
            "run_ended_at": run.updated_at.isoformat(),
            "webhook_sent_at": clock().isoformat(),
        }
        failed = run.status in (RunStatus.ERROR, RunStatus.TIMEOUT)
        body = {**shown, **times, "values": values} | ({"error": failure(run)} if failed else {})
        return to_json({name: value for name, value in body.items() if fields is None or name in fields})

    return told
