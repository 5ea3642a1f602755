"""The reference says all there is and nothing else: commands with their options, endpoints with their answers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from clew.api.errors import STATUS
from clew.cli import app as cli
from tests.http_client import client_of, opened_app

pytestmark = pytest.mark.anyio

# The schema of an error, by the tag of an API that has its own.
ERRORS = {"langgraph": "DetailOut", "openai": "OpenAIErrorOut"}
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def sections(page: str, heading: str) -> dict[str, str]:
    """The text under each `## \\`name\\`` (or deeper) of a page."""
    text = (REFERENCE / page).read_text("utf-8")
    parts = re.split(rf"^{heading} `([^`]+)`\n", text, flags=re.MULTILINE)[1:]
    return {name: body.split("\n## ")[0] for name, body in zip(parts[::2], parts[1::2], strict=True)}


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    inside = getattr(command, "commands", None)
    if inside is None:
        yield name, command
    else:
        for word, sub in inside.items():
            yield from commands(sub, f"{name} {word}")


COMMANDS = dict(commands(typer.main.get_command(cli), "clew"))


def test_every_command_is_documented_and_no_other() -> None:
    assert set(sections("commands.md", "##")) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented_and_no_other(name: str) -> None:
    documented = sections("commands.md", "##")[name]
    rows = set(re.findall(r"^\| `(--[a-z-]+)", documented, flags=re.MULTILINE))
    options = {
        option
        for parameter in COMMANDS[name].params
        if not getattr(parameter, "hidden", False)
        for option in parameter.opts
        if option.startswith("--") and option != "--help"
    }
    assert rows == options
    arguments = [p.name for p in COMMANDS[name].params if p.param_type_name == "argument"]
    assert all(argument.upper() in documented for argument in arguments)


async def openapi(folder: Path) -> dict[str, Any]:
    async with opened_app(folder) as app, client_of(app.http) as client:
        document: dict[str, Any] = (await client.get("/openapi.json")).json()
        return document


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def is_langgraphs(operation: dict[str, Any]) -> bool:
    """Whether it is of the face that LangGraph's clients know, with its own statuses and errors."""
    return operation.get("tags") == ["langgraph"]


async def test_every_endpoint_is_documented_and_no_other(tmp_path: Path) -> None:
    assert set(sections("endpoints.md", "###")) == set(operations(await openapi(tmp_path)))


async def test_every_parameter_status_and_scope_is_documented(tmp_path: Path) -> None:
    anywhere = {"400", "408", "413", "429", "500", "503"}
    documented = sections("endpoints.md", "###")
    for name, operation in operations(await openapi(tmp_path)).items():
        text = documented[name]
        parameters = set(re.findall(r"^\| `([A-Za-z_-]+)` \|", text, flags=re.MULTILINE))
        assert parameters == {parameter["name"] for parameter in operation.get("parameters", [])}, name
        statuses = set(re.findall(r"^\| (\d{3}) \|", text, flags=re.MULTILINE))
        scope = operation.get("x-scope")
        common = anywhere | ({"401", "403"} if scope else set())
        if is_langgraphs(operation):
            common = common - {"400"} | {"422"}
        done = {"204" if "204" in operation["responses"] else "200"}
        assert statuses | common | done == set(operation["responses"]), name
        assert text.strip().startswith(f"Scope `{scope}`." if scope else "Public."), name


async def test_the_description_keeps_to_what_we_answer(tmp_path: Path) -> None:
    document = await openapi(tmp_path)
    assert "HTTPValidationError" not in document["components"]["schemas"]
    possible = {str(status) for status in STATUS.values()} | {"200", "204", "304"}
    for name, operation in operations(document).items():
        refuses = name.endswith("/api/optimize/cleanup") or is_langgraphs(operation)
        assert ("422" in operation["responses"]) == refuses, name
        assert set(operation["responses"]) <= possible, name
        assert operation.get("security", []) == (
            [{"bearer": []}, {"header": []}] if "x-scope" in operation else []
        )
        for status, response in operation["responses"].items():
            if status not in ("200", "204", "304"):
                schema = response["content"]["application/json"]["schema"]
                if (name, status) == ("POST /threads/{thread_id}/commands", "400"):
                    continue  # in the protocol's own form
                model = ERRORS.get((operation.get("tags") or [""])[0], "ErrorOut")
                assert schema == {"$ref": f"#/components/schemas/{model}"}, (name, status)


async def test_every_reference_in_the_description_leads_somewhere(tmp_path: Path) -> None:
    document = await openapi(tmp_path)
    references = set(re.findall(r"'\$ref': '#/components/schemas/([^']+)'", str(document)))
    assert references <= set(document["components"]["schemas"])


def test_the_errors_of_the_reference_are_the_table() -> None:
    text = (REFERENCE / "endpoints.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d{3}) \| (`[A-Z_`, ]+) \|", text, flags=re.MULTILINE)
    shown = {code: int(status) for status, codes in rows for code in re.findall(r"`([A-Z_]+)`", codes)}
    assert shown
    codes = {error.code: status for error, status in STATUS.items()}
    assert shown == {code: codes[code] for code in shown}
