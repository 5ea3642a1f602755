"""A program that takes the options of Claude Code and answers like it; how, stands in a folder the tests write to.

    python fake_claude.py FOLDER -p --output-format stream-json ...

It notes every call in FOLDER/calls.jsonl. FOLDER/mode says what is to go wrong, FOLDER/rejections how often the
reviewer says no. A developer writes half of its work, then waits while FOLDER/wait is there; with FOLDER/typo it makes
a mistake until it is shown what the tests wrote. The reviewer says no to tests that fail.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

folder = Path(sys.argv[1])


def told(name: str) -> str:
    path = folder / name
    return path.read_text().strip() if path.exists() else ""


def tell(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def say(text: str, *, is_error: bool = False, code: int = 0) -> None:
    answer: dict[str, Any] = {
        "type": "result",
        "subtype": "success",  # also of errors, as the real one does
        "is_error": is_error,
        "result": text,
        "session_id": f"session-{os.getpid()}",
        "usage": {"input_tokens": 11, "output_tokens": 7},
    }
    tell(answer)
    sys.exit(code)


def wait() -> None:
    while (folder / "wait").exists():
        time.sleep(0.01)


def note(prompt: str) -> None:
    call = {
        "argv": sys.argv[2:],
        "cwd": str(Path.cwd()),
        "environment": dict(os.environ),  # noqa: TID251 - it is what is looked at
        "pid": os.getpid(),
        "prompt": prompt,
    }
    with (folder / "calls.jsonl").open("a") as file:
        file.write(json.dumps(call) + "\n")


def misbehave(mode: str) -> None:
    match mode:
        case "overloaded":
            say('API Error: 529 {"type":"overloaded_error","message":"Overloaded"}', is_error=True, code=1)
        case "thinks":
            say("<think>a secret thought</think>Four.")
        case "rate limit":
            say("API Error: Rate limit reached", is_error=True)
        case "login":
            say("Invalid API key · Please run /login", is_error=True, code=1)
        case "crash":
            sys.stderr.write("a-secret-it-should-not-repeat")
            sys.exit(3)
        case "nonsense":
            sys.stdout.write("no JSON at all")
            sys.exit(0)
        case "silence":
            say("")
        case "flood":
            while True:
                sys.stdout.write("x" * 65536)
        case "hang":
            # Neither a polite request nor the end of its parent ends it, nor its child.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            (folder / "pids").write_text(f"{os.getpid()} {child.pid}")
            time.sleep(600)
        case "orphan":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            (folder / "pids").write_text(f"{os.getpid()} {child.pid}")
        case _:
            pass


def look_around() -> None:
    """As programs of this kind do before they answer."""
    for command in (["git", "status"], ["git", "diff", "HEAD"], ["git", "log", "-1"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        with (folder / "git.log").open("a") as file:
            file.write(done.stdout + done.stderr)


def act(prompt: str) -> None:
    if (folder / "git").exists() and not prompt.startswith("You are the developer"):
        look_around()
    if prompt.startswith("You are the architect"):
        if (folder / "meddle").exists():
            Path("meddled.txt").write_text("before anybody approved\n")
        say("# A plan\n\n1. Write `hello.txt`.\n")
    if prompt.startswith("You are the developer"):
        Path("half.txt").write_text("half\n")
        use = {"type": "tool_use", "name": "Write", "input": {"file_path": "hello.txt", "content": "hello"}}
        tell({"type": "assistant", "message": {"content": [use]}})
        (folder / "begun").write_text(str(os.getpid()))
        wait()
        is_wrong = (folder / "typo").exists() and 'label="tests"' not in prompt
        Path("hello.txt").write_text("helo\n" if is_wrong else "hello\n")
        say("I wrote hello.txt.")
    if prompt.startswith("You are the reviewer"):
        if "Tests failed" in prompt:
            say(json.dumps({"approved": False, "remarks": "the tests fail"}))
        left = int(told("rejections") or "0")
        if left:
            (folder / "rejections").write_text(str(left - 1))
            say(json.dumps({"approved": False, "remarks": f"not yet: {left}"}))
        say(json.dumps({"approved": True, "remarks": "as planned"}))
    say(f"you said: {prompt[-200:]}")


if __name__ == "__main__":
    given = sys.stdin.read()
    # Read before the call is seen: a test may change it then.
    mode = told("mode")
    note(given)
    tell({"type": "system", "subtype": "init", "session_id": f"session-{os.getpid()}"})
    misbehave(mode)
    act(given)
