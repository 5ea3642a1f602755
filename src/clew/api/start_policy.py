"""What a workflow may be started with here, checked before anything is written."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from clew.api.credentials import Principal
from clew.api.numbers import Numbering
from clew.api.workflow_schemas import CHAT, StartIn
from clew.apps.coding.assignments import Assignments
from clew.apps.coding.plan import CODING, WORKTREE
from clew.domain.errors import Invalid, NotFound
from clew.domain.events import Content, Opening
from clew.domain.thread import Json, Owner, Thread
from clew.engine.commands import Request
from clew.ports.files import Files
from clew.ports.graphs import Graphs

_NAME = 80
_CODING_FIELDS = ("issueId", "worktreePath")
DEFAULT_PROFILE = "default"


@dataclass(frozen=True, slots=True)
class Start:
    opening: Opening
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPolicy:
    """The graphs and profiles there are, and how long a thread is kept unless told otherwise."""

    graphs: Graphs
    profiles: Collection[str]
    ttl: timedelta
    files: Files
    numbering: Numbering
    # None where the graph `coding` is not ours but somebody's own.
    assignments: Assignments | None = None

    @property
    def fields(self) -> Mapping[str, Sequence[str]]:
        """What a start needs beside a prompt, by graph."""
        return {} if self.assignments is None else {CODING: _CODING_FIELDS}

    async def start(self, body: StartIn, caller: Principal) -> Start:
        """All that a new workflow begins with. Raises Invalid, and what the tracker of a coding workflow raises."""
        opening = self.opening(body, caller.owner)
        if self.assignments is None or opening.graph != CODING:
            for field, given in zip(_CODING_FIELDS, (body.issue_id, body.worktree_path), strict=True):
                if given is not None:
                    raise Invalid("only a coding workflow can be given this", field=field)
            return Start(opening, await self.request(body, caller.owner))
        _require_no_input(body)
        profile = body.profile or DEFAULT_PROFILE
        assignment = await self.assignments.make(
            body.issue_id, body.worktree_path, profile=profile, text=body.prompt, is_local=not caller.key_id
        )
        return Start(
            replace(
                opening,
                name=opening.name if body.name is not None else assignment.title[:_NAME],
                settings={**opening.settings, **assignment.settings},
            ),
            Request(message=body.prompt, graph_input=assignment.state),
        )

    async def next_round(self, body: StartIn, thread: Thread, owner: Owner) -> Request:
        """Raises Invalid for what only a new workflow can be given, or when there is nothing to say."""
        self.require_next_round(body, thread)
        if WORKTREE not in thread.settings:
            return await self.request(body, owner)
        _require_no_input(body)
        if body.prompt is None:
            raise Invalid("a prompt is needed: what the new plan shall heed", field="prompt")
        # Where it works and on what has been settled; this is what a person says to it.
        return Request(message=body.prompt, graph_input={"remark": body.prompt})

    def opening(self, body: StartIn, owner: Owner) -> Opening:
        """Raises Invalid, naming what there is."""
        graph = body.graph or (CHAT if body.issue_id is None else CODING)
        self._require_graph(graph)
        settings: dict[str, Json] = {}
        if body.profile is not None:
            if body.profile not in self.profiles:
                raise Invalid(
                    f"no profile {body.profile!r}; there are: {_listed(self.profiles)}", field="profile"
                )
            settings["profile"] = body.profile
        if body.verbose:
            settings["verbose"] = True
        return Opening(
            owner=owner,
            graph=graph,
            name=_name(body),
            settings=settings,
            ttl=self._ttl(body),
        )

    def require_next_round(self, body: StartIn, thread: Thread) -> None:
        """Raises Invalid for what only a new workflow can be given."""
        if body.graph not in (None, thread.graph):
            raise Invalid(f"this workflow runs the graph {thread.graph!r}", field="graph")
        self._require_graph(thread.graph)
        for field, given in (
            ("profile", body.profile is not None),
            ("name", body.name is not None),
            ("ttlDays", body.says_how_long),
            ("hold", body.hold),
            ("verbose", body.verbose),
            ("issueId", body.issue_id is not None),
            ("worktreePath", body.worktree_path is not None),
        ):
            if given:
                raise Invalid("only a new workflow can be given this", field=field)

    async def request(self, body: StartIn, owner: Owner) -> Request:
        """Raises Invalid when there is nothing to say, or a file is not there."""
        if body.prompt is None and body.input is None:
            raise Invalid("a prompt is needed", field="prompt")
        documents: list[str] = []
        for given in body.list_file_id:
            try:
                file_id = await self.numbering.file_id(owner.tenant, given)
                documents.append((await self.files.get_file(file_id, owner)).id)
            except NotFound as exc:
                raise Invalid(str(exc), field="listFileId") from exc
        return Request(
            message=said(body.input) if body.prompt is None else body.prompt,
            graph_input=body.input,
            documents=tuple(dict.fromkeys(documents)),
        )

    def _ttl(self, body: StartIn) -> timedelta | None:
        if not body.says_how_long:
            return self.ttl
        return None if body.ttl_days is None else timedelta(days=body.ttl_days)

    def _require_graph(self, name: str) -> None:
        if name in self.graphs.broken:
            # Why, is for whoever runs the server: it quotes paths and whatever the graph's own code says.
            raise Invalid(f"the graph {name!r} could not be loaded; the server's log says why", field="graph")
        if name not in self.graphs.graphs:
            raise Invalid(f"no graph {name!r}; there are: {_listed(self.graphs.graphs)}", field="graph")


def _require_no_input(body: StartIn) -> None:
    """What a coding workflow works on comes from checked fields alone."""
    for field, given in (("input", body.input is not None), ("listFileId", bool(body.list_file_id))):
        if given:
            raise Invalid("a coding workflow takes none", field=field)


def said(given: Json) -> Content | None:
    """What the user says where the input is a list of messages: a text, or parts such as texts and images."""
    match given:
        case {"messages": [*_, {"role": "user", "content": content}]}:
            pass
        case {"messages": [*_, {"type": "human", "content": content}]}:
            pass
        case _:
            return None
    if isinstance(content, str):
        return content if content.strip() else None
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return parts if parts and len(parts) == len(content) else None


def _name(body: StartIn) -> str:
    if body.name is not None:
        return body.name
    prompt = (body.prompt or "").strip()
    return prompt.splitlines()[0][:_NAME] if prompt else ""


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"
