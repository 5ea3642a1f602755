"""Start policy: what a workflow may be started with here, checked before anything is written."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from clew.api.credentials import Principal
from clew.api.numbers import Numbering
from clew.api.workflow_apps import Prepared, StartCall, WorkflowApp, WorkflowApps
from clew.api.workflow_schemas import StartIn
from clew.domain.errors import Forbidden, Invalid, NotFound
from clew.domain.events import Content, Opening
from clew.domain.lifecycle import RESERVED
from clew.domain.thread import Json, Owner, Thread
from clew.engine.commands import Request
from clew.ports.files import Files
from clew.ports.graphs import Graphs

_NAME = 80
DEFAULT_PROFILE = "default"


@dataclass(frozen=True, slots=True)
class Start:
    opening: Opening
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPolicy:
    """The graphs, apps and profiles there are, and how long a thread is kept where the request does not say."""

    graphs: Graphs
    profiles: Collection[str]
    ttl: timedelta
    files: Files
    numbering: Numbering
    apps: WorkflowApps

    @property
    def fields(self) -> Mapping[str, Sequence[str]]:
        """What a start needs beside a prompt, by graph."""
        return {app.name: app.required for app in self.apps.apps.values()}

    async def start(self, body: StartIn, caller: Principal) -> Start:
        """All that a new workflow begins with. Raises Invalid, and what the app that prepares it raises."""
        require_priority(body.priority, caller)
        given = self.app_fields(body)
        opening = self.opening(body, caller.owner)
        app = self.apps.apps.get(opening.graph)
        for name in given:
            if app is None or name not in app.fields:
                raise Invalid(
                    f"only a {self.apps.having(name)} workflow can be given this",
                    field=self.apps.fields[name],
                )
        if app is None or app.is_plain:
            return Start(opening, await self.request(body, caller.itself))
        return await self._prepared(app, body, given, opening, caller)

    async def next_round(self, body: StartIn, thread: Thread, caller: Principal) -> Request:
        """Raises Invalid for fields that only a new workflow can have, or when there is no prompt or input."""
        require_priority(body.priority, caller)
        self.require_next_round(body, thread)
        app = self.apps.apps.get(thread.graph)
        if app is not None and app.next_round is not None:
            call = await self._call(body, None, str(thread.settings.get("profile", DEFAULT_PROFILE)), caller)
            prepared = await app.next_round(call, thread)
            if prepared is not None:
                return _request(body, call, prepared)
        return await self.request(body, caller.itself)

    def app_fields(self, body: StartIn) -> dict[str, Json]:
        """The apps' start fields in the request, by their names in the models. Null counts as left out."""
        given = {name: getattr(body, name, None) for name in self.apps.fields}
        return {name: value for name, value in given.items() if value is not None}

    def opening(self, body: StartIn, owner: Owner) -> Opening:
        """Raises Invalid, naming what there is."""
        graph = body.graph or self.apps.meant_by(self.app_fields(body))
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
        """Raises Invalid for fields that only a new workflow can have."""
        if body.graph not in (None, thread.graph):
            raise Invalid(f"this workflow runs the graph {thread.graph!r}", field="graph")
        self._require_graph(thread.graph)
        for field, given in (
            ("profile", body.profile is not None),
            ("name", body.name is not None),
            ("ttlDays", body.says_how_long),
            ("hold", body.hold),
            ("verbose", body.verbose),
            *((self.apps.fields[name], True) for name in self.app_fields(body)),
        ):
            if given:
                raise Invalid("only a new workflow can be given this", field=field)

    async def request(self, body: StartIn, owner: Owner) -> Request:
        """Raises Invalid when there is no prompt or input, or a file does not exist."""
        if body.prompt is None and body.input is None:
            raise Invalid("a prompt is needed", field="prompt")
        return Request(
            message=said(body.input) if body.prompt is None else body.prompt,
            graph_input=body.input,
            documents=await self._documents(body, owner),
            priority=body.priority,
        )

    async def _prepared(
        self,
        app: WorkflowApp,
        body: StartIn,
        given: Mapping[str, Json],
        opening: Opening,
        caller: Principal,
    ) -> Start:
        fields = app.read({app.fields[name]: value for name, value in given.items()})
        call = await self._call(body, fields, body.profile or DEFAULT_PROFILE, caller)
        if app.prepare is None:
            if body.input is not None:
                raise Invalid(f"the input of a {app.name} workflow is made of its fields", field="input")
            prepared = Prepared(graph_input=fields.model_dump(mode="json"))
        else:
            prepared = await app.prepare(call)
        reserved = {RESERVED: dict(prepared.reservations)} if prepared.reservations else {}
        name = opening.name if body.name is not None or prepared.name is None else prepared.name[:_NAME]
        settings = {**opening.settings, **prepared.settings, **reserved}
        return Start(replace(opening, name=name, settings=settings), _request(body, call, prepared))

    async def _call(self, body: StartIn, fields: object, profile: str, caller: Principal) -> StartCall:
        return StartCall(
            fields=fields,
            prompt=body.prompt,
            input=body.input,
            documents=await self._documents(body, caller.itself),
            profile=profile,
            owner=caller.owner,
            is_local=not caller.key_id,
        )

    async def _documents(self, body: StartIn, owner: Owner) -> tuple[str, ...]:
        """The ids of the files it names. Raises Invalid when one does not exist."""
        documents: list[str] = []
        for given in body.list_file_id:
            try:
                file_id = await self.numbering.file_id(owner.tenant, given)
                documents.append((await self.files.get_file(file_id, owner)).id)
            except NotFound as exc:
                raise Invalid(str(exc), field="listFileId") from exc
        return tuple(dict.fromkeys(documents))

    def _ttl(self, body: StartIn) -> timedelta | None:
        if not body.says_how_long:
            return self.ttl
        return None if body.ttl_days is None else timedelta(days=body.ttl_days)

    def _require_graph(self, name: str) -> None:
        if name in self.graphs.broken:
            # The reason is in the log for operators: it quotes paths and what the graph's own code says.
            raise Invalid(f"the graph {name!r} could not be loaded; the server's log says why", field="graph")
        if name not in self.graphs.graphs:
            raise Invalid(f"no graph {name!r}; there are: {_listed(self.graphs.graphs)}", field="graph")


def require_priority(priority: int | None, caller: Principal) -> None:
    """Priorities are compared before tenants take turns, so one before 0 delays all tenants. Raises Forbidden."""
    if priority is not None and priority < 0 and "operator" not in caller.scopes:
        raise Forbidden(f"the priority {priority} needs a key with the scope 'operator'; without it, from 0")


def _request(body: StartIn, call: StartCall, prepared: Prepared) -> Request:
    return Request(
        message=body.prompt,
        graph_input=prepared.graph_input,
        documents=call.documents,
        priority=body.priority,
    )


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
