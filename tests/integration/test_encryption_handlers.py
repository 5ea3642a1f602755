"""`encryption.path` of langgraph.json: the handlers of the project encrypt what people wrote."""

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.config import load_settings
from clew.domain.errors import ConfigError, Corrupt, Unavailable
from clew.ports.cipher import PLAIN
from clew.server import encryption_handlers
from clew.server.encryption import open_cipher
from clew.server.encryption_handlers import HandlerCipher
from tests.integration.test_encryption import (
    MARKER,
    NEW,
    holds_marker,
    post,
    require_readable,
    stop,
    use,
)
from tests.integration.test_encryption import database as database
from tests.integration.test_encryption import project as agent_project
from tests.processes import clew, one_line, serving

project = agent_project
# A keystream of the file's own, so that the test needs no package for it.
HANDLERS = """
import asyncio
import hashlib
import json
import os
from pathlib import Path

from langgraph_sdk import Encryption, EncryptionContext
from langgraph_sdk.encryption.types import DecryptResult

KEY = os.environ.get("PROJECT_KEY", "a key")
encryption = Encryption()
seen = []


def stream(nonce, length):
    blocks = (hashlib.sha256(KEY.encode() + nonce + bytes([n % 256, n // 256])).digest() for n in range(length // 32 + 1))
    return b"".join(blocks)[:length]


def mixed(nonce, data):
    return bytes(a ^ b for a, b in zip(data, stream(nonce, len(data))))


@encryption.encrypt.blob
async def seal(ctx: EncryptionContext, blob: bytes) -> bytes:
    seen.append((ctx.model, ctx.field))
    await asyncio.sleep(0)
    nonce = os.urandom(16)
    return nonce + hashlib.sha256(KEY.encode() + blob).digest()[:8] + mixed(nonce, blob)


@encryption.decrypt.blob
async def open_(ctx: EncryptionContext, blob: bytes):
    await asyncio.sleep(0)
    if Path(__file__).with_name("down").exists():
        raise ConnectionError("no key service")
    plain = mixed(blob[:16], blob[24:])
    if hashlib.sha256(KEY.encode() + plain).digest()[:8] != blob[16:24]:
        raise ValueError("not of this key")
    return DecryptResult(plain, replacement=None)
"""
JSON_HANDLERS = """

@encryption.encrypt.json
async def seal_json(ctx: EncryptionContext, data: dict) -> dict:
    sealed = {name: value if name == "owner" else (await seal(ctx, json.dumps(value).encode())).hex()
              for name, value in data.items()}
    return {"all": str(sealed)} if "consolidated" in data else sealed


@encryption.decrypt.json
async def open_json(ctx: EncryptionContext, data: dict) -> dict:
    return {name: value if name == "owner" else json.loads((await open_(ctx, bytes.fromhex(value))).plaintext)
            for name, value in data.items()}
"""


def write_handlers(folder: Path, code: str = HANDLERS + JSON_HANDLERS) -> None:
    (folder / "handlers.py").write_text(code)
    (folder / "langgraph.json").write_text(json.dumps({"encryption": {"path": "./handlers.py:encryption"}}))


def test_the_project_encrypts_what_people_wrote(project: Path, where: str, database: str) -> None:
    settings: dict[str, Any] = {"CLEW_DATABASE_URL": database}
    with serving(project, CLEW_ENCRYPTION_KEY=NEW, **settings) as server:
        made = use(server)
        stop(server)
    write_handlers(project)
    # What the handlers did not encrypt is read with the key that did, until all is theirs.
    with serving(project, CLEW_ENCRYPTION_KEY=NEW, **settings) as server:
        require_readable(server, made)
        more = use(server)
        assert clew(project, "encrypt", CLEW_ENCRYPTION_KEY=NEW, **settings).returncode == 0
        os.kill(server.process.pid, signal.SIGKILL)
        server.wait()
    assert not holds_marker(where)
    with serving(project, **settings) as server:
        require_readable(server, made)
        require_readable(server, more)
        answer = {"assistant_id": "ask", "command": {"resume": f"{MARKER}!"}}
        done = post(server, f"/threads/{more['thread']}/runs/wait", json=answer)
        assert done["answer"] == f"{MARKER}!"
        # Metadata is searched, so that the JSON handlers say which of its values are hidden.
        thread = post(server, "/threads", json={"metadata": {"owner": "ada", "note": {"text": MARKER}}})
        assert thread["metadata"] == {"owner": "ada", "note": {"text": MARKER}}
        refused = httpx.post(f"{server.address}/threads", json={"metadata": {"consolidated": 1}}, timeout=30)
        assert (refused.status_code, "adds or removes keys" in refused.text) == (503, True)
        for wanted in ({"owner": "ada"}, {"note": {"text": MARKER}}):
            found = post(server, "/threads/search", json={"metadata": wanted})
            assert [one["metadata"] for one in found] == ([thread["metadata"]] if "owner" in wanted else [])
        # A key service that is down is an outage, and no damage.
        (project / "down").touch()
        down = server.get(f"/threads/{made['thread']}/state")
        assert (down.status_code, "decrypt.blob handler failed (ConnectionError)" in down.text) == (503, True)
        (project / "down").unlink()
        require_readable(server, made)
        stop(server)
    assert not holds_marker(where)
    wrong = clew(project, "threads", "list", PROJECT_KEY="another", **settings)
    assert "the handlers of encryption.path do not open what is in the database" in one_line(wrong)
    (project / "langgraph.json").unlink()
    for environ in ({}, {"CLEW_ENCRYPTION_KEY": NEW}):
        refused_start = clew(project, "threads", "list", **settings, **environ)
        assert "encrypted by the handlers of a project" in one_line(refused_start)


@pytest.fixture
async def cipher(tmp_path: Path) -> AsyncIterator[HandlerCipher]:
    write_handlers(tmp_path)
    async with open_cipher(load_settings({}, cwd=tmp_path)) as opened:
        assert isinstance(opened, HandlerCipher)
        yield opened


@pytest.mark.anyio
async def test_values_open_only_where_they_belong(cipher: HandlerCipher, tmp_path: Path) -> None:
    text = cipher.seal("a text with half of a pair \ud800", "events.content\0t\x001")
    blob = cipher.seal(b"bytes", "blobs.data\0x\x000")
    assert cipher.open(text, "events.content\0t\x001") == "a text with half of a pair \ud800"
    assert cipher.open(blob, "blobs.data\0x\x000") == b"bytes"
    assert (cipher.plain_size(blob[:30], len(blob)), cipher.plain_size(b"plain", 5)) == (5, 5)
    assert cipher.open("from before", "events.content\0t\x001") == PLAIN.open("from before", "")
    for value, context in (
        (text, "events.content\0t\x002"),
        (text[:-8] + "AAAAAAA=", "events.content\0t\x001"),
    ):
        with pytest.raises(Corrupt):
            cipher.open(value, context)
    (tmp_path / "down").touch()
    with pytest.raises(Unavailable, match="ConnectionError"):
        cipher.open(text, "events.content\0t\x001")


@pytest.mark.anyio
async def test_handlers_learn_the_model_and_the_field(cipher: HandlerCipher) -> None:
    seen = cipher._handlers._blob_encryptor.__globals__["seen"]  # type: ignore[union-attr]
    seen.clear()
    for column in ("threads.name", "checkpoints.body", "assistant_versions.config", "store_items.value"):
        cipher.seal("x", column)
    assert seen == [
        ("thread", "name"),
        ("checkpoint", "body"),
        ("assistant", "config"),
        ("store_items", "value"),
    ]


@pytest.mark.anyio
async def test_a_handler_that_never_returns_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encryption_handlers, "SECONDS", 0.1)
    write_handlers(tmp_path, HANDLERS.replace("asyncio.sleep(0)", "asyncio.sleep(60)"))
    with pytest.raises(ConfigError, match=r"encrypt\.blob handler took longer than 0\.1 seconds"):
        async with open_cipher(load_settings({}, cwd=tmp_path)):
            pass


REFUSED = {
    "encryption = 1": "is no langgraph_sdk.Encryption but int",
    "other = 1": "has no 'encryption'",
    "from langgraph_sdk import Encryption\nencryption = Encryption()": "needs both handlers, encrypt.blob",
    HANDLERS
    + "\n@encryption.encrypt.json\nasync def one(ctx, data):\n    return data\n": "needs both or none",
    HANDLERS
    + "\n@encryption.context\nasync def who(user, ctx):\n    return {}\n": "has a context handler, which Clew does not call",
    HANDLERS.replace("DecryptResult(plain, ", "DecryptResult(plain[:-1], "): "does not give back what",
    HANDLERS.replace("return nonce +", "return 'x' or nonce +"): "returns no bytes but str",
}


@pytest.mark.anyio
@pytest.mark.parametrize("code", REFUSED, ids=REFUSED.values())
async def test_what_cannot_encrypt_is_refused_at_the_start(tmp_path: Path, code: str) -> None:
    write_handlers(tmp_path, code)
    with pytest.raises(ConfigError) as refused:
        async with open_cipher(load_settings({}, cwd=tmp_path)):
            pass
    assert f"{tmp_path}/langgraph.json: encryption.path: " in str(refused.value)
    assert REFUSED[code] in str(refused.value)
