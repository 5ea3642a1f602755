"""APIs of packages that are extras: without them the answer names the extra."""

import sys
from pathlib import Path

import pytest

from tests.http_client import client_of, opened_app

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("path", "package", "ours", "extra"),
    [("/mcp", "mcp.server.context", "clew.api.mcp.server", "clew-server[mcp]")],
)
async def test_an_extra_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, package: str, ours: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, ours, raising=False)
    async with opened_app(tmp_path) as app, client_of(app.http) as client:
        answer = await client.post(path, json={})
    assert answer.status_code == 404
    assert extra in answer.json()["error"]["message"]
