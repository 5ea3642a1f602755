"""Cases of the evaluation: a prompt, its files, and the rules that its answer is scored by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

_CASES = Path(__file__).with_name("cases.yaml")
MODEL_CASES = Path(__file__).with_name("model_cases.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    id: str
    kind: str
    prompt: str
    files: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    not_says: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    file: Mapping[str, Any] = field(default_factory=dict)
    refuse: Literal["due", "allowed", "never"] = "allowed"
    because: tuple[str, ...] = ()
    # At most so many sentences, and at most this share of the document's length.
    sentences: int = 0
    shorter: float = 0.0

    @property
    def language(self) -> str:
        return self.id.partition("-")[0]


def load_cases(path: Path = _CASES) -> list[Case]:
    return [_case(one) for one in yaml.safe_load(path.read_text("utf-8"))]


def _case(given: dict[str, Any]) -> Case:
    texts = ("files", "says", "figures", "not_says", "place", "because")
    values: dict[str, Any] = {name: tuple(map(str, given.pop(name, ()))) for name in texts}
    return Case(kind=given.pop("class"), **values, **given)
