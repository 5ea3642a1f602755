"""Every route against its own description: nothing breaks it, and it answers nothing that is not written there."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.app import graphs_yaml
from tests.integration.test_api_access import HTTP
from tests.processes import ROOT, clew, serving, until

# Of what fits the description, and of what does not: for each route. The same ones every time.
EXAMPLES = 6
SECONDS = 20.0

CLEANUP_KEY = "a-key-for-the-cleanup"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

# For a browser, or the description itself.
UNDESCRIBED = {
    ("GET", "/"),
    ("GET", "/web/{name}"),
    ("GET", "/web/vendor/{name}"),
    ("GET", "/web/samples/{name}"),
    ("GET", "/openapi.json"),
}
# HEAD is GET without its body, and is described there.
DESCRIBED = [route for route in HTTP if route not in UNDESCRIBED and route[0] != "HEAD"]
NAMES = [f"{method} {path}" for method, path in DESCRIBED]
# They do not end by themselves when the workflow is there.
ENDLESS = (
    "/api/workflows/{workflow_id}/events",
    "/threads/{thread_id}/stream",
    "/threads/{thread_id}/stream/events",
)

CAREFUL = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True, slots=True)
class Api:
    """A server, the description it gives of itself, and a key that opens everything."""

    client: httpx.Client
    key: str
    description: Mapping[str, Any]

    @property
    def address(self) -> str:
        return str(self.client.base_url)

    def ask(self, method: str, path: str, **more: Any) -> Any:
        answer = self.client.request(method, path, headers={"X-API-Key": self.key}, **more)
        answer.raise_for_status()
        return answer.json()

    def rested(self, workflow: str) -> bool:
        return bool(self.ask("GET", f"/api/threads/{workflow}")["status"] in ("blocked", "completed"))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("described")
    (folder / "clew.yaml").write_text(graphs_yaml())
    made = clew(folder, "keys", "create", "--name", "all", *_scopes("read", "write", "admin", "metrics"))
    found = re.search(r"clew_\w+", made.stdout)
    assert found, made.stderr
    environ: dict[str, Any] = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "CLEANUP_API_KEY": CLEANUP_KEY}
    with (
        serving(folder, **environ) as server,
        httpx.Client(base_url=server.address, timeout=SECONDS) as client,
    ):
        answer = client.get("/openapi.json", headers={"X-API-Key": found[0]})
        yield Api(client, found[0], answer.json())


@pytest.fixture(scope="module")
def lasting(api: Api) -> dict[str, list[str]]:
    """For those who only look."""
    return things(api)


@pytest.fixture
def known(request: pytest.FixtureRequest, api: Api, method: str) -> dict[str, list[str]]:
    """What is there to be asked for: all of it for this one test, if that may change something."""
    found: dict[str, list[str]] = request.getfixturevalue("lasting") if method == "GET" else things(api)
    return found


def things(api: Api) -> dict[str, list[str]]:
    """Something of each kind, by the names of parameters."""
    file_id = api.ask("POST", "/api/files", files={"file": ("a.txt", b"hello")})["id"]
    asking = {"prompt": "go", "listFileId": [file_id]}
    workflows = [
        api.ask("POST", "/api/workflows/start", json={**asking, "graph": graph})["id"]
        for graph in ("gated", "asking", "two_steps", "agent")
    ]
    for workflow in workflows:
        until(lambda workflow=workflow: api.rested(workflow))  # type: ignore[misc]
    held = api.ask("POST", "/api/workflows/start", json={**asking, "graph": "two_steps", "hold": True})["id"]
    pages = [api.ask("GET", f"/api/workflows/{workflow}") for workflow in workflows]
    messages = [message for page in pages for message in page["messages"]]
    return {
        "workflow_id": [*workflows, held],
        "thread_id": [*workflows, held],
        "file_id": [file_id],
        "message_id": [message["id"] for message in messages],
        "document_id": [document["id"] for message in messages for document in message["documents"]],
        "call_id": [call_id for page in pages for call_id in page["pending"]],
        "id": [*workflows, *(message["id"] for message in messages)],
        "graph": ["two_steps", "gated"],
        "graph_id": ["two_steps", "gated"],
        "assistant_id": [
            "two_steps",
            "agent",
            api.ask("POST", "/assistants", json={"graph_id": "gated"})["assistant_id"],
        ],
        "profile": ["default"],
    }


def test_every_route_is_described(api: Api) -> None:
    described = {
        (method.upper(), path) for path, methods in api.description["paths"].items() for method in methods
    }
    assert described == set(DESCRIBED)


@pytest.mark.fault("F1")
def test_without_a_key_it_is_answered_as_described(api: Api) -> None:
    for method, path in DESCRIBED:
        answer = api.client.request(method, re.sub("{.*?}", "x", path))
        assert str(answer.status_code) in api.description["paths"][path][method.lower()]["responses"], path
        assert answer.status_code in (200, 401), path


@pytest.mark.fault("F1")
@pytest.mark.parametrize(("method", "path"), DESCRIBED, ids=NAMES)
def test_what_fits_the_description_is_answered_as_described(
    api: Api, known: dict[str, list[str]], method: str, path: str
) -> None:
    operation = _operation(api, method, path)

    @CAREFUL
    @given(data=st.data(), case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    def answered(data: st.DataObject, case: Any) -> None:
        if path not in ENDLESS:
            for given in (case.path_parameters, case.query, case.body):
                _fill_in(data, given, known)
        answer = case.call(base_url=api.address, timeout=SECONDS, headers=_key(api, path))
        case.validate_response(answer, checks=CHECKS)

    answered()


@pytest.mark.fault("F1")
@pytest.mark.parametrize(("method", "path"), DESCRIBED, ids=NAMES)
def test_what_does_not_fit_is_refused_with_the_field_named(api: Api, method: str, path: str) -> None:
    described = api.description["paths"][path][method.lower()]
    if not described.get("parameters") and "requestBody" not in described:
        return  # anything fits
    operation = _operation(api, method, path)

    @CAREFUL
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def refused(case: Any) -> None:
        answer = case.call(base_url=api.address, timeout=SECONDS, headers=_key(api, path))
        case.validate_response(answer, checks=[*CHECKS, negative_data_rejection])
        if answer.status_code in (400, 422):
            told = json.loads(answer.content)
            assert told.get("detail") or _protocol_message(told) or _field(told["error"])

    refused()


def _operation(api: Api, method: str, path: str) -> Any:
    """The route with the key left to us: made-up ones would be refused before anything else is looked at."""
    operation = {**api.description["paths"][path][method.lower()], "security": []}
    document = {**api.description, "paths": {path: {method.lower(): operation}}}
    return schemathesis.openapi.from_dict(document)[path][method]


def _field(error: Mapping[str, Any]) -> Any:
    return error.get("field") or error["param"]


def _protocol_message(told: Mapping[str, Any]) -> bool:
    """The thread protocol's errors have a code and a text, which names the fields of a command."""
    return told.get("type") == "error" and {"id", "method", "params"} <= {
        *re.findall(r"\w+", told["message"])
    }


def _key(api: Api, path: str) -> dict[str, str]:
    return {"X-API-Key": CLEANUP_KEY if path == "/api/optimize/cleanup" else api.key}


def _scopes(*scopes: str) -> list[str]:
    return [word for scope in scopes for word in ("--scope", scope)]


def _fill_in(data: st.DataObject, given: Any, known: Mapping[str, list[str]]) -> None:
    """Made-up ids are unknown. Mostly, the ones that are there are asked for."""
    if not isinstance(given, dict):
        return
    for name in sorted(given.keys() & known.keys()):
        if known[name] and isinstance(given[name], str):
            given[name] = data.draw(st.sampled_from([*known[name], given[name]]))
    given.pop("after_seconds", None)  # who waits for such a run waits for long
    if given.get("listFileId"):
        given["listFileId"] = known["file_id"]
