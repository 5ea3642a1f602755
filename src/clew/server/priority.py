"""Priorities by the project: the function that a `langgraph_sdk.Priority` object of langgraph.json assigns them with."""

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from langgraph_sdk import Priority
from langgraph_sdk.encryption import LangGraphBetaWarning
from langgraph_sdk.priority.types import PriorityContext

from clew.config import Settings
from clew.config.project_code import CodeSource
from clew.domain.assistants import Assistant
from clew.domain.errors import ClewError, ConfigError
from clew.domain.thread import FIRST, LAST, Owner
from clew.graph.registry import find_object, import_from, reason
from clew.ports.priorities import FirstRun
from clew.ports.users import AuthUser

logger = logging.getLogger(__name__)

SECONDS: Final = 5.0
LONGEST_GROUP: Final = 256
NO_USER: Final = AuthUser({"identity": "", "display_name": "", "is_authenticated": False, "permissions": []})

Assign = Callable[[PriorityContext], Awaitable[Any]]
ReadAssistant = Callable[[str, Owner], Awaitable[Assistant]]


class ProjectPriorities:
    """A function that fails delays no run: the run has priority 0, and the thread's next run asks again."""

    def __init__(self, assign: Assign, read_assistant: ReadAssistant) -> None:
        self._assign = assign
        self._read_assistant = read_assistant

    async def of(self, first: FirstRun) -> int | None:
        try:
            context = await self._context(first)
            async with asyncio.timeout(SECONDS):
                return _priority(await self._assign(context))
        except TimeoutError:
            logger.warning("priority.path took longer than %g seconds; the run has priority 0", SECONDS)
        except ClewError:
            raise
        except Exception as exc:  # noqa: BLE001 - it is the project's code
            # What it says may quote anything.
            why = str(exc) if isinstance(exc, _WrongSettings) else type(exc).__name__
            logger.warning("priority.path failed (%s); the run has priority 0", why)
        return None

    async def _context(self, first: FirstRun) -> PriorityContext:
        spec = first.spec
        user = NO_USER if spec.user is None else AuthUser(spec.user)
        assistant = await self._read_assistant(spec.assistant_id, first.owner)
        return PriorityContext(
            user=cast(Any, user),
            permissions=user.permissions,
            thread_id=first.thread_id,
            thread_metadata=dict(first.metadata),
            assistant_id=spec.assistant_id,
            graph_id=spec.graph,
            assistant_metadata=dict(assistant.metadata),
            run_metadata=dict(spec.metadata),
            cron_id=first.cron_id or None,
        )


class _WrongSettings(Exception):
    pass


def load_assign(source: CodeSource, settings: Settings) -> Assign:
    """Raises ConfigError for an object that assigns nothing."""
    # The project chose it; each command would repeat the warning.
    warnings.filterwarnings("ignore", category=LangGraphBetaWarning)
    import_from(settings.import_paths)
    try:
        found = find_object(source)
    except (Exception, SystemExit) as exc:
        raise ConfigError(f"{source.where}: {reason(source, exc)}") from exc
    if not isinstance(found, Priority):
        raise ConfigError(
            f"{source.where}: {source.written} is no langgraph_sdk.Priority but {type(found).__name__}"
        )
    if found._assign_handler is None:
        raise ConfigError(f"{source.where}: {source.written} has no function; add @priority.assign")
    return found._assign_handler


def _priority(given: Any) -> int:
    """Raises _WrongSettings."""
    if given is None:
        return 0
    if not isinstance(given, dict):
        raise _WrongSettings(f"it returned {type(given).__name__} instead of a dict")
    if unknown := given.keys() - {"priority", "fairness_group"}:
        raise _WrongSettings(f"it returned {len(unknown)} unknown keys")
    priority, group = given.get("priority"), given.get("fairness_group")
    if group is not None and not (isinstance(group, str) and len(group) <= LONGEST_GROUP):
        raise _WrongSettings(f"a fairness_group is a text of at most {LONGEST_GROUP} characters")
    if priority is None:
        return 0
    if isinstance(priority, bool) or not isinstance(priority, int) or not FIRST <= priority <= LAST:
        raise _WrongSettings(f"a priority is a whole number from {FIRST} to {LAST}")
    return priority
