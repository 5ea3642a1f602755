"""Encryption by the project: the handlers of a `langgraph_sdk.Encryption` object as the cipher of the database.

Handlers are coroutines, and what reads and writes the database is not: they run in an event loop of their own, in a thread
of their own, and the thread that reads or writes waits for them.
"""

import asyncio
import logging
import threading
import warnings
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, ClassVar, Final

from langgraph_sdk import Encryption
from langgraph_sdk.encryption import LangGraphBetaWarning
from langgraph_sdk.encryption.types import DecryptResult, EncryptionContext

from clew.config import Settings, export_environment
from clew.config.project_code import CodeSource
from clew.domain.errors import ConfigError, Corrupt, Unavailable
from clew.graph.registry import find_object, import_from, reason
from clew.ports.cipher import Cipher, V
from clew.stores.sql.encryption_keys import HANDLERS
from clew.stores.sql.private import HEAD, head_of

logger = logging.getLogger(__name__)

SECONDS: Final = 10.0
_OWN: Final = head_of(HANDLERS)
_SIZE: Final = 8
_BOUND: Final = 16
_PROBE: Final = "probe.value"

# LangGraph's names of what it encrypts; anything else has the name of its table.
_MODELS: Final = MappingProxyType(
    {
        **dict.fromkeys(("threads", "labels", "probe"), "thread"),
        **dict.fromkeys(("events", "tool_calls", "chunks", "run_hooks", "model_calls", "summaries"), "run"),
        **dict.fromkeys(("checkpoints", "checkpoint_blobs", "checkpoint_writes"), "checkpoint"),
        "assistant_versions": "assistant",
        "crons": "cron",
    }
)


class HandlerCipher:
    """Values are encrypted by the blob handlers; thread metadata, which is searched, by the JSON handlers if there are some.

    What a value is bound to is encrypted with it. `older` opens what was encrypted before there were handlers.
    """

    is_active: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __init__(self, handlers: Encryption, older: Cipher, call: Callable[[Any], Any]) -> None:
        self._handlers = handlers
        self._older = older
        self._call = call
        self._probe = b""

    @property
    def current(self) -> str:
        return HANDLERS

    @property
    def key_ids(self) -> Collection[str]:
        return (HANDLERS, *self._older.key_ids)

    @property
    def hides_metadata(self) -> bool:
        return self._handlers._json_encryptor is not None

    def check(self) -> None:
        """Raises ConfigError unless the handlers give back what they encrypted."""
        try:
            self._probe = self._encrypted(b"probe", _PROBE)
            opened = self._decrypted(self._probe, _PROBE)
        except (Unavailable, Corrupt) as exc:
            raise ConfigError(str(exc)) from exc
        if opened != b"probe":
            raise ConfigError("the decrypt.blob handler does not give back what encrypt.blob encrypted")

    def seal(self, value: V, context: str) -> V:
        if isinstance(value, bytes):
            return _OWN.encode() + len(value).to_bytes(_SIZE) + self._encrypted(value, context)
        plain = value.encode(errors="surrogatepass")
        return _OWN + b64encode(self._encrypted(plain, context)).decode()

    def open(self, value: V, context: str) -> V:
        if isinstance(value, bytes):
            if not value.startswith(_OWN.encode()):
                return self._older.open(value, context)
            return self._decrypted(value[HEAD + _SIZE :], context)
        if not value.startswith(_OWN):
            return self._older.open(value, context)
        try:
            return self._decrypted(b64decode(value[HEAD:], validate=True), context).decode(
                errors="surrogatepass"
            )
        except ValueError as exc:
            raise Corrupt("a stored value is not what a handler encrypted") from exc

    def plain_size(self, start: bytes, size: int) -> int:
        if not start.startswith(_OWN.encode()):
            return self._older.plain_size(start, size)
        return int.from_bytes(start[HEAD : HEAD + _SIZE])

    def seal_metadata(self, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        handler = self._handlers._json_encryptor
        if handler is None:
            return metadata
        try:
            sealed = self._call(handler(_context("labels.metadata"), dict(metadata)))
        except Exception as exc:
            raise _failed("encrypt.json", exc) from exc
        if not isinstance(sealed, dict) or sealed.keys() != metadata.keys():
            raise Unavailable("the encrypt.json handler adds or removes keys; it may only change values")
        return sealed

    def open_metadata(self, sealed: Mapping[str, Any]) -> Mapping[str, Any]:
        handler = self._handlers._json_decryptor
        if handler is None:
            raise Corrupt("metadata is encrypted, and there is no decrypt.json handler")
        try:
            found = self._call(handler(_context("labels.metadata"), dict(sealed)))
        except Exception as exc:
            raise _failed("decrypt.json", exc) from exc
        found = found.plaintext if isinstance(found, DecryptResult) else found
        if not isinstance(found, dict):
            raise Corrupt("the decrypt.json handler returns no object")
        return found

    def _encrypted(self, plain: bytes, context: str) -> bytes:
        handler = self._handlers._blob_encryptor
        try:
            sealed = self._call(handler(_context(context), _bound(context) + plain))  # type: ignore[misc]
        except Exception as exc:
            raise _failed("encrypt.blob", exc) from exc
        if not isinstance(sealed, bytes):
            raise Unavailable(f"the encrypt.blob handler returns no bytes but {type(sealed).__name__}")
        return sealed

    def _decrypted(self, sealed: bytes, context: str) -> bytes:
        handler = self._handlers._blob_decryptor
        try:
            found = self._call(handler(_context(context), sealed))  # type: ignore[misc]
        except Exception as exc:
            # A service that is down fails for every value, a damaged value alone. Only the second is for the reader to skip.
            if sealed is not self._probe and self._opens_probe():
                raise Corrupt("a stored value cannot be decrypted by the decrypt.blob handler") from exc
            raise _failed("decrypt.blob", exc) from exc
        if isinstance(found, DecryptResult):
            found = found.plaintext
        if not isinstance(found, bytes):
            raise Unavailable(f"the decrypt.blob handler returns no bytes but {type(found).__name__}")
        if not found.startswith(_bound(context)):
            raise Corrupt("a stored value cannot be decrypted: it was changed or moved by other hands")
        return found[_BOUND:]

    def _opens_probe(self) -> bool:
        try:
            self._decrypted(self._probe, _PROBE)
        except (Unavailable, Corrupt):
            return False
        return True


@asynccontextmanager
async def open_handlers(
    source: CodeSource, settings: Settings, older: Cipher
) -> AsyncGenerator[HandlerCipher]:
    """Raises ConfigError for an object that cannot encrypt, and for one that asks for what Clew does not do."""
    handlers = await asyncio.to_thread(_load, source, settings)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="clew-encryption", daemon=True)
    thread.start()
    try:
        cipher = HandlerCipher(handlers, older, lambda handler: _run(handler, loop))
        try:
            await asyncio.to_thread(cipher.check)
        except ConfigError as exc:
            raise ConfigError(f"{source.where}: {source.written}: {exc}") from exc
        yield cipher
    finally:
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()


def _load(source: CodeSource, settings: Settings) -> Encryption:
    export_environment(settings)
    # The project chose it; each command would repeat the warning.
    warnings.filterwarnings("ignore", category=LangGraphBetaWarning)
    import_from(settings.import_paths)
    try:
        found = find_object(source)
    except (Exception, SystemExit) as exc:
        raise ConfigError(f"{source.where}: {reason(source, exc)}") from exc
    if not isinstance(found, Encryption):
        raise ConfigError(
            f"{source.where}: {source.written} is no langgraph_sdk.Encryption but {type(found).__name__}"
        )
    if why := _why_refused(found):
        raise ConfigError(f"{source.where}: {source.written} {why}")
    return found


def _why_refused(handlers: Encryption) -> str | None:
    if handlers._blob_encryptor is None or handlers._blob_decryptor is None:
        return "needs both handlers, encrypt.blob and decrypt.blob: Clew encrypts with them whatever people wrote"
    if (handlers._json_encryptor is None) != (handlers._json_decryptor is None):
        return "has one of encrypt.json and decrypt.json; it needs both or none"
    if handlers._context_handler is not None:
        return (
            "has a context handler, which Clew does not call: a server reads and writes the values of several"
            " callers at once, and without a request. Remove it, or let the handlers choose keys in another way"
        )
    return None


def _run(handler: Any, loop: asyncio.AbstractEventLoop) -> Any:
    return asyncio.run_coroutine_threadsafe(asyncio.wait_for(handler, SECONDS), loop).result()


def _context(context: str) -> EncryptionContext:
    table, _, field = context.partition("\0")[0].partition(".")
    return EncryptionContext(model=_MODELS.get(table, table), field=field)


def _bound(context: str) -> bytes:
    return blake2b(context.encode(errors="surrogatepass"), digest_size=_BOUND).digest()


def _failed(name: str, exc: Exception) -> Unavailable:
    if isinstance(exc, TimeoutError):
        return Unavailable(f"the {name} handler took longer than {SECONDS:g} seconds")
    logger.warning("the %s handler of encryption.path failed (%s)", name, type(exc).__name__)
    return Unavailable(f"the {name} handler failed ({type(exc).__name__})")
