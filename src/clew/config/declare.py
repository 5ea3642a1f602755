"""How a setting is declared: an annotation on a field that says its kind, its default and its variables."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

from clew.config.kinds import SettingKind


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of a setting before it has a value. The default is raw: its kind reads it, as any other."""

    default: object
    kind: SettingKind[Any]
    about: str
    env: str = ""
    aliases: tuple[str, ...] = ()
    in_file: bool = True
    section: str = ""
    name: str = ""

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.env, *self.aliases)


def declared_in(section: str, cls: Any) -> Iterator[Setting]:
    """The settings of a section under their full names."""
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        setting: Setting = hints[field.name].__metadata__[0]
        env = setting.env or f"{cls.PREFIX}{field.name.upper()}"
        yield replace(setting, section=section, name=field.name, env=env)
