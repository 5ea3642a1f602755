"""Declaration of a setting: a field of a section, which pydantic validates by its kind."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from clew.config.kinds import SettingKind


class Section(BaseModel):
    """A section of clew.yaml. PREFIX begins the names of its variables."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    PREFIX: ClassVar[str]


def setting(
    default: object, about: str, *, env: str = "", aliases: tuple[str, ...] = (), in_file: bool = True
) -> Any:
    """A pydantic field. The default is raw: its kind reads it, as any other value. A default of None means not set."""
    names: JsonDict = {"env": env, "aliases": list(aliases), "in_file": in_file}
    return Field(default, description=about, json_schema_extra=names)


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of a setting before it has a value."""

    section: str
    name: str
    default: object
    kind: SettingKind[Any]
    about: str
    env: str
    aliases: tuple[str, ...]
    in_file: bool

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.env, *self.aliases)


def declared_in(section: str, cls: type[Section]) -> Iterator[Setting]:
    """The settings of a section under their full names."""
    for name, field in cls.model_fields.items():
        [kind] = [found for found in field.metadata if isinstance(found, SettingKind)]
        names: Any = field.json_schema_extra
        yield Setting(
            section=section,
            name=name,
            default=field.default,
            kind=kind,
            about=field.description or "",
            env=names["env"] or f"{cls.PREFIX}{name.upper()}",
            aliases=tuple(names["aliases"]),
            in_file=names["in_file"],
        )
