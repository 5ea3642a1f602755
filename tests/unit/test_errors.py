"""The error tree: stable codes, a true drawing, and errors that survive being copied."""

import copy
import inspect

import pytest

from clew.domain import errors
from clew.domain.errors import (
    AlreadyDone,
    ClewError,
    Conflict,
    Invalid,
    LostLease,
    StorageFull,
    Transient,
    Unavailable,
)

ALL = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, ClewError)]


def test_every_error_has_its_own_upper_snake_code() -> None:
    codes = [cls.code for cls in ALL]
    assert len(set(codes)) == len(codes)
    assert all(code.replace("_", "").isupper() for code in codes)


@pytest.mark.parametrize("cls", [cls for cls in ALL if cls is not ClewError])
def test_the_drawing_at_the_top_names_every_error_with_its_code(cls: type[ClewError]) -> None:
    drawn = [line.split() for line in (errors.__doc__ or "").splitlines()]
    assert any(words[1:3] == [cls.__name__, cls.code] for words in drawn)


@pytest.mark.parametrize("cls", [cls for cls in ALL if cls is not AlreadyDone])
def test_an_error_without_a_message_still_says_something(cls: type[ClewError]) -> None:
    assert str(cls())
    assert "\n" not in str(cls())
    assert str(cls("no thread 't1'")) == "no thread 't1'"


def test_a_repetition_carries_the_answer_of_the_first_time() -> None:
    repeated = copy.copy(AlreadyDone({"thread_id": "t1"}))
    assert repeated.answer == {"thread_id": "t1"}
    assert "t1" not in str(repeated)


def test_special_cases_are_caught_as_their_general_case() -> None:
    assert issubclass(LostLease, Conflict)
    assert issubclass(StorageFull, Unavailable)


def test_errors_keep_their_fields_when_rebuilt_from_their_parts() -> None:
    # A guarded child process sends errors home this way; a required argument would break it there.
    invalid = copy.copy(Invalid("must be positive", field="limit"))
    assert (str(invalid), invalid.field) == ("must be positive", "limit")
    transient = copy.copy(Transient("busy", "rate_limit", 2.5))
    assert (transient.error_class, transient.retry_after) == ("rate_limit", 2.5)
