"""Driver: how a model is asked."""

from typing import Protocol

from clew.apps.drivers.inquiries import Inquiry, Purpose, Reply


class Driver(Protocol):
    """How a model is asked; or rules in its place, which answer less."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str:
        """The model's name; empty where there is none."""
        ...

    def can(self, purpose: Purpose) -> bool:
        """Whether such an inquiry can be answered at all."""
        ...

    async def ask(self, inquiry: Inquiry) -> Reply:
        """The answer, as it came: whoever asked checks it.

        Raises Transient or Permanent with an error class, Permanent also for what needs a model where there is none.
        """
        ...
