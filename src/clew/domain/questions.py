"""Questions of a thread in words, and answers given in words."""

import json
import re
from collections.abc import Sequence

from clew.domain.errors import Invalid, InvalidState
from clew.domain.runs import names_questions
from clew.domain.thread import Json, Pending, SuspensionKind, Thread
from clew.domain.tool_calls import GATE

_YES = frozenset(
    (
        "yes",
        "y",
        "ok",
        "okay",
        "approve",
        "approved",
        "ja",
        "oui",
        "sí",
        "si",
        "да",
        "是",
        "好",
        "同意",
        "批准",
    )
)
_NO = frozenset(
    ("no", "n", "reject", "rejected", "deny", "nein", "non", "нет", "不", "否", "不行", "不同意", "拒绝")
)
_FIRST_WORD = re.compile(r"\W*(\w+)\W*(.*)", re.DOTALL)


def question_text(prompt: Json) -> str:
    """The question in words, or whatever stands there, and with a tool exactly what it would be given."""
    match prompt:
        case str():
            return prompt
        case {"tool": tool, "args": args, "server": server}:
            return f"May I do this on the server {server}?\n\n{tool}\n{_shown(args)}"
        case {"tool": tool, "args": args}:
            return f"May I do this?\n\n{tool}\n{_shown(args)}"
        case {"before": [*stages]}:
            return f"May I go on with this: {', '.join(map(str, stages))}?"
        case dict():
            words = next(
                (prompt[k] for k in ("message", "question", "text") if isinstance(prompt.get(k), str)), ""
            )
            rest = {k: v for k, v in prompt.items() if k not in ("kind", "timeout") and v != words}
            return "\n\n".join(part for part in (words, _shown(rest) if rest else "") if part)
        case _:
            return _shown(prompt)


def _shown(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def decision(text: str) -> tuple[bool, str] | None:
    """Yes or no in words, and what else was said. None for anything less plain: a yes with a but is no yes."""
    found = _FIRST_WORD.fullmatch(text.strip())
    if found is None:
        return None
    word, rest = found[1].casefold(), found[2].strip()
    if word in _YES and not rest:
        return True, ""
    return (False, rest) if word in _NO else None


def require_plan(pending: Pending, plan: str, *, approved: bool) -> None:
    """Whether a plan may come with this answer: with a yes, where one is shown. Raises Invalid."""
    shown = pending.prompt if isinstance(pending.prompt, dict) else {}
    if not approved or not isinstance(shown.get("plan"), str):
        raise Invalid("expected none: a plan is for the approval of a question that shows one", field="plan")
    if not plan.strip():
        raise Invalid("expected a plan that says something", field="plan")


def is_yes_or_no(call_id: str, pending: Pending) -> bool:
    """Whether an approval of a tool or a breakpoint is asked for. A graph's own question may have any answer."""
    if pending.kind is not SuspensionKind.APPROVAL:
        return False
    prompt = pending.prompt if isinstance(pending.prompt, dict) else {}
    return call_id.startswith(GATE) or "tool" in prompt or prompt.get("kind") == SuspensionKind.APPROVAL


def is_for_programs(pending: Pending) -> bool:
    """Whether a client resolves it, or an operator who can find out what happened."""
    return pending.kind in (SuspensionKind.CLIENT_EXEC, SuspensionKind.IN_DOUBT)


def answers_in_words(thread: Thread, text: str) -> Json:
    """What a text answers to all that a thread asks: several questions by their ids, as JSON. None for no answer.

    Raises InvalidState for questions that no person answers.
    """
    if all(is_for_programs(pending) for pending in thread.pending.values()):
        raise InvalidState(f"thread {thread.id!r} waits for a tool call that is resolved through the API")
    if len(thread.pending) > 1:
        answers = json_in(text)
        return answers if names_questions(answers, thread.pending) else None
    ((call_id, pending),) = thread.pending.items()
    return answer_in_words(call_id, pending, text) if text else None


def answer_in_words(call_id: str, pending: Pending, text: str) -> Json:
    """The answer that a text gives to a question: yes or no, JSON, or the text. None for a text that answers nothing."""
    if is_yes_or_no(call_id, pending):
        decided = decision(text)
        return None if decided is None else _verdict(*decided)
    match pending.prompt:
        case {"action_requests": [*requests]}:  # of LangChain's HumanInTheLoopMiddleware
            return json_in(text) or _decisions(text, requests)
        case _:
            return json_in(text) or text or None


def _verdict(approved: bool, feedback: str) -> Json:
    return {"approved": approved} | ({"feedback": feedback} if feedback else {})


def _decisions(text: str, requests: Sequence[Json]) -> Json:
    decided = decision(text)
    if decided is None:
        return None
    approved, feedback = decided
    one = {"type": "approve"} if approved else {"type": "reject", "message": feedback or "rejected"}
    return {"decisions": [one for _ in requests]}


def json_in(text: str) -> Json:
    """An object or a list, where the text is one as JSON; otherwise None."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
