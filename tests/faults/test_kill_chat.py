"""A chat whose process is killed in the middle goes on with its first unfinished task, and says nothing twice."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chats import agents_folder, plan_of, planning, tasks_of
from tests.faults.forkserver import ForkServer
from tests.openai_server import openai_server

PROMPTS = ("first part", "second part", "third part")
PLAN = plan_of(
    *(
        {
            "agent": "ann",
            "prompt": prompt,
            "outputDocuments": [{"label": f"d{n}.txt"}],
            "inputDocuments": [{"label": "sales.csv" if n == 0 else f"d{n - 1}.txt"}],
        }
        for n, prompt in enumerate(PROMPTS)
    ),
    final=("d2.txt",),
)
# In a model call, after each kind of step, between a message and what follows it.
PLACES = (
    "llm_after_before_commit",
    "checkpoint_put@4",
    "commit_written@18",
)
# Of the store's own places some at the beginning, in the middle and at the end.
ALL_PLACES = (
    "accept_after_commit_before_reply",
    "lease_taken",
    "llm_before",
    "llm_after_before_commit",
    *(f"checkpoint_put@{n}" for n in range(1, 7)),
    *(f"commit_begun@{n}" for n in (4, 9, 14, 19, 24)),
    *(f"commit_written@{n}" for n in (6, 12, 18, 26)),
    *(f"commit_done@{n}" for n in (5, 10, 15, 20, 25, 30)),
)
SAID = [
    ["step", "projectManager", "On it.", 0],
    *(["step", "ann", f"did {prompt}", 1] for prompt in PROMPTS),
    ["last", "projectManager", "said the model\n\nDone. Delivered: d2.txt.", 1],
]
LOGGED = [
    "Workflow initialized",
    "Workflow processing started",
    "Analyzing request and planning work",
    "Planned outputs",
    "Work plan created",
    *(f"Running task {n}/3: ann" for n in (1, 2, 3)),
    "Creating final response",
    "Workflow completed successfully",
]


@contextmanager
def planning_model() -> Iterator[str]:
    """The model's server, in a thread of its own: it outlives the processes that are killed."""
    loop = asyncio.new_event_loop()
    addresses: list[str] = []
    ready, done = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with openai_server(planning(PLAN)) as server:
            addresses.append(server.url)
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(20)
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(20)
        loop.close()


@pytest.mark.fault("A2")
@pytest.mark.accept("004-41")
@pytest.mark.timeout(300)
def test_finished_tasks_do_not_run_again(forks: ForkServer, where: str, tmp_path: Path) -> None:
    kill_at(PLACES, forks, where, tmp_path)


@pytest.mark.fault("A1")
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_wherever_the_process_dies(forks: ForkServer, where: str, tmp_path: Path) -> None:
    kill_at(ALL_PLACES, forks, where, tmp_path)


def kill_at(places: Sequence[str], forks: ForkServer, where: str, tmp_path: Path) -> None:
    killed = 0
    with planning_model() as url:
        for number, place in enumerate(places):
            name, _, hit = place.partition("@")
            trial = tmp_path / str(number)
            trial.mkdir()
            folder = agents_folder(trial, "ann")
            round_: dict[str, Any] = {
                "where": where,
                "folder": str(tmp_path),
                "thread_id": f"chat-{number}",
                "environ": {"CLEW_MODELS_OPENAI_BASE_URL": url, "CLEW_AGENTS_FOLDER": str(folder)},
            }
            first = forks.run(
                "tests.faults.chat_plays:play", failpoint=f"{name}:kill@{hit or 1}", timeout=90, **round_
            )
            killed += first.was_killed
            ended = forks.run("tests.faults.chat_plays:finish", timeout=90, **round_)
            assert ended.code == 0, (place, ended.reports)
            seen = ended.reports[-1]

            assert (seen["status"], seen["reason"]) == ("completed", None), (place, seen)
            assert seen["seqs"] == list(range(1, len(seen["seqs"]) + 1)), place
            assert seen["said"] == SAID, (place, seen["said"])
            survived = "The server was interrupted; the round continues where it was."
            assert [line for line in seen["logs"] if line != survived] == LOGGED, (place, seen["logs"])
            assert (survived in seen["logs"]) is first.was_killed or place == ALL_PLACES[0], (
                place,
                seen["logs"],
            )
            assert seen["added"] == ["sales", "d0", "d1", "d2"], (place, seen["added"])
            assert seen["made"]["d2.txt"] == "made of d1.txt.", place

            ran = Counter(task["prompt"] for task in tasks_of(folder))
            assert set(ran) == set(PROMPTS), place
            # Only what was under way when the process died may have been begun twice.
            assert sum(ran.values()) <= len(PROMPTS) + first.was_killed, (place, ran)
            if name == "checkpoint_put":
                assert sum(ran.values()) == len(PROMPTS), (place, ran)
    assert killed > len(places) / 2
