"""Driver session: the calls of one task, retried by the profile's policy and counted."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Literal

from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Purpose, Reply
from clew.domain.errors import LimitExceeded, Permanent, RetriesExhausted, Transient
from clew.domain.profile import Budget
from clew.domain.retry import ErrorClass, GiveUp, RetryPolicy, decide
from clew.failpoints import failpoint
from clew.telemetry import shared_metrics

if TYPE_CHECKING:
    from langchain_core.messages.ai import UsageMetadata

Outcome = Literal["ok", "failed", "cancelled"]
Tell = Callable[[str], None]
Failure = Transient | Permanent
Audit = Callable[[Inquiry, Reply | None, Outcome, int, Failure | None], Awaitable[None]]
# The tokens, in and out, that the round spent before this session.
Spent = Callable[[], Awaitable[tuple[int, int]]]


async def _nothing_spent() -> tuple[int, int]:
    return 0, 0


async def _not_kept(
    inquiry: Inquiry, reply: Reply | None, outcome: Outcome, milliseconds: int, failure: Failure | None
) -> None:
    """Does not store the call."""


class DriverSession:
    """`tell` is called for every attempt that will be retried, `audit` for every attempt.

    No call begins once the round has spent its `budget`: LimitExceeded.
    """

    def __init__(
        self,
        driver: Driver,
        policy: RetryPolicy,
        *,
        tell: Tell = lambda _: None,
        audit: Audit = _not_kept,
        budget: Budget | None = None,
        spent: Spent = _nothing_spent,
    ) -> None:
        self.name = driver.name
        self.model = driver.model
        self.tokens_in = 0
        self.tokens_out = 0
        self._driver = driver
        self._policy = policy
        self._tell = tell
        self._audit = audit
        self._budget = budget
        self._spent = spent

    def can(self, purpose: Purpose) -> bool:
        return self._driver.can(purpose)

    async def ask(self, inquiry: Inquiry) -> Reply:
        failed = 0
        while True:
            try:
                return await self.attempt(inquiry)
            except Transient as exc:
                failed += 1
                error_class = ErrorClass(exc.error_class or ErrorClass.INTERNAL)
                jitter = random.uniform(0, 0.5)  # noqa: S311 - spreads a crowd, guards nothing
                decision = decide(
                    self._policy, error_class, failed, jitter=jitter, retry_after=exc.retry_after
                )
                if isinstance(decision, GiveUp):
                    raise RetriesExhausted(f"{decision.reason}: {exc}", error_class) from exc
                shared_metrics().retries.labels(error_class).inc()
                self._tell(
                    f"Attempt {failed} failed ({error_class}), trying again in {decision.seconds:.1f} s"
                )
                await asyncio.sleep(decision.seconds)

    async def attempt(self, inquiry: Inquiry) -> Reply:
        """Ask once, for a caller that must check the effects before it retries."""
        await self._require_budget()
        started = time.perf_counter()
        outcome: Outcome = "failed"
        reply: Reply | None = None
        failure: Failure | None = None
        failpoint("llm_before")
        try:
            reply = await self._driver.ask(inquiry)
            outcome = "ok"
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except (Transient, Permanent) as exc:
            failure = exc
            raise
        finally:
            if self.model:
                milliseconds = int((time.perf_counter() - started) * 1000)
                await self._audit(inquiry, reply, outcome, milliseconds, failure)
        failpoint("llm_after_before_commit")
        self.tokens_in += reply.tokens_in
        self.tokens_out += reply.tokens_out
        return reply

    def count(self, usages: "Iterable[UsageMetadata | None]") -> None:
        """Add what earlier steps of the same task used."""
        for usage in usages:
            if usage is not None:
                self.tokens_in += usage["input_tokens"]
                self.tokens_out += usage["output_tokens"]

    async def _require_budget(self) -> None:
        if self._budget is None:
            return
        tokens_in, tokens_out = await self._spent()
        reason = self._budget.why_spent(tokens_in + self.tokens_in, tokens_out + self.tokens_out)
        if reason is not None:
            raise LimitExceeded(f"budget of the profile: {reason}", ErrorClass.VALIDATION)


class SingleAttempt:
    """A session that asks once: the caller decides whether to retry."""

    def __init__(self, session: DriverSession) -> None:
        self.name = session.name
        self.model = session.model
        self.can = session.can
        self.ask = session.attempt
