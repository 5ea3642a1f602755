"""`python -m evals`: run the cases through a server, print the tables of verdicts, exit 1 if a goal is missed.

First without a model, then with a recorded one; `--record` asks a real one in its place, and keeps what it said.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evals.cases import MODEL_CASES, Case, load_cases
from evals.files import read_file
from evals.recorded import MODEL, RecordedModel, load_recordings, save_recordings, serving
from evals.scoring import Answer, Score, Verdict, score
from evals.server import ask, serve

USEFUL_SHARE = 0.6


Scored = list[tuple[Case, Answer, Score]]


def run(
    cases: Sequence[Case], settings: Mapping[str, str], begin: Callable[[str], None] = lambda _: None
) -> Scored:
    found = []
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder), settings) as client:
        for case in cases:
            begin(case.id)
            files = {name: read_file(name) for name in case.files}
            answer = ask(client, case.prompt, files)
            found.append((case, answer, score(case, answer, sum(map(len, files.values())))))
    return found


def run_with_model(cases: Sequence[Case], model: RecordedModel) -> Scored:
    with serving(model) as url:
        settings = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", "CLEW_MODELS_OPENAI_MODEL": MODEL}
        return run(cases, settings, model.begin)


def table(scored: Sequence[tuple[Case, Answer, Score]]) -> str:
    counts: defaultdict[str, Counter[Verdict]] = defaultdict(Counter)
    for case, _, its in scored:
        counts[case.kind][its.verdict] += 1
        counts["all"][its.verdict] += 1
    counts["all"] = counts.pop("all")
    lines = ["| class | prompts | useful | refused | wrong |", "| --- | ---: | ---: | ---: | ---: |"]
    lines += [
        f"| {kind} | {sum(its.values())} | {' | '.join(str(its[one]) for one in Verdict)} |"
        for kind, its in counts.items()
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="evals")
    parser.add_argument("--only", default="", help="cases whose id contains this")
    parser.add_argument("--verbose", action="store_true", help="print every answer")
    parser.add_argument(
        "--record", default="", metavar="ADDRESS", help="record the model of this server, as .../v1"
    )
    parser.add_argument("--model", default="", help="its name there")
    parser.add_argument("--key", default="", metavar="VARIABLE", help="the variable with its key")
    given = parser.parse_args()
    if given.record:
        return record(
            given.record.rstrip("/"), given.model, os.environ.get(given.key, "") if given.key else ""
        )
    cases = [case for case in load_cases() if given.only in case.id]
    scored = run(cases, {})
    show(scored, "Without a model", verbose=given.verbose)
    model = RecordedModel(load_recordings())
    with_model = run_with_model([case for case in load_cases(MODEL_CASES) if given.only in case.id], model)
    show(with_model, "With a recorded model", verbose=given.verbose)
    print("\n".join(model.problems))
    missed = [*(_missed(cases, scored)), *model.problems]
    missed += [
        f"{case.id}: {its.verdict}" for case, _, its in with_model if its.verdict is not Verdict.USEFUL
    ]
    if missed:
        print(f"goal missed: {'; '.join(missed)}", file=sys.stderr)
    return int(bool(missed))


def record(address: str, name: str, key: str) -> int:
    model = RecordedModel({}, address=address, model=name, key=key)
    scored = run_with_model(load_cases(MODEL_CASES), model)
    save_recordings(model.turns)
    show(scored, f"With {name}", verbose=True)
    return 0


def show(scored: Scored, title: str, *, verbose: bool) -> None:
    for case, answer, its in scored:
        if verbose:
            print(
                f"\n=== {case.id} [{its.verdict}] {case.prompt}\n{answer.text}\n--- files: {', '.join(answer.files)}"
            )
        if its.problems and (verbose or its.verdict is Verdict.WRONG):
            print(f"{case.id}: {its.verdict}: {'; '.join(its.problems)}")
    print(f"\n{title}:\n\n{table(scored)}")


def _missed(cases: Sequence[Case], scored: Scored) -> list[str]:
    verdicts = Counter(its.verdict for *_, its in scored)
    missed = [f"{verdicts[Verdict.WRONG]} wrong"] if verdicts[Verdict.WRONG] else []
    if verdicts[Verdict.USEFUL] < USEFUL_SHARE * len(cases):
        missed.append(f"fewer than {USEFUL_SHARE:.0%} useful")
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
