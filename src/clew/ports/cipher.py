"""Cipher port: how stores encrypt the values of private columns, and read them back."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

V = TypeVar("V", str, bytes)


class Cipher(Protocol):
    """Encrypts texts as texts and bytes as bytes. An encrypted value says so and names its key.

    `context` says where a value belongs: it opens only with the context it was sealed with.
    """

    @property
    def is_active(self) -> bool:
        """Whether there is a key. Without one no value is looked at."""
        ...

    @property
    def current(self) -> str:
        """The id of the key that new values are encrypted with; empty for none."""
        ...

    @property
    def key_ids(self) -> Collection[str]:
        """The ids of all keys whose values can be read."""
        ...

    @property
    def waits(self) -> bool:
        """Whether it may wait for another machine: then no event loop calls it."""
        ...

    @property
    def hides_metadata(self) -> bool:
        """Whether it encrypts values of thread metadata, which are then not found by it."""
        ...

    def plain_size(self, start: bytes, size: int) -> int:
        """How long a value was that is stored in so many bytes, which begin with `start`."""
        ...

    def seal(self, value: V, context: str) -> V: ...

    def open(self, value: V, context: str) -> V:
        """The value that was sealed; one that never was comes back as it is. Raises Corrupt."""
        ...

    def seal_metadata(self, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same keys, with other values for those that are to be hidden."""
        ...

    def open_metadata(self, sealed: Mapping[str, Any]) -> Mapping[str, Any]: ...


class OpenMetadata:
    """Of a cipher in this process that leaves thread metadata as it is."""

    waits: ClassVar[bool] = False
    hides_metadata: ClassVar[bool] = False

    def seal_metadata(self, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        return metadata

    def open_metadata(self, sealed: Mapping[str, Any]) -> Mapping[str, Any]:
        return sealed


class NoCipher(OpenMetadata):
    """Plain text. A database with encrypted values is not opened with it."""

    is_active: ClassVar[bool] = False
    current: ClassVar[str] = ""
    key_ids: ClassVar[Collection[str]] = ()

    def plain_size(self, start: bytes, size: int) -> int:  # noqa: ARG002 - the port's
        return size

    def seal(self, value: V, context: str) -> V:  # noqa: ARG002 - the port's
        return value

    def open(self, value: V, context: str) -> V:  # noqa: ARG002 - the port's
        return value


PLAIN = NoCipher()
