"""Scores: whether an answer is useful, a plain refusal, or wrong. They know the answer, and nothing of the product."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from io import BytesIO
from pathlib import Path

import docx
import openpyxl
from PIL import Image

from evals.cases import Case

_NUMBER = re.compile(r"[-−]?\d(?:[\d.,\u00a0\u202f ’']*\d)?")
_CODE = re.compile(r"```.*?```|`[^`]*`|“[^”]*”", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]+")
_SENTENCE = re.compile(r"[.!?。](?:\s|$)")
_HAN = re.compile(r"[\u4e00-\u9fff]")

# What a person takes for a refusal.
_REFUSALS: Mapping[str, str] = {
    "en": r"\b(cannot|can't|could not|couldn't|did not do|am not sure|not able|unable)\b",
    "de": r"\b(nicht (getan|gemacht)|kann\b.*\bnicht|konnte\b.*\bnicht|nicht sicher|nicht möglich|nicht erledigt)\b",
    "fr": r"\b(ne (peux|sais|suis)|(n|ne l)['’]ai pas|pas pu|impossible|pas sûr)\b",
    "es": r"\b(no puedo|no pude|no he podido|no lo he hecho|no hice|no estoy segur[oa]|imposible)\b",
    "it": r"\b(non (posso|ho potuto|l['’]ho fatto|ho fatto|so|sono sicur[oa]))\b",
    "pt": r"\b(não (posso|pude|consigo|consegui|fiz|o fiz|sei|tenho certeza))\b",
    "zh": r"(无法|不能|没有做|未能|没能|不确定|做不到)",
}
_COMMON: Mapping[str, str] = {
    "en": "the of and to is in for with from by not this what are was a that have it you which",
    "de": "der die das und ist nicht ein eine von mit zu für auf den dem im ich sie es aus wird was",
    "fr": "le la les des et est pas un une du de pour dans avec je vous que qui sur ce au en",
    "es": "el la los las y es no un una de para con del que en se por lo su al hay",
    "it": "il la le gli e è non un una di per con del che in si lo della dei nel da sono",
    "pt": "o a os as e é não um uma de para com do da que em se por no na dos foi",
}


class Verdict(StrEnum):
    USEFUL = "useful"
    REFUSED = "refused"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All that a person sees of one round: what was said, the last message, and the files of the last message."""

    text: str
    last: str
    files: Mapping[str, bytes]
    status: str = "completed"
    # What was said after the plan.
    reply: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    verdict: Verdict
    problems: Sequence[str] = field(default_factory=tuple)


def score(case: Case, answer: Answer, given: int) -> Score:
    """`given` is the number of characters in the case's files."""
    problems = list(_problems(case, answer, given))
    foreign = [] if _speaks(answer.text, case.language) else [f"it is not in {case.language}"]
    is_refusal = not answer.files and bool(re.search(_REFUSALS[case.language], answer.last, re.IGNORECASE))
    if case.refuse == "due":
        unsaid = [f"it does not name {one}" for one in case.because if one not in answer.text]
        if is_refusal and not (unsaid or foreign):
            return Score(Verdict.REFUSED)
        return Score(Verdict.WRONG, [*unsaid, *foreign, *([] if is_refusal else ["it does not refuse"])])
    if not (problems or foreign or (is_refusal and case.refuse == "never")):
        return Score(Verdict.USEFUL)
    if is_refusal and case.refuse == "allowed" and not foreign:
        return Score(Verdict.REFUSED, problems)
    return Score(Verdict.WRONG, [*problems, *foreign])


def _problems(case: Case, answer: Answer, given: int) -> Iterator[str]:
    if answer.status != "completed":
        yield f"the round is {answer.status}"
    for wanted in case.says:
        if not any(_holds(answer.text, one) for one in wanted.split("|")):
            yield f"it does not say {wanted}"
    for figure in case.figures:
        if figure not in answer.text:
            yield f"it does not write {figure}"
    for unwanted in case.not_says:
        if _holds(answer.text, unwanted):
            yield f"it says {unwanted}"
    for wanted in case.place:
        if not any(one in answer.text for one in wanted.split("|")):
            yield f"it does not name {wanted} as its place"
    if case.sentences and len(_SENTENCE.findall(answer.reply)) > case.sentences + 2:
        yield f"it has more than {case.sentences} sentences"
    if case.shorter and len(answer.reply) > case.shorter * given:
        yield f"it is longer than {case.shorter:.0%} of the document"
    if case.file:
        yield from _file_problems(case.file, answer.files)


def _file_problems(wanted: Mapping[str, object], files: Mapping[str, bytes]) -> Iterator[str]:
    ending = str(wanted["ext"])
    data = next((data for name, data in files.items() if name.endswith(f".{ending}")), None)
    if data is None:
        yield f"there is no {ending} among {', '.join(files) or 'no files'}"
        return
    match ending:
        case "png":
            with Image.open(BytesIO(data)) as image:
                image.verify()
        case "xlsx":
            yield from _workbook_problems(wanted, data)
        case "docx":
            text = "\n".join(one.text for one in docx.Document(BytesIO(data)).paragraphs)
            yield from _missing(wanted, text)
        case "py":
            yield from _script_problems(wanted, data)
        case _:
            yield from _missing(wanted, data.decode(errors="replace"))


def _workbook_problems(wanted: Mapping[str, object], data: bytes) -> Iterator[str]:
    rows = [
        [str(cell) for cell in row if cell is not None]
        for row in openpyxl.load_workbook(BytesIO(data)).worksheets[0].iter_rows(values_only=True)
    ]
    yield from _missing(wanted, "\n".join(" | ".join(row) for row in rows))
    if "rows" in wanted and len(rows) != wanted["rows"]:
        yield f"the sheet has {len(rows)} rows"
    if "first" in wanted and wanted["first"] not in rows[1]:
        yield f"the first row is {rows[1]}"
    if "last" in wanted and wanted["last"] not in rows[-1]:
        yield f"the last row is {rows[-1]}"


def _script_problems(wanted: Mapping[str, object], data: bytes) -> Iterator[str]:
    """Run it beside the files of the evaluation, and read what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "made.py").write_bytes(data)
        for one in (Path(__file__).parent / "files").glob("*.csv"):
            (place / one.name).write_bytes(one.read_bytes())
        ran = subprocess.run(
            [sys.executable, "made.py"], cwd=place, capture_output=True, text=True, timeout=20, check=False
        )
    if not _holds(ran.stdout, str(wanted["runs"])):
        yield f"it prints {ran.stdout[:80]!r}"


def _missing(wanted: Mapping[str, object], text: str) -> Iterator[str]:
    needed = wanted.get("contains", ())
    for one in needed if isinstance(needed, list) else ():
        if not _holds(text, str(one)):
            yield f"the file does not contain {one}"


def _holds(text: str, wanted: str) -> bool:
    """A number in any notation; of a text the characters, whatever their case."""
    try:
        number = float(wanted)
    except ValueError:
        return wanted.casefold() in text.casefold()
    exactness = 0.5 * 10 ** -len(wanted.partition(".")[2])
    return any(abs(one - number) < exactness + 1e-9 for one in _numbers(text))


def _numbers(text: str) -> Iterator[float]:
    for match in _NUMBER.finditer(text):
        bare = re.sub(r"[\u00a0\u202f ’']", "", match[0].replace("−", "-")).rstrip(".,")
        for decimal, thousands in ((".", ","), (",", ".")):
            try:
                yield float(bare.replace(thousands, "").replace(decimal, "."))
            except ValueError:
                continue


def _speaks(text: str, language: str) -> bool:
    """Whether most of the small words are of the language. Quotes, tables, names and queries are of none."""
    prose = "\n".join(
        line for line in _CODE.sub(" ", text).splitlines() if not line.lstrip().startswith(("|", ">"))
    )
    if language == "zh":
        return bool(_HAN.search(prose))
    said = _WORD.findall(prose.casefold())
    counts = {code: sum(word in its.split() for word in said) for code, its in _COMMON.items()}
    return counts[language] == max(counts.values()) and not _HAN.search(prose)
