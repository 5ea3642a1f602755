"""The checkpoint serializer: faithful to what LangGraph's own gives back, and no way to run code from a row."""

import json
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.base import CipherProtocol, SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Send
from pydantic import BaseModel

from clew.checkpointer.serializer import KIND, StrictSerializer, require_strict
from clew.checkpointer.values import load
from clew.domain.errors import ConfigError, Corrupt

THEIRS = JsonPlusSerializer(allowed_msgpack_modules=None)
OURS = StrictSerializer()

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
CONTENT = st.text(max_size=20) | st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=9)}), max_size=2
)
EXTRA = st.dictionaries(st.sampled_from(["a", "b"]), PLAIN, max_size=2)
TOOL_CALLS = st.lists(
    st.fixed_dictionaries({"name": st.just("f"), "args": EXTRA, "id": st.text(max_size=4)}), max_size=2
)
MESSAGES = st.one_of(
    st.builds(HumanMessage, CONTENT, name=st.none() | st.just("ann"), id=st.none() | st.just("1")),
    st.builds(SystemMessage, CONTENT, additional_kwargs=EXTRA),
    st.builds(
        AIMessage,
        CONTENT,
        tool_calls=TOOL_CALLS,
        additional_kwargs=EXTRA,
        response_metadata=EXTRA,
        usage_metadata=st.none() | st.just({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    ),
    st.builds(
        ToolMessage,
        CONTENT,
        tool_call_id=st.text(max_size=4),
        status=st.sampled_from(["success", "error"]),
        artifact=PLAIN,
    ),
    st.builds(HumanMessage, CONTENT, something_of_their_own=PLAIN),
)


class Colour(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Task:
    name: str
    message: BaseMessage


class Profile(BaseModel):
    name: str


def round_trip(serde: Any, value: Any) -> Any:
    return serde.loads_typed(serde.dumps_typed(value))


@given(st.lists(MESSAGES, max_size=4))
def test_messages_come_back_as_with_langgraphs_own(messages: list[BaseMessage]) -> None:
    ours, theirs = round_trip(OURS, messages), round_trip(THEIRS, messages)
    assert ours == theirs == messages
    for mine, other in zip(ours, theirs, strict=True):
        assert type(mine) is type(other)
        assert mine.model_dump() == other.model_dump()
        assert list(mine.model_dump()) == list(other.model_dump())
        assert mine.model_fields_set == other.model_fields_set
        assert mine.model_dump_json() == other.model_dump_json()


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"bytes",
        bytearray(b"bytes"),
        (1, [2, (3,)]),
        {1: "int key", "a": {"b": None}},
        datetime(2026, 3, 1, tzinfo=UTC),
        uuid.UUID(int=7),
        {"a", "b"},
        frozenset({1}),
        Path("/tmp"),
        Colour.RED,
        Point(1, 2),
        Task("t", HumanMessage("in a dataclass")),
        Profile(name="ann"),
        [AIMessageChunk(content="part", id="1"), RemoveMessage("1")],
        [Send("node", {"message": HumanMessage("in a send")})],
        (Interrupt("what?", id="i"),),
        {"messages": [HumanMessage("nested")], "deep": [{"message": AIMessage("deeper")}]},
        "\ud800 alone",
    ],
)
def test_everything_else_comes_back_as_with_langgraphs_own(value: Any) -> None:
    allowed = [Colour, Point, Task, Profile]
    ours = round_trip(StrictSerializer(allowed), value)
    theirs = round_trip(JsonPlusSerializer(allowed_msgpack_modules=allowed), value)
    assert type(ours) is type(theirs)
    assert ours == theirs


def test_messages_share_nothing() -> None:
    first, second = round_trip(OURS, [AIMessage("a"), AIMessage("b")])
    first.tool_calls.append({"name": "f", "args": {}, "id": "1"})
    first.additional_kwargs["a"] = 1
    assert second == AIMessage("b")
    assert round_trip(OURS, [AIMessage("a")]) == [AIMessage("a")]


def test_a_field_from_another_release_goes_through_validation() -> None:
    packed = ormsgpack.packb(ormsgpack.Ext(64, ormsgpack.packb((0, {"content": "x", "from_the_future": 1}))))
    message = OURS.loads_typed((KIND, packed))
    assert message == HumanMessage("x", from_the_future=1)


def test_a_type_that_is_not_allowed_comes_back_as_its_data() -> None:
    assert round_trip(OURS, [Profile(name="ann")]) == [{"name": "ann"}]
    assert round_trip(StrictSerializer([Profile]), [Profile(name="ann")]) == [Profile(name="ann")]
    named = StrictSerializer([(Profile.__module__, "Profile")])
    assert round_trip(named, [Profile(name="ann")]) == [Profile(name="ann")]


class TestForged:
    """FAULTS B8: rows that somebody else wrote."""

    @staticmethod
    def payloads(target: str) -> list[tuple[str, bytes]]:
        def ext(code: int, *parts: Any) -> bytes:
            return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(parts)))

        calls = [
            ext(0, "os", "mkdir", target),
            ext(1, "os", "mkdir", (target,)),
            ext(2, "os", "mkdir", {"path": target}),
            ext(3, "os", "path", target, "mkdir"),
            ext(4, "os", "mkdir", {"path": target}),
            ext(5, "os", "mkdir", {"path": target}, "x"),
            ext(0, "posix", "system", f"mkdir {target}"),
            ext(1, "subprocess", "run", (["mkdir", target],)),
            ext(0, "builtins", "exec", f"import os; os.mkdir({target!r})"),
            ext(0, "builtins", "eval", f"__import__('os').mkdir({target!r})"),
            ext(1, "importlib", "import_module", ("antigravity",)),
            ext(64, 0, {"content": "x"}, {"__class__": "y"}),
            ext(64, 99, {"content": "x"}),
            ext(64, -1, {"content": "x"}),
            ext(64, "0", {}),
            ext(64),
            ext(99, "x"),
        ]
        nested = [ormsgpack.packb(ormsgpack.Ext(65, call)) for call in calls]
        in_messages = [
            ormsgpack.packb(ormsgpack.Ext(64, ormsgpack.packb((0, {"content": ormsgpack.Ext(65, calls[0])}))))
        ]
        envelope = {"lc": 2, "type": "constructor", "id": ["os", "mkdir"], "args": [target]}
        pickled = b"cposix\nsystem\n(S'mkdir " + target.encode() + b"'\ntR."
        return [
            *((kind, data) for kind in (KIND, "msgpack") for data in (*calls, *nested, *in_messages)),
            ("json", json.dumps(envelope).encode()),
            ("pickle", pickled),
            ("bytes", pickled),
            ("msgpack+aes", pickled),
            ("", b""),
        ]

    @pytest.mark.fault("B8")
    def test_no_row_runs_code(self, tmp_path: Path) -> None:
        target = tmp_path / "forged"
        for serde in (StrictSerializer(), StrictSerializer([Profile, Task])):
            for kind, data in self.payloads(str(target)):
                with suppress(Corrupt):
                    load(serde, kind, data)
                assert not target.exists(), (kind, data)

    def test_they_would_with_langgraphs_default(self, tmp_path: Path) -> None:
        target = tmp_path / "forged"
        # The default depends on an environment variable; this is what it is without.
        permissive = JsonPlusSerializer(allowed_msgpack_modules=True)
        for kind, data in self.payloads(str(target)):
            if kind == "msgpack":
                permissive.loads_typed((kind, data))
        assert target.exists()

    @given(st.binary(max_size=60), st.sampled_from([KIND, "msgpack", "bytes", "null", "x"]))
    def test_any_bytes_are_data_or_corrupt(self, data: bytes, kind: str) -> None:
        try:
            value = load(OURS, kind, data)
        except Corrupt:
            return
        # What was read is data that can be stored and read again.
        assert load(OURS, *OURS.dumps_typed(value)) == value or value != value


class Cipher(CipherProtocol):
    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "xor", bytes(byte ^ 7 for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return bytes(byte ^ 7 for byte in ciphertext)


@pytest.mark.fault("B8", "G11")
def test_a_permissive_serializer_is_refused() -> None:
    for serde in (
        JsonPlusSerializer(allowed_msgpack_modules=True),
        JsonPlusSerializer(allowed_msgpack_modules=None, pickle_fallback=True),
        JsonPlusSerializer(allowed_msgpack_modules=None, allowed_json_modules=True),
        JsonPlusSerializer(allowed_msgpack_modules=None, __unpack_ext_hook__=lambda code, data: None),
        EncryptedSerializer(Cipher(), JsonPlusSerializer(allowed_msgpack_modules=True)),
        json,
    ):
        with pytest.raises(ConfigError, match="strict"):
            require_strict(serde)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "serde",
    [
        StrictSerializer(),
        JsonPlusSerializer(allowed_msgpack_modules=[Profile]),
        EncryptedSerializer(Cipher(), StrictSerializer()),
    ],
    ids=lambda serde: type(serde).__name__,
)
def test_a_strict_one_is_not(serde: SerializerProtocol) -> None:
    require_strict(serde)
    assert serde.loads_typed(serde.dumps_typed({"a": 1})) == {"a": 1}
