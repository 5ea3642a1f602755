"""Generator of docs/reference/events.md and docs/reference/python.md: `python tools/reference_pages.py` writes both anew."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clew
from clew.domain.events import BODIES

FOLDER = Path(__file__).parents[1] / "docs" / "reference"

EVENTS = """# Events

Everything that happens to a thread is an event in its log. The types below are all there are. `data` of a
[stream](../howto/stream-events.md) and `content` in the `log.jsonl` of an [export](commands.md#clew-export) have these fields.
New versions of Clew add fields with defaults and read every older log.

Each event also has its `seq` (dense, from 1), an `id`, its `round`, its `type`, and the time `at` by the database's clock. A
stream calls the events that begin, block and end a round by other names: see
[Follow events](../howto/stream-events.md#event-types).

*This page is made from `src/clew/domain/events.py` by `tools/reference_pages.py`.*
"""

PYTHON = """# Python API

What `import clew` gives, by the names that `dir(clew)` shows. Other modules are internal and may change in any version, except
`clew.domain.errors` and what the how-to guides import.

| you want to ... | use |
|---|---|
| keep checkpoints in your own program | `create_checkpointer`, with `async with` or `with`: [guide](../howto/checkpointer.md) |
| remember chats across threads | `AgentNode`, `ChatHistory`, `create_graph_store`: [guide](../howto/remember-a-chat.md) |
| have tools approved and not silently repeated | `tool`, `Agent`, `ToolLedger`: [guide](../howto/tools.md) |
| run Clew inside your application | `open_server`, `EmbeddedServer`: `examples/embedded` |
| write an app with routes and settings of its own | `App`, `needs` and the types they take: [guide](../howto/write-an-app.md) |
| delete the data of a customer | `delete_by_tenant`, `delete_by_user`: [guide](../howto/cleanup.md) |

*This page is made from the source by `tools/reference_pages.py`.*
"""

# What is no class and no function.
PLAIN = {"Caller": "A parameter of a route with this type is who calls it: `tenant`, `user_id` and `scopes`."}
COMMENT = re.compile(r"^    (\w+): [^#\n]*?(?:\(\n[^#\n]*)?#(?!:) (.*)$", re.MULTILINE)


def pages() -> dict[str, str]:
    """The text of each page, by its file's name."""
    return {
        "events.md": EVENTS + "".join(_event(name, body) for name, body in BODIES.items()),
        "python.md": PYTHON + "".join(_exported(name).rstrip() + "\n" for name in clew.__all__),
    }


def _event(name: str, body: type) -> str:
    return f"\n## `{name}`\n\n{_said(_parsed(body))}{_fields(body)}"


def _fields(found: type) -> str:
    """The fields of a dataclass as its source declares them, with what a comment behind them says."""
    about = dict(COMMENT.findall(inspect.getsource(found)))
    rows = ["| field | type | default | |", "|---|---|---|---|"]
    for node in _parsed(found).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, kind = node.target.id, ast.unparse(node.annotation).strip("'")
            if not kind.startswith(("ClassVar", "Final")):
                said = about.get(name, "")
                cells = (f"`{name}`", f"`{kind}`", _default(node.value), said[:1].upper() + said[1:])
                rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows) + "\n" if len(rows) > 2 else ""


def _default(value: ast.expr | None) -> str:
    match value:
        case None:
            return "required"
        case ast.Call(func=ast.Name(id="field"), keywords=keywords):
            made = [one.value for one in keywords if one.arg == "default_factory"]
            return f"`{ast.unparse(made[0])}()`" if made else "required"
        case _:
            return f"`{ast.unparse(value)}`"


def _exported(name: str) -> str:
    heading = f"\n## `{name}`\n\n"
    if name in PLAIN:
        return f"{heading}{PLAIN[name]}\n"
    found = getattr(clew, name)
    node = _parsed(found)
    if not isinstance(node, ast.ClassDef):
        return f"{heading}{_call(name, node)}{_said(node)}"
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    begin = [one for one in methods if one.name == "__init__"]
    shown = heading + (_call(name, begin[0]) if begin else "") + _said(node)
    if not begin:
        shown += _fields(found)
    for method in methods:
        if not method.name.startswith("_") and ast.get_docstring(method):
            is_property = any(
                isinstance(one, ast.Name) and one.id == "property" for one in method.decorator_list
            )
            call = f"`{name}.{method.name}`\n\n" if is_property else _call(f"{name}.{method.name}", method)
            shown += f"{call}{_said(method)}"
    return shown


def _call(name: str, node: Any) -> str:
    """How it is called, an argument a line if one line is too short."""
    arguments: ast.arguments = node.args
    parts = [part for part in _arguments(arguments) if part.partition(":")[0] not in ("self", "cls")]
    result = "" if node.name == "__init__" or node.returns is None else f" -> {ast.unparse(node.returns)}"
    word = (
        "await "
        if isinstance(node, ast.AsyncFunctionDef) and "Generator" not in result and "Iterator" not in result
        else ""
    )
    line = f"{word}{name}({', '.join(parts)}){result}"
    if len(line) > 100:
        line = f"{word}{name}(\n    " + ",\n    ".join(parts) + f",\n){result}"
    return f"```text\n{line}\n```\n\n"


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    def one(argument: ast.arg, default: ast.expr | None) -> str:
        kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
        return f"{argument.arg}{kind}{f' = {ast.unparse(default)}' if default else ''}"

    both = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(both) - len(arguments.defaults)) + list(arguments.defaults)
    for number, (argument, default) in enumerate(zip(both, defaults, strict=True)):
        yield one(argument, default)
        if number + 1 == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg:
        yield f"*{one(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield one(argument, default)


def _parsed(found: Callable[..., Any]) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(found)))).body[0]


def _said(node: Any) -> str:
    text = ast.get_docstring(node)
    return f"{text}\n\n" if text else ""


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")
        print(f"wrote {FOLDER / name}")
