"""Bot configuration: the owner of its threads, its graph, and its chat client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from clew.channels.message import ChatClient, ChatMessage
from clew.channels.replies import Approvers
from clew.channels.wecom_api import WeComCustomerClient
from clew.domain.events import Opening
from clew.domain.records import File, RunScope
from clew.domain.thread import Json, Owner, Thread
from clew.engine.commands import Request

_NAME = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Bot:
    """`source` names it among all: two bots in one chat lead two threads."""

    source: str
    owner: Owner
    graph: str
    wire: ChatClient
    settings: Mapping[str, Json] = field(default_factory=dict)
    ttl: timedelta | None = None
    approvers: Approvers = "chat"
    # Whether its graph finds what the channel knows of a message, under `results`.
    gives_results: bool = True
    # Where messages are fetched that are only announced, for a bot of WeCom's customer service.
    accounts: WeComCustomerClient | None = None

    def leads(self, thread: Thread) -> bool:
        return (thread.owner, thread.graph) == (self.owner, self.graph)

    def opening(self, said: ChatMessage) -> Opening:
        name = said.text.strip().splitlines()[0][:_NAME]
        return Opening(owner=self.owner, graph=self.graph, name=name, settings=self.settings, ttl=self.ttl)

    def request(self, said: ChatMessage, source_id: str, files: Sequence[File] = ()) -> Request:
        given: dict[str, Json] | None = None
        if self.gives_results:
            given = {"messages": [{"role": "user", "content": said.text}], "results": dict(said.results)}
            if files:
                given["documents"] = [
                    {"id": one.id, "name": one.name, "mime": one.mime, "size": one.size} for one in files
                ]
        return Request(
            message=said.text,
            graph_input=given,
            documents=tuple(one.id for one in files),
            source=f"{self.source}/{source_id}",
        )

    def scope(self, said: ChatMessage) -> RunScope:
        return RunScope(user_id=self.name_of(said), is_system=False)

    def name_of(self, said: ChatMessage) -> str:
        """The author of a message, as the log names people."""
        return f"{self.source}:{said.user}"
