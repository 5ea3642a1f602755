"""CPU budget of a round: seconds of a processor for all of its tasks together."""

from dataclasses import dataclass

from clew.domain.errors import LimitExceeded
from clew.domain.retry import ErrorClass


@dataclass(slots=True, kw_only=True)
class CpuBudget:
    """The seconds left for one task; `spent` is what it used."""

    limit: float
    spent_before: float = 0.0
    spent: float = 0.0

    @property
    def left(self) -> float:
        """Raises LimitExceeded if nothing is left."""
        left = self.limit - self.spent_before - self.spent
        if left <= 0:
            raise self.exceeded()
        return left

    def spend(self, seconds: float) -> None:
        self.spent += seconds

    def exceeded(self) -> LimitExceeded:
        return LimitExceeded(
            f"resource limit: the round computed for more than {self.limit:g} s (limits.round_cpu_seconds)",
            ErrorClass.VALIDATION,
        )
