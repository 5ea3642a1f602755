"""Interview rules: which questions to ask the author of a document, and how answers change it. No model.

Each question is about one weak spot and quotes it, so that the answer can be inserted exactly there.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice

MOST = 6
# Answers that skip a question.
SKIPPED = frozenset({"", "-", "no", "none", "n/a", "skip", "pass"})

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_GAP = re.compile(r"\[[^\[\]\n]{1,40}\](?!\()|\b(?:TODO|TBD|TBC|XXX+|FIXME)\b|_{3,}", re.ASCII)
_VAGUE = re.compile(
    r"\b(?:many|several|various|numerous|a lot of|significant(?:ly)?|substantial(?:ly)?|improved?|increased?|reduced?"
    r"|faster|better|helped|responsible for|worked on|involved in|soon|recently)\b",
    re.IGNORECASE,
)
_ABBREVIATION = re.compile(r"\b[A-Z][A-Z0-9]{1,5}\b", re.ASCII)
_EXPLAINED = re.compile(r"\(([A-Z][A-Z0-9]{1,5})\)", re.ASCII)
_WORD = re.compile(r"[^\W\d_][\w+#.-]{2,}")
_KNOWN = frozenset(
    {
        "API",
        "PDF",
        "HTML",
        "HTTP",
        "HTTPS",
        "URL",
        "CEO",
        "CTO",
        "EU",
        "UK",
        "US",
        "USA",
        "IT",
        "SQL",
        "CSS",
        "JSON",
        "ID",
        "OK",
    }
)


class QuestionKind(StrEnum):
    GAP = "gap"  # something was left open
    CLAIM = "claim"  # said without a number or a name
    TERM = "term"  # a word the reader may not know
    WANTED = "wanted"  # the goal asks for it, the document is silent
    POINT = "point"  # the document does not say what the reader should know or do


@dataclass(frozen=True, slots=True, kw_only=True)
class InterviewQuestion:
    kind: QuestionKind
    quote: str  # the spot it is about, as it stands in the document; empty for the whole
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Improved:
    text: str
    changes: tuple[str, ...]


def questions(document: str, goal: str = "", *, most: int = MOST) -> list[InterviewQuestion]:
    """The questions, the most useful first. There is always one."""
    # Stops at the limit: a document may have very many weak spots.
    found = islice(
        chain(_gaps(document), _wanted(document, goal), _claims(document), _terms(document)), most - 1
    )
    point = InterviewQuestion(
        kind=QuestionKind.POINT,
        quote="",
        text="In one sentence: what should the reader know or do after reading this?",
    )
    return [*found, point]


def is_skipped(answer: str) -> bool:
    return answer.strip().lower().rstrip(".!") in SKIPPED


def improve(document: str, asked: Sequence[InterviewQuestion], answers: Sequence[str]) -> Improved:
    """The document with every answer at its place. What was skipped stays as it was."""
    text = document.strip()
    changes: list[str] = []
    for question, answer in zip(asked, answers, strict=False):
        if is_skipped(answer):
            continue
        text = _USES[question.kind](text, question.quote, answer.strip())
        changes.append(f"{_CHANGED[question.kind]}: {question.quote or answer.strip()}")
    return Improved(text=text + "\n", changes=tuple(changes))


def _gaps(document: str) -> Iterator[InterviewQuestion]:
    seen: set[str] = set()
    for line in document.splitlines():
        for gap in _GAP.findall(line):
            if line not in seen:
                seen.add(line)
                yield InterviewQuestion(
                    kind=QuestionKind.GAP,
                    quote=line.strip(),
                    text=f"Here something was left open: \N{LEFT DOUBLE QUOTATION MARK}{_short(line)}"
                    f"\N{RIGHT DOUBLE QUOTATION MARK}. What should stand in place of {gap}?",
                )


def _claims(document: str) -> Iterator[InterviewQuestion]:
    for sentence in _sentences(document):
        vague = _VAGUE.search(sentence)
        if vague and not any(character.isdigit() for character in sentence) and not _GAP.search(sentence):
            yield InterviewQuestion(
                kind=QuestionKind.CLAIM,
                quote=sentence,
                text=f"You write: \N{LEFT DOUBLE QUOTATION MARK}{_short(sentence.rstrip('.!?'))}\N{RIGHT DOUBLE QUOTATION MARK}."
                f" Can you put a number, a name or a date to {vague[0].lower()!r}?",
            )


def _terms(document: str) -> Iterator[InterviewQuestion]:
    seen: set[str] = {*_KNOWN, *_EXPLAINED.findall(document)}
    for term in _ABBREVIATION.findall(document):
        if term not in seen and not _GAP.fullmatch(term):
            seen.add(term)
            yield InterviewQuestion(kind=QuestionKind.TERM, quote=term, text=f"What does {term} stand for?")


def _wanted(document: str, goal: str) -> Iterator[InterviewQuestion]:
    said = {word.lower().strip(".-") for word in _WORD.findall(document)}
    seen: set[str] = set()
    # Words that begin a sentence somewhere: their capital says nothing.
    first = {word for word, begins in _words(goal) if begins}
    for word, _ in _words(goal):
        key = word.lower()
        # Names and terms are written with a capital, or with signs in them; other words say little by themselves.
        if key in said or key in seen or not _is_name(word, begins_sentence=word in first):
            continue
        seen.add(key)
        yield InterviewQuestion(
            kind=QuestionKind.WANTED,
            quote=word,
            text=f"The goal asks for {word}, and the document does not mention it. What is there to say about it?",
        )


def _words(text: str) -> Iterator[tuple[str, bool]]:
    """The words, each with whether it begins a sentence or a point of a list."""
    end = 0
    for match in _WORD.finditer(text):
        word = match[0].strip(".-")
        before = text[end : match.start()]
        told = before.rstrip()
        space = before[len(told) :]
        begins = (
            match.start() == 0
            or "\n" in space
            or told[-1:] in {*".!?:"}
            or (space != "" and told[-1:] in {*"-*"})
        )
        yield word, begins
        end = match.start() + len(match[0].rstrip(".-"))


def _is_name(word: str, *, begins_sentence: bool) -> bool:
    return (
        any(sign in word for sign in "+#.")
        or any(c.isupper() for c in word[1:])
        or (word[0].isupper() and not begins_sentence)
    )


def _sentences(document: str) -> Iterator[str]:
    for line in document.splitlines():
        if not line.lstrip().startswith("#"):
            for match in _SENTENCE.findall(line):
                sentence = match.strip().lstrip("-*• ").strip()
                if sentence:
                    yield sentence


def _fill(text: str, quote: str, answer: str) -> str:
    return text.replace(quote, _GAP.sub(lambda _: answer.rstrip("."), quote, count=1), 1)


def _specify(text: str, quote: str, answer: str) -> str:
    end = quote[-1] if quote[-1] in ".!?" else ""
    return text.replace(quote, f"{quote.rstrip('.!?')} ({answer.rstrip('.')}){end}", 1)


def _spell_out(text: str, quote: str, answer: str) -> str:
    return re.sub(rf"\b{re.escape(quote)}\b", lambda _: f"{answer.rstrip('.')} ({quote})", text, count=1)


def _add(text: str, quote: str, answer: str) -> str:
    return f"{text}\n\n**{quote}.** {_sentence(answer)}"


def _lead(text: str, quote: str, answer: str) -> str:  # noqa: ARG001 - as the others
    heading, newline, rest = text.partition("\n")
    if heading.startswith("#"):
        return f"{heading}\n\n{_sentence(answer)}\n{newline}{rest.lstrip()}"
    return f"{_sentence(answer)}\n\n{text}"


def _sentence(answer: str) -> str:
    return answer[0].upper() + answer[1:] + ("" if answer[-1] in ".!?" else ".")


def _short(line: str) -> str:
    line = line.strip()
    return line if len(line) <= 160 else f"{line[:157]}..."


_USES: Mapping[QuestionKind, Callable[[str, str, str], str]] = {
    QuestionKind.GAP: _fill,
    QuestionKind.CLAIM: _specify,
    QuestionKind.TERM: _spell_out,
    QuestionKind.WANTED: _add,
    QuestionKind.POINT: _lead,
}
_CHANGED: Mapping[QuestionKind, str] = {
    QuestionKind.GAP: "filled in",
    QuestionKind.CLAIM: "made specific",
    QuestionKind.TERM: "spelled out",
    QuestionKind.WANTED: "added",
    QuestionKind.POINT: "put first",
}
