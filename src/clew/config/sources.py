"""Sources of settings for pydantic-settings: options over environment over file over LangGraph's own variables; defaults
are pydantic's."""

from abc import abstractmethod
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from clew.config.declare import Setting
from clew.config.langgraph_environment import find_variable
from clew.config.settings import SETTINGS, Sections
from clew.config.tree import ConfigNode
from clew.domain.errors import ConfigError


class _Source(PydanticBaseSettingsSource):
    """Raw values by section and name; `names` has the variable, option or key that each was found under."""

    def __init__(self) -> None:
        super().__init__(Sections)
        self.names: dict[str, str] = {}

    def __call__(self) -> dict[str, Any]:
        sections = Sections.model_fields.items()
        found = {name: self.get_field_value(field, name)[0] for name, field in sections}
        return {name: values for name, values in found.items() if values}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[dict[str, object], str, bool]:  # noqa: ARG002
        values: dict[str, object] = {}
        for setting in SETTINGS:
            if setting.section == field_name and (found := self.find(setting)) is not None:
                self.names[setting.key], values[setting.name] = found
        return values, field_name, False

    @abstractmethod
    def find(self, setting: Setting) -> tuple[str, object] | None:
        """The name under which this source has the setting, and its raw value."""


class Options(_Source):
    """Values of the command line, by key."""

    def __init__(self, options: Mapping[str, object]) -> None:
        super().__init__()
        self._options = options

    def find(self, setting: Setting) -> tuple[str, object] | None:
        value = self._options.get(setting.key)
        return None if value is None else (f"--{setting.name.replace('_', '-')}", value)


class Variables(_Source):
    """The environment: a setting's own variable, else the first of its aliases."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__()
        self._environ = environ

    def find(self, setting: Setting) -> tuple[str, object] | None:
        for variable in setting.variables:
            if text := self._environ.get(variable, "").strip():  # an empty variable is one that is not set
                return variable, text
        return None


class LangGraphVariables(_Source):
    """The environment, by the names that LangGraph Server has for settings like ours."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__()
        self._environ = environ

    def find(self, setting: Setting) -> tuple[str, object] | None:
        return find_variable(setting.key, self._environ)


class YamlFile(_Source):
    """The sections of clew.yaml."""

    def __init__(self, sections: Mapping[str, Mapping[str, ConfigNode]]) -> None:
        super().__init__()
        self._sections = sections

    def find(self, setting: Setting) -> tuple[str, object] | None:
        place = self._sections.get(setting.section, {}).get(setting.name)
        # A key without a value is a line that was not finished, unless None is the setting's default.
        if place is None or (place.value is None and setting.default is None):
            return None
        return place.where, place.value


def read_sections(*sources: _Source) -> tuple[Sections, dict[str, str]]:
    """The settings, and where each that is not a default came from, by its key. Raises ConfigError."""
    try:
        sections = Sections.read(*sources)
    except ValidationError as error:
        # `from None`: pydantic's error has the value in it, and the value may be a secret.
        raise _refusal(error, _names(sources)) from None
    return sections, _names(sources)


def _names(sources: Sequence[_Source]) -> dict[str, str]:
    """For each setting, its name in the first source that has it."""
    found = ChainMap(*(source.names for source in sources))
    return {setting.key: found[setting.key] for setting in SETTINGS if setting.key in found}


def _refusal(error: ValidationError, names: Mapping[str, str]) -> ConfigError:
    """The first of pydantic's complaints, in words that never repeat the value."""
    section, name, *_ = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
    [setting] = [setting for setting in SETTINGS if (setting.section, setting.name) == (section, name)]
    return ConfigError(f"{names[setting.key]}: expected {setting.kind.expected}")
