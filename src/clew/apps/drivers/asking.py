"""Driver sessions of the built-in graphs: retries are written to the log, and model calls may be stored."""

import logging
from dataclasses import replace
from typing import Any

from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Reply
from clew.apps.drivers.session import DriverSession, Failure
from clew.domain.errors import InvalidState
from clew.domain.events import AssistantMessage, Log
from clew.domain.profile import Budget
from clew.domain.records import ModelCall
from clew.domain.retry import RetryPolicy
from clew.graph.run import current_run
from clew.ports.run_context import RunContext

logger = logging.getLogger(__name__)


def open_session(
    run: RunContext, driver: Driver, policy: RetryPolicy, budget: Budget | None = None
) -> DriverSession:
    async def spent() -> tuple[int, int]:
        """By the messages of this round, which the log has before the next step of the graph begins."""
        _, events = await run.transcript()
        said = [
            event.body
            for event in events
            if event.round == run.thread.round and isinstance(event.body, AssistantMessage)
        ]
        return sum(one.tokens_in for one in said), sum(one.tokens_out for one in said)

    async def audit(
        inquiry: Inquiry, reply: Reply | None, outcome: Any, milliseconds: int, failure: Failure | None
    ) -> None:
        call = _audited(run, driver.model, inquiry, reply, outcome, milliseconds)
        if failure is not None:
            _tell_operators(run, driver, failure)
            answered = failure.answered
            call = replace(call, error=answered.text if answered else str(failure))
        await run.audit(call)

    return DriverSession(
        driver,
        policy,
        tell=lambda text: run.note(Log(message=text, level="warning")),
        audit=audit,
        budget=budget,
        spent=spent,
    )


def _tell_operators(run: RunContext, driver: Driver, failure: Failure) -> None:
    """Names and numbers only: the provider's text may quote the conversation, and is stored with the model calls."""
    told: dict[str, Any] = {
        "thread_id": run.thread.id,
        "driver": driver.name,
        "model": driver.model,
        "error_class": failure.error_class,
    }
    answered = failure.answered
    if answered is not None and answered.status is not None:
        told["status_code"] = answered.status
    if answered is not None and answered.code:
        told["code"] = answered.code
    logger.warning("model call failed", extra=told)


def run_of_thread() -> RunContext:
    run = current_run()
    if run is None:
        raise InvalidState("this graph lives on a thread's log: it runs under Clew only")
    return run


def _audited(
    run: RunContext, model: str, inquiry: Inquiry, reply: Reply | None, outcome: Any, milliseconds: int
) -> ModelCall:
    stamp = run.stamp()
    return ModelCall(
        id=stamp.new_id(),
        thread_id=run.thread.id,
        turn_ref=run.thread.last_seq,
        model=model,
        rendered_context={
            "purpose": str(inquiry.purpose),
            "role": inquiry.role,
            "facts": dict(inquiry.facts),
            "material": [{"label": one.label, "text": one.text} for one in inquiry.material],
            "prompt": inquiry.prompt,
            "pictures": [{"label": one.label, "bytes": len(one.data)} for one in inquiry.pictures],
        },
        created_at=stamp.now,
        status=outcome,
        usage={"input_tokens": reply.tokens_in, "output_tokens": reply.tokens_out} if reply else {},
        latency_ms=milliseconds,
    )
