"""Configuration files: clew.yaml and JSON, read strictly into plain values: no tags, no aliases, no key twice, nothing huge.

YAML is composed into nodes and never constructed, so there is no constructor that a tag could call. Plain scalars
are read as in YAML 1.2: `no` and `off` are text, 22:30 is not a number. A scalar that is exactly `${NAME}` is taken
from the environment, so that a secret need not stand in a file.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from dotenv import dotenv_values

from clew.config.tree import dotted
from clew.domain.errors import ConfigError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16

_BOOLEANS = {"true": True, "false": False}
_INT = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18})")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class UnsetVariable:
    """Stands for `${NAME}` in a document where that variable is not set."""

    where: str
    name: str


def read_yaml(path: Path, environ: Mapping[str, str]) -> object:
    """The document's value; None for an empty one. Raises ConfigError naming the file and the line or key.

    A variable that is not set is no error here: the command may not use that part of the document.
    """
    text = read_text(path)
    try:
        _refuse_aliases_and_depth(path, text)
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"{_at(path, error.problem_mark)}: {error.problem or 'not YAML'}") from None
    except yaml.YAMLError:
        raise ConfigError(f"{path}: not YAML: it holds characters that YAML does not allow") from None
    return None if node is None else _Reader(path, environ).value(node, "")


def require_set(value: object) -> None:
    """Raises ConfigError for the first variable in it that is not set."""
    match value:
        case UnsetVariable():
            raise ConfigError(f"{value.where}: the variable {value.name} is not set")
        case dict():
            for inside in value.values():
                require_set(inside)
        case list():
            for inside in value:
                require_set(inside)
        case _:
            pass


def read_dotenv(path: Path) -> dict[str, str]:
    """The variables of a `.env` file. Raises ConfigError."""
    read_text(path)  # the same refusals as for every file of ours, before dotenv reads it
    return {
        name: value for name, value in dotenv_values(path, interpolate=False).items() if value is not None
    }


def read_json(path: Path) -> object:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len(values := dict(pairs)) < len(pairs):
            raise ConfigError(f"{path}: the same key stands twice in one object")
        return values

    try:
        return json.loads(read_text(path), object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: not JSON") from None


def read_text(path: Path) -> str:
    try:
        if not path.is_file():
            raise ConfigError(f"{path}: expected a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: expected at most {MAX_BYTES // 1024} KiB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected UTF-8") from None


def _refuse_aliases_and_depth(path: Path, text: str) -> None:
    # Before anything is built: a few hundred bytes of aliases, or of brackets, can cost a machine its memory.
    depth = 0
    for event in yaml.parse(text, Loader=yaml.BaseLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ConfigError(f"{_at(path, event.start_mark)}: aliases (*name) are not supported")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise ConfigError(f"{_at(path, event.start_mark)}: expected at most {MAX_DEPTH} levels")


@dataclass(frozen=True, slots=True)
class _Reader:
    path: Path
    environ: Mapping[str, str]

    def value(self, node: yaml.Node, key: str) -> object:
        match node:
            case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
                return self.mapping(node, key)
            case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
                return [self.value(item, f"{key}[{index}]") for index, item in enumerate(node.value)]
            case yaml.ScalarNode(tag="tag:yaml.org,2002:str"):
                return self.plain(node.value, key) if node.style is None else self.text(node.value, key)
            case _:
                raise ConfigError(f"{_at(self.path, node.start_mark)}: tags (!name) are not supported")

    def mapping(self, node: yaml.MappingNode, key: str) -> dict[str, object]:
        values: dict[str, object] = {}
        for name_node, value_node in node.value:
            where = _at(self.path, name_node.start_mark)
            if not isinstance(name_node, yaml.ScalarNode):
                raise ConfigError(f"{where}: expected a name as key")
            name = name_node.value
            if name in values:
                raise ConfigError(f"{where}: {dotted(key, name)}: the key stands twice")
            values[name] = self.value(value_node, dotted(key, name))
        return values

    def plain(self, text: str, key: str) -> object:
        if text in ("", "~", "null"):
            return None
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        if _INT.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
        return self.text(text, key)

    def text(self, text: str, key: str) -> "str | UnsetVariable":
        variable = _VARIABLE.fullmatch(text)
        if variable is None:
            return text
        if value := self.environ.get(variable[1]):
            return value
        return UnsetVariable(f"{self.path}: {key}", variable[1])


def _at(path: Path, mark: object) -> str:
    line = getattr(mark, "line", None)  # marks come in two classes, or not at all
    return str(path) if line is None else f"{path}: line {line + 1}"
