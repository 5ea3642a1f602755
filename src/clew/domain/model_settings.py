"""The settings of a thread's model, as they were when the thread was opened. Never a key or an address."""

from collections.abc import Mapping
from dataclasses import dataclass

from clew.domain.thread import Json

# So much of a system prompt is kept with every thread: its row is written with every event.
LONGEST_PROMPT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    provider: str = ""
    model: str = ""
    system_prompt: str = ""

    def snapshot(self) -> dict[str, Json]:
        """What a thread keeps of them among its settings."""
        prompt = self.system_prompt
        if len(prompt) > LONGEST_PROMPT:
            prompt = prompt[: LONGEST_PROMPT - 1] + "…"
        kept = {"provider": self.provider, "model": self.model, "system_prompt": prompt}
        return {name: value for name, value in kept.items() if value}

    @classmethod
    def of(cls, settings: Mapping[str, Json]) -> "ModelSettings":
        """As a thread's settings tell them; empty what they do not tell."""
        return cls(
            provider=str(settings.get("provider", "")),
            model=str(settings.get("model", "")),
            system_prompt=str(settings.get("system_prompt", "")),
        )
