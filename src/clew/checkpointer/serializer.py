"""Serializer of checkpoints: LangGraph's, strict, with chat messages in a smaller form.

What is read from a row may only become plain data, the types LangGraph knows to be safe, and the types an app
allowed by name. LangGraph's own default still imports and calls whatever a row names.
"""

from collections.abc import Iterable
from typing import Any

import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from clew.checkpointer.messages import MESSAGES, flatten, restore
from clew.domain.errors import ConfigError, Corrupt

KIND = "clew"

_MESSAGE = 64
_OTHER = 65
_OPTIONS = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_REPLACE_SURROGATES
)
# Anything else LangGraph once wrote ("json", "pickle") can name code, and we never wrote it.
_KINDS = frozenset({"null", "bytes", "bytearray", "msgpack"})


class StrictSerializer(JsonPlusSerializer):
    """Reads back plain data, LangGraph's safe types and the types in `allow`: classes, or (module, name) pairs.

    Of any other type only its plain data comes back.
    """

    def __init__(self, allow: Iterable[type | tuple[str, ...]] = ()) -> None:
        # None, not an empty list: without a list LangGraph would fall back to its environment variable.
        super().__init__(allowed_msgpack_modules=tuple(allow) or None)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if obj is None or isinstance(obj, bytes | bytearray):
            return super().dumps_typed(obj)
        return KIND, ormsgpack.packb(obj, default=self._pack_object, option=_OPTIONS)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, packed = data
        if kind == KIND:
            return ormsgpack.unpackb(packed, ext_hook=self._unpack_object, option=ormsgpack.OPT_NON_STR_KEYS)
        if kind not in _KINDS:
            raise Corrupt(f"a stored value is of the kind {kind[:40]!r}, which this Clew does not read")
        return super().loads_typed(data)

    def _pack_object(self, obj: Any) -> ormsgpack.Ext:
        if type(obj) in MESSAGES:
            return ormsgpack.Ext(_MESSAGE, self._pack(flatten(obj)))
        _, packed = super().dumps_typed(obj)
        return ormsgpack.Ext(_OTHER, packed)

    def _pack(self, obj: Any) -> bytes:
        return ormsgpack.packb(obj, default=self._pack_object, option=_OPTIONS)

    def _unpack_object(self, code: int, packed: bytes) -> Any:
        if code == _MESSAGE:
            return self._unpack_message(packed)
        if code == _OTHER:
            return super().loads_typed(("msgpack", packed))
        raise Corrupt(f"a stored value holds an object of the kind {code}, which this Clew does not read")

    def _unpack_message(self, packed: bytes) -> BaseMessage:
        return restore(
            ormsgpack.unpackb(packed, ext_hook=self._unpack_object, option=ormsgpack.OPT_NON_STR_KEYS)
        )


def require_strict(serde: SerializerProtocol) -> None:
    """Raises ConfigError unless what the serializer may build from a row is limited to a list."""
    inner = serde.serde if isinstance(serde, EncryptedSerializer) else serde
    if (
        not isinstance(inner, JsonPlusSerializer)
        or inner.pickle_fallback
        or inner._allowed_msgpack_modules is True
        or inner._allowed_json_modules is True
        or inner._custom_unpack_ext_hook
    ):
        raise ConfigError(
            "the checkpoint serializer must be strict: use clew.checkpointer.serializer.StrictSerializer(allow=[...]), or a"
            " JsonPlusSerializer with allowed_msgpack_modules and without pickle_fallback"
        )
