"""Agent: one role of the chat app."""

from typing import Protocol

from clew.apps.chat.plan import AgentResult, AgentTask


class ChatAgent(Protocol):
    """One role of the chat workflow. `description` tells a project manager what to use it for."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    async def process_task(self, task: AgentTask) -> AgentResult:
        """Run the task. Whatever this raises, the task has failed and the next one runs."""
        ...
