"""`python -m evals`: run the cases through a server, print the table of verdicts, exit 1 if a goal is missed."""

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from evals.cases import Case, load_cases
from evals.files import read_file
from evals.scoring import Answer, Score, Verdict, score
from evals.server import ask, serve

USEFUL_SHARE = 0.6


def run(cases: Sequence[Case], settings: Mapping[str, str]) -> list[tuple[Case, Answer, Score]]:
    found = []
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder), settings) as client:
        for case in cases:
            files = {name: read_file(name) for name in case.files}
            answer = ask(client, case.prompt, files)
            found.append((case, answer, score(case, answer, sum(map(len, files.values())))))
    return found


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
    given = parser.parse_args()
    cases = [case for case in load_cases() if given.only in case.id]
    scored = run(cases, {})
    for case, answer, its in scored:
        if given.verbose:
            print(
                f"\n=== {case.id} [{its.verdict}] {case.prompt}\n{answer.text}\n--- files: {', '.join(answer.files)}"
            )
        if its.problems and (given.verbose or its.verdict is Verdict.WRONG):
            print(f"{case.id}: {its.verdict}: {'; '.join(its.problems)}")
    print(table(scored))
    verdicts = Counter(its.verdict for *_, its in scored)
    missed = verdicts[Verdict.WRONG] > 0 or verdicts[Verdict.USEFUL] < USEFUL_SHARE * len(cases)
    if missed:
        print(f"goal missed: 0 wrong and at least {USEFUL_SHARE:.0%} useful", file=sys.stderr)
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
