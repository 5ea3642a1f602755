"""Driver: the interface through which apps call a model."""

from typing import Protocol

from clew.apps.drivers.inquiries import Inquiry, Purpose, Reply


class Driver(Protocol):
    """Calls a model, or rules in its place, which answer fewer inquiries."""

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
        """The unchecked answer: the caller validates it.

        Raises Transient or Permanent with an error class, Permanent also for what needs a model where there is none.
        """
        ...
