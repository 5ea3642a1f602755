"""End of a chat round: the last lines and the last message of one that failed or was stopped."""

from collections.abc import Callable, Sequence

from clew.apps.chat.plan import PROJECT_MANAGER
from clew.domain.events import (
    AssistantMessage,
    Body,
    Content,
    Event,
    Level,
    Log,
    StageCompleted,
    UserMessage,
)
from clew.domain.thread import Status
from clew.texts.catalog import DEFAULT
from clew.texts.phrases import Text, say


def closing(
    log: Sequence[Event], status: Status, reason: str, *, detect: Callable[[str, str | None], str]
) -> list[Body]:
    """The last events of a round, written in the same commit as its end."""
    if status is Status.COMPLETED:
        return [_ending("Workflow completed successfully", status)]
    language = _language(log, detect)
    if status is Status.STOPPED:
        text = say(Text.STOPPED, language)
        return [_ending("Workflow stopped by user", status), _last(text)]
    text = say(Text.FAILED, language, reason=reason)
    return [
        _ending("Workflow failure reported", status),
        _last(text),
        _ending(f"Workflow failed: {reason}", status),
    ]


def _language(log: Sequence[Event], detect: Callable[[str, str | None], str]) -> str:
    """The language this round is held in: what its steps found, else what the user's own words say."""
    for event in reversed(log):
        match event.body:
            case StageCompleted(output={"language": str(language)}) if language:
                return language
            case UserMessage(content=content):
                return detect(text_in(content), None)
            case _:
                pass
    return DEFAULT


def _ending(message: str, status: Status) -> Log:
    level: Level = "error" if status is Status.FAILED else "info"
    return Log(message=message, progress=100, level=level, agent=PROJECT_MANAGER, status=status)


def _last(text: str) -> AssistantMessage:
    return AssistantMessage(content=text, agent=PROJECT_MANAGER, marker="last")


def text_in(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and "text" in part)
