"""Commands on threads through the API: what waits, answers to it, stop and resume."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from clew.cli.client import Api, Target, open_api, part
from clew.cli.following import Follower, as_json_or_text, show_question
from clew.cli.opening import run
from clew.cli.output import say, say_json
from clew.cli.running import CODES
from clew.cli.terminal import Screen, confirm
from clew.domain.errors import Invalid, NotFound

MOST = 1000
APPROVALS = ("approval",)
ANSWERS = ("elicitation", "client_exec", "in_doubt")


def pending(thread: str | None, *, target: Target, as_json: bool) -> None:
    """What threads wait for: of one thread, or of all that wait."""

    async def work() -> list[dict[str, Any]]:
        async with open_api(target) as api:
            if thread is not None:
                return await _waiting(api, (await api.thread(thread))["id"])
            blocked = await api.pages("/api/threads", "threads", limit=MOST, status="blocked")
            return [call for one in blocked for call in await _waiting(api, one["id"])]

    calls = run(work())
    if as_json:
        say_json({"toolCalls": calls})
    elif not calls:
        say("Nothing waits for an answer.")
    else:
        screen = Screen()
        for call in calls:
            until = f", until {call['deadline'][:16].replace('T', ' ')}" if call["deadline"] else ""
            screen.line(f"{call['workflowId']}  {call['kind']}{until}")
            screen.line(f"  call {call['id']}", style="dim")
            show_question(screen, call)
            screen.line()


def search(words: str, *, limit: int, target: Target, as_json: bool) -> None:
    async def work() -> list[dict[str, Any]]:
        async with open_api(target) as api:
            found: list[dict[str, Any]] = (await api.get("/api/threads/search", q=words, limit=limit))[
                "found"
            ]
            return found

    found = run(work())
    if as_json:
        say_json({"found": found})
        return
    if not found:
        say("No thread has these words.")
    screen = Screen()
    for one in found:
        thread = one["thread"]
        screen.line(f"{thread['id']}  {thread['status']}  {thread['name']}")
        for match in one["matches"]:
            if match["messageId"]:
                screen.line(f"  {match['role']}: {match['text']}", style="dim")


def approve(
    thread: str,
    *,
    call: str | None,
    feedback: str,
    plan: Path | None,
    follow: bool,
    target: Target,
    as_json: bool,
) -> None:
    body: dict[str, Any] = {"approved": True, "feedback": feedback}
    if plan is not None:
        try:
            body["plan"] = plan.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise Invalid(f"--plan: {plan} cannot be read as text") from exc
    _answer(thread, call, APPROVALS, body, follow, target, as_json)


def reject(
    thread: str, *, call: str | None, feedback: str, follow: bool, target: Target, as_json: bool
) -> None:
    if not feedback.strip():
        raise Invalid("--feedback: say why")
    _answer(thread, call, APPROVALS, {"approved": False, "feedback": feedback}, follow, target, as_json)


def answer(
    thread: str,
    text: str | None,
    *,
    call: str | None,
    retry: bool,
    follow: bool,
    target: Target,
    as_json: bool,
) -> None:
    if (text is None) != retry:
        raise Invalid("give an answer, or --retry for a call in doubt that did not happen")
    body = {"retry": True} if text is None else {"answer": as_json_or_text(text)}
    _answer(thread, call, (*ANSWERS, *APPROVALS), body, follow, target, as_json)


def stop(thread: str, *, yes: bool, target: Target, as_json: bool) -> None:
    async def act(api: Api, found: dict[str, Any]) -> Any:
        confirm(f"Stop {found['id']} ({found['name']}) for good?", yes=yes)
        return await api.post(f"/api/workflows/{part(found['id'])}/stop")

    _command(thread, act, "is stopped", follow=False, target=target, as_json=as_json)


def resume(thread: str, *, follow: bool, target: Target, as_json: bool) -> None:
    async def act(api: Api, found: dict[str, Any]) -> Any:
        return await api.post(f"/api/workflows/{part(found['id'])}/resume")

    _command(thread, act, "continues", follow=follow, target=target, as_json=as_json)


def _answer(
    thread: str,
    call: str | None,
    kinds: tuple[str, ...],
    body: dict[str, Any],
    follow: bool,
    target: Target,
    as_json: bool,
) -> None:
    async def act(api: Api, found: dict[str, Any]) -> Any:
        chosen = _choose(found["id"], await _waiting(api, found["id"]), kinds, call)
        return await api.post(
            f"/api/workflows/{part(found['id'])}/tool-calls/{part(chosen['id'])}/resolve", body
        )

    word = {True: "is approved", False: "is rejected"}.get(body.get("approved", ""), "is answered")
    _command(thread, act, word, follow=follow, target=target, as_json=as_json)


def _choose(
    thread_id: str, calls: list[dict[str, Any]], kinds: tuple[str, ...], given: str | None
) -> dict[str, Any]:
    """The call with this id or the beginning of it; without one, the only call of these kinds."""
    if given is not None:
        found = [one for one in calls if one["id"] == given] or [
            one for one in calls if one["id"].startswith(given)
        ]
    else:
        found = [one for one in calls if one["kind"] in kinds]
    if not found:
        raise NotFound(f"{thread_id} waits for no such answer; `clew pending` shows what it waits for")
    if len(found) > 1:
        shown = ", ".join(one["id"] for one in found[:3])
        raise Invalid(f"{thread_id} waits for {len(found)} answers; choose one with --call: {shown}")
    return found[0]


def _command(
    thread: str,
    act: Callable[[Api, dict[str, Any]], Awaitable[Any]],
    word: str,
    *,
    follow: bool,
    target: Target,
    as_json: bool,
) -> None:
    if follow and as_json:
        raise Invalid("--follow and --json exclude each other")

    async def work() -> int:
        async with open_api(target, runs=follow) as api:
            found = await api.thread(thread)
            done = await act(api, found)
            if as_json:
                say_json(done)
                return 0
            say(f"{found['id']} {word}.")
            if not follow:
                if api.is_local:
                    say("`clew serve` on this database continues it, and so does --follow.")
                return 0
            follower = Follower(api, Screen(), found["id"], found["lastSeq"])
            return CODES[await follower.follow()]

    if code := run(work()):
        raise SystemExit(code)


async def _waiting(api: Api, thread_id: str) -> list[dict[str, Any]]:
    calls = (await api.get(f"/api/workflows/{part(thread_id)}/tool-calls"))["toolCalls"]
    return [call for call in calls if call["waiting"]]
