"""Whose key goes where: a real server, two models behind addresses of their own, and the key each of them was shown."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.chatting import Model, model_serving
from tests.acceptance.conftest import Api
from tests.openai_server import Refuse, Say
from tests.processes import clew, serving

SHARED = "sk-the-key-of-the-settings"
OWN = "sk-the-key-of-one-profile"
OTHER = "sk-the-key-of-another-profile"


@dataclass(slots=True)
class Place:
    api: Api
    # The one of the settings, and the one that profiles name.
    ours: Model
    theirs: Model
    folder: Path
    environ: dict[str, str]

    def keys(self, profile: str, model: Model) -> set[str]:
        """What the model was shown by a chat with that profile."""
        for one in (self.ours, self.theirs):
            one.fake.keys.clear()
            one.fake.answer = lambda _: Say("no plan")
        self.run(profile)
        other = self.theirs if model is self.ours else self.ours
        assert other.fake.keys == []
        return set(model.fake.keys)

    def run(self, profile: str) -> str:
        body = {"prompt": "Hello", "profile": profile}
        workflow = str(self.api.ask("POST", "/api/workflows/start", json=body)["id"])
        self.api.rest(workflow, "failed", "completed")
        return str(self.api.ask("GET", f"/api/workflows/{workflow}/status")["error"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("keys")
    with model_serving() as ours, model_serving() as theirs:
        address = f"driver: 'api:openai', model: m, base_url: '{theirs.url}'"
        (folder / "clew.yaml").write_text(
            "profiles:\n"
            "  default: {driver: 'api:openai', model: m}\n"
            f"  same: {{driver: 'api:openai', model: m, base_url: '{ours.url}/'}}\n"
            f"  foreign: {{{address}}}\n"
            f"  named: {{{address}, api_key_env: A_KEY_OF_OURS}}\n"
            f"  written: {{{address}, api_key: '${{ANOTHER_KEY}}'}}\n"
            "  own: {driver: 'api:openai', model: m, api_key_env: A_KEY_OF_OURS}\n"
        )
        environ: dict[str, Any] = {
            "OPENAI_API_KEY": SHARED,
            "OPENAI_BASE_URL": ours.url,
            "A_KEY_OF_OURS": OWN,
            "ANOTHER_KEY": OTHER,
            "CLEW_RUNNER_POLL_SECONDS": "0.1",
        }
        with serving(folder, **environ) as server:
            yield Place(Api(server), ours, theirs, folder, environ)


def test_the_key_of_the_settings_goes_to_the_server_of_the_settings(place: Place) -> None:
    assert place.keys("default", place.ours) == {SHARED}
    assert place.keys("same", place.ours) == {SHARED}


def test_it_does_not_go_to_an_address_that_a_profile_names(place: Place) -> None:
    keys = place.keys("foreign", place.theirs)
    assert keys
    assert not [key for key in keys if key.startswith("sk-")]


def test_a_profile_has_a_key_of_its_own(place: Place) -> None:
    assert place.keys("named", place.theirs) == {OWN}
    assert place.keys("written", place.theirs) == {OTHER}
    assert place.keys("own", place.ours) == {OWN}


def test_a_server_that_asks_for_a_key_is_said_to(place: Place) -> None:
    place.theirs.fake.answer = lambda _: Refuse(401)
    assert "set api_key or api_key_env in the profile" in place.run("foreign")
    assert "api_key" not in place.run("named")


def test_no_key_is_shown_anywhere(place: Place) -> None:
    found = clew(place.folder, "doctor", **place.environ)
    assert "the key of models.openai_api_key is not sent to the base_url of profiles.foreign" in found.stdout
    for text in (found.stdout, found.stderr, place.api.server.log):
        assert not [key for key in (SHARED, OWN, OTHER) if key in text]
    assert "named" in found.stdout


def test_doctor_asks_each_model_and_shows_what_came_back(place: Place) -> None:
    place.ours.fake.answer = lambda _: Say("ready")
    place.theirs.fake.answer = lambda _: Refuse(401, message=f"Incorrect API key provided: {OWN}")
    found = clew(place.folder, "doctor", "--ask", **place.environ)
    assert found.returncode == 1
    lines = {
        line.split()[1]: line.rstrip() for line in found.stdout.splitlines() if line.startswith("profile ")
    }
    assert "api:openai m answered in" in lines["default"]
    assert lines["default"].endswith("ms: ready")
    assert "FAILED" in lines["named"]
    assert "its provider does not accept the key. It said:" in lines["named"]
    assert "Incorrect API key provided: ***" in lines["named"]
    assert not [key for key in (SHARED, OWN, OTHER) if key in f"{found.stdout}{found.stderr}"]
