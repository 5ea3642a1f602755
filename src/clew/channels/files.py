"""Files sent in a chat: fetched from the provider and kept as uploads, or a sentence that says why not."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from clew.channels.bot import Bot
from clew.channels.http import ReplyTooLong
from clew.channels.message import READABLE, SPOKEN, Attachment, ChatMessage
from clew.channels.phrases import Phrase, phrase
from clew.documents.uploads import Uploads, whole
from clew.domain.errors import Invalid, NotFound, Permanent
from clew.domain.records import File, Incoming

logger = logging.getLogger(__name__)

# Both providers hand out files up to 20 MiB.
MAX_FILE = 20 * 2**20
# Downloads at once, of all chats: each is in memory for a moment.
AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The files of a message that are kept now, and what to tell the person about the others."""

    files: Sequence[File] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFiles:
    uploads: Uploads
    at_once: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    @property
    def most(self) -> int:
        return min(MAX_FILE, self.uploads.max_bytes)

    async def receive(self, bot: Bot, incoming: Incoming, said: ChatMessage) -> Received:
        """Keep every file the bot's graph can use. Raises Transient if the provider does not answer now."""
        files: list[File] = []
        remarks: list[str] = []
        for number, one in enumerate(said.attachments):
            if not takes(bot, one):
                which = Phrase.SPOKEN if one.kind in SPOKEN else Phrase.UNREADABLE
                remarks.append(phrase(which, said.language))
                continue
            try:
                files.append(await self._keep(bot, incoming, one, number))
            except (ReplyTooLong, Invalid):
                megabytes = max(1, self.most // 10**6)
                remarks.append(phrase(Phrase.TOO_LARGE, said.language, name=one.name, megabytes=megabytes))
            except Permanent as exc:
                logger.info(
                    "a file of a chat was not given out",
                    extra={"source": incoming.source, "error_class": exc.error_class},
                )
                remarks.append(phrase(Phrase.NOT_FETCHED, said.language, name=one.name))
        return Received(files=files, remarks=remarks)

    async def _keep(self, bot: Bot, incoming: Incoming, one: Attachment, number: int) -> File:
        """Stored once, however often its message is retried: its id is derived from the message's."""
        digest = sha256(f"{incoming.source} {incoming.source_id} {number}".encode()).hexdigest()[:32]
        try:
            return await self.uploads.files.get_file(f"file_{digest}", bot.owner)
        except NotFound:
            pass
        if one.size > self.most:
            raise ReplyTooLong("the file is too large")
        async with self.at_once:
            content = await bot.wire.download(one.file, most=self.most)
            uploads = replace(self.uploads, new_id=lambda: digest, max_bytes=self.most)
            return await uploads.add(one.name, whole(content), owner=bot.owner)


def takes(bot: Bot, one: Attachment) -> bool:
    """The built-in graphs read documents and pictures; a graph of the user's own may know what to do with a recording."""
    return bool(one.file) and (one.kind in READABLE or bot.gives_results)


def lost(said: ChatMessage) -> Received:
    """The message to the user when the provider did not deliver a file through all retries."""
    remarks = [
        phrase(Phrase.NOT_FETCHED, said.language, name=one.name) for one in said.attachments if one.file
    ]
    return Received(remarks=remarks)
