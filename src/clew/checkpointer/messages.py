"""Chat messages as small tuples: what differs from a fresh message, without validating again what was valid.

LangGraph's serializer dumps every field of a message and runs its validators on load: about 10 us and 200 bytes
a message more than its text. A thread of a thousand turns is loaded message by message, so here it counts.
"""

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

Payload = tuple[int, dict[str, Any]] | tuple[int, dict[str, Any], dict[str, Any]]


class _Shape:
    """What one message class looks like when nothing was set."""

    def __init__(self, cls: type[BaseMessage]) -> None:
        self.cls = cls
        # One set for all messages: assigning a field adds its name, and they are all in it.
        self.every = set(cls.model_fields)
        self.defaults: dict[str, Any] = {
            name: info.get_default(call_default_factory=True)
            for name, info in cls.model_fields.items()
            if not info.is_required()
        }
        # Containers must not be shared between messages; everything else may.
        self.fresh: tuple[tuple[str, Callable[[], Any]], ...] = tuple(
            (name, type(value)) for name, value in self.defaults.items() if type(value) in (list, dict, set)
        )
        # In the order of the fields, because dumps and reprs follow it.
        self.blank = {name: self.defaults.get(name) for name in cls.model_fields}


# The position is what is stored: add at the end, never remove.
_SHAPES = tuple(_Shape(cls) for cls in (HumanMessage, AIMessage, SystemMessage, ToolMessage))
_CODES = {shape.cls: code for code, shape in enumerate(_SHAPES)}

MESSAGES = frozenset(_CODES)
_UNSET = object()


def flatten(message: BaseMessage) -> Payload:
    """The message as its class's number and what differs from the defaults. Its type must be one of MESSAGES."""
    code = _CODES[type(message)]
    defaults = _SHAPES[code].defaults
    fields = {name: value for name, value in message.__dict__.items() if defaults.get(name, _UNSET) != value}
    extra = message.__pydantic_extra__
    return (code, fields, extra) if extra else (code, fields)


def restore(payload: Payload) -> BaseMessage:
    """The message again. A field this release does not know goes through the class's own validation."""
    code, fields = payload[0], payload[1]
    extra = payload[2] if len(payload) > 2 else {}
    shape = _SHAPES[code]
    if not fields.keys() <= shape.every:
        return shape.cls(**fields, **extra)
    state = shape.blank.copy()
    state.update(fields)
    for name, make in shape.fresh:
        if name not in fields:
            state[name] = make()
    message = shape.cls.__new__(shape.cls)
    # As pydantic unpickles: the fields were validated when the message was made.
    message.__setstate__(
        {
            "__dict__": state,
            "__pydantic_extra__": extra,
            "__pydantic_fields_set__": shape.every | extra.keys() if extra else shape.every,
            "__pydantic_private__": None,
        }
    )
    return message
