"""Whom the default profile asks where no file says so: by the keys there are, and the packages."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from clew.config import Settings, load_settings
from clew.telemetry.scrub import Scrubber


def load(folder: Path, environ: Mapping[str, str], yaml: str = "") -> Settings:
    (folder / "clew.yaml").write_text(yaml, "utf-8")
    return load_settings(environ, cwd=folder)


@pytest.mark.parametrize(
    ("environ", "driver"),
    [
        ({"OPENAI_API_KEY": "sk-hunter2"}, "api:openai"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "api:openai"),
        ({"ANTHROPIC_API_KEY": "sk-hunter2"}, "api:anthropic"),
        ({"ANTHROPIC_API_KEY": "sk-hunter2", "OPENAI_API_KEY": "sk-hunter2"}, "api:openai"),
    ],
)
def test_a_key_chooses_the_driver_of_the_default_profile(
    tmp_path: Path, environ: dict[str, str], driver: str
) -> None:
    loaded = load(tmp_path, environ)
    assert (loaded.profiles["default"].driver, loaded.warnings) == (driver, ())


@pytest.mark.parametrize(
    ("name", "extra", "package"),
    [
        ("OPENAI_API_KEY", "openai", "langchain_openai"),
        ("CLEW_MODELS_OPENAI_API_KEY", "openai", "langchain_openai"),
        ("OPENAI_BASE_URL", "openai", "langchain_openai"),
        ("ANTHROPIC_API_KEY", "anthropic", "langchain_anthropic"),
    ],
)
def test_a_key_without_its_package_is_a_warning_and_the_profile_stays_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, extra: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    loaded = load(tmp_path, {name: "http://127.0.0.1:1/hunter2"})
    assert loaded.profiles["default"].driver == "offline"
    (warning,) = loaded.warnings
    assert warning.startswith(f"{name} is not used: ")
    assert Scrubber(())(warning) == warning  # the log shows it as it is
    assert f"pip install 'clew-server[{extra}]'" in warning
    assert "hunter2" not in warning


def test_a_key_with_its_package_takes_the_place_of_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    loaded = load(tmp_path, {"OPENAI_API_KEY": "hunter2", "ANTHROPIC_API_KEY": "hunter2"})
    assert loaded.profiles["default"].driver == "api:anthropic"
    assert len(loaded.warnings) == 1


def test_a_profile_that_names_its_driver_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    given = load(tmp_path, {"OPENAI_API_KEY": "x"}, "profiles: {default: {driver: 'api:openai'}}")
    assert (given.profiles["default"].driver, given.warnings) == ("api:openai", ())
