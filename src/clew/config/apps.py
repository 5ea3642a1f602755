"""Apps of clew.yaml: one section for each app of an installed package, validated by the app's own model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from clew.config.tree import ConfigNode
from clew.domain.errors import ConfigError

Section = TypeVar("Section", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class AppSection:
    """A section as it stands in the file. Safe to print: which of its values are secrets, the app's model knows."""

    place: ConfigNode = field(repr=False)

    @property
    def where(self) -> str:
        return self.place.where

    @property
    def values(self) -> Mapping[str, object]:
        return {name: entry.value for name, entry in self.place.entries().items()}


def read_app_sections(place: ConfigNode) -> dict[str, AppSection]:
    return {name: AppSection(entry) for name, entry in place.named().items()}


def read_app_section(section: AppSection | None, model: type[Section], name: str) -> Section:
    """The section of an app; its defaults where the file has none. Raises ConfigError, which repeats no value."""
    keys = {info.alias or field_name for field_name, info in model.model_fields.items()}
    given = {} if section is None else {key: entry.value for key, entry in section.place.known(keys).items()}
    where = f"apps.{name}" if section is None else section.where
    try:
        return model.model_validate(given)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        key = ".".join([where, *(str(part) for part in first["loc"])])
        expected = "to be set" if first["type"] == "missing" else first["msg"]
        raise ConfigError(f"{key}: expected {expected}") from None
