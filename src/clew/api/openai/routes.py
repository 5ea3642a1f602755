"""/v1/models and /v1/chat/completions: OpenAI's clients run an assistant's graph as a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from uuid import UUID, uuid4, uuid5

from fastapi import APIRouter, Header
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response, StreamingResponse

from clew.api.answer_text import APART, AnswerText
from clew.api.credentials import Principal
from clew.api.events import Tell
from clew.api.followed_runs import FollowedRun, FollowedRuns, RunCall
from clew.api.guard import Caller
from clew.api.openai.answers import Completion, event, questions_text
from clew.api.openai.errors import SERVER, UnknownModel, errors, needs
from clew.api.openai.schemas import CompletionIn, ModelName, unheard
from clew.api.routing import Router
from clew.api.sdk.streaming import failure
from clew.domain.assistants import Assistant, Search, schema_fields
from clew.domain.errors import Invalid, InvalidState, NotFound, Permanent
from clew.domain.questions import answers_in_words
from clew.domain.runs import RunStatus
from clew.domain.thread import Json, Owner, Status, Thread
from clew.engine.assistants import system_id
from clew.ports.graphs import GraphIntrospection

# The header that names the thread of a conversation, in requests and in answers.
THREAD = "X-Clew-Thread"
# Conversations that are no UUID get the id of their thread in this namespace.
NAMESPACE = UUID("0d8f3f0e-52a6-5d0f-8f0e-3c1d2a4b5c6d")
MOST_MODELS = 1000
MESSAGES = "messages"
MODES = ("messages-tuple",)

_CHUNKS: Mapping[int | str, dict[str, Any]] = {
    200: {"description": "The completion, or its chunks.", "content": {"text/event-stream": {"schema": {}}}}
}
Conversation = Annotated[str | None, Header(max_length=256)]


class ModelOut(BaseModel):
    id: str
    object: str = "model"
    created: int
    owned_by: str = "clew"
    name: str
    description: str | None


class ModelsOut(BaseModel):
    object: str = "list"
    data: list[ModelOut]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIRoutes:
    runs: FollowedRuns
    introspection: GraphIntrospection
    # By graph: the names in its input, None where that is not known, and in its context.
    fields: dict[str, tuple[frozenset[str] | None, frozenset[str]]] = field(default_factory=dict)

    def router(self) -> APIRouter:
        router = Router(prefix="/v1", tags=["openai"])
        router.get("/models", dependencies=[needs("read")], responses=errors())(self.list_models)
        router.get("/models/{model}", dependencies=[needs("read")], responses=errors(NotFound))(
            self.get_model
        )
        router.post(
            "/chat/completions",
            dependencies=[needs("write")],
            response_class=JSONResponse,
            responses={**_CHUNKS, **errors(NotFound, InvalidState, Permanent)},
        )(self.create_completion)
        return router

    async def list_models(self, caller: Caller) -> ModelsOut:
        """The assistants of graphs that take messages."""
        found, _ = await self.runs.assistants.find(
            caller.owner, Search(limit=MOST_MODELS, sort_by="name", descending=False)
        )
        return ModelsOut(data=[_shown(one) for one in found if await self._takes_messages(one, caller.owner)])

    async def get_model(self, caller: Caller, model: ModelName) -> ModelOut:
        return _shown(await self._assistant(model, caller.owner))

    async def create_completion(
        self,
        caller: Caller,
        body: CompletionIn,
        x_clew_thread: Conversation = None,
        x_openwebui_chat_id: Conversation = None,
    ) -> Response:
        """Run the graph with these messages. With a conversation its thread is kept, and new messages are appended."""
        assistant = await self._assistant(body.model, caller.owner)
        _, settings = await self._fields(assistant, caller.owner)
        config = {"configurable": body.graph_settings(settings)}
        thread_id = _thread_id(
            caller.itself, assistant, thread=x_clew_thread, chat=x_openwebui_chat_id or body.user
        )
        thread = None if thread_id is None else await self.runs.thread(thread_id, caller.owner)
        call = RunCall(
            assistant=assistant, thread_id=thread_id, modes=MODES, config=config, metadata=body.metadata
        )
        headers = {} if thread_id is None else {THREAD: thread_id}
        if thread is not None and thread.pending and thread.status is Status.BLOCKED:
            answer = _answer(thread, body)
            if answer is None:
                return self._asked_again(body, questions_text(thread, is_kept=True), headers)
            return await self._run(caller, body, replace(call, resumes=True, resume=answer), headers)
        new = [*body.messages] if thread is None or not thread.graph else unheard(body.messages)
        if not new:
            raise Invalid("the last message is the assistant's: there is none to answer", field=MESSAGES)
        given = {MESSAGES: [message.as_input() for message in new]}
        return await self._run(caller, body, replace(call, input=given), headers)

    async def _run(
        self, caller: Principal, body: CompletionIn, call: RunCall, headers: Mapping[str, str]
    ) -> Response:
        followed = await self.runs.start(caller, call)
        answer = CompletedRun(followed, body, is_kept=call.thread_id is not None)
        if body.stream:
            return self.runs.stream(caller, followed, answer.tell, headers)
        return self.runs.answer(caller, followed, lambda: answer.response(headers))

    def _asked_again(self, body: CompletionIn, text: str, headers: Mapping[str, str]) -> Response:
        """The question once more, for a message that does not answer it. No run is started."""
        now = int(self.runs.runs.clock().timestamp())
        shown = Completion(id=str(uuid4()), created=now, model=body.model, includes_usage=body.includes_usage)
        usage = AnswerText().usage
        if not body.stream:
            return JSONResponse(shown.whole(text, usage), headers=headers)
        frames = [shown.first(), shown.text(text), shown.last(usage)]
        return StreamingResponse(iter(frames), media_type="text/event-stream", headers=headers)

    async def _assistant(self, model: str, owner: Owner) -> Assistant:
        try:
            found = await self.runs.assistants.resolve(model, owner)
        except (NotFound, Invalid):
            raise UnknownModel(f"no model {model!r}; GET /v1/models lists them") from None
        if not await self._takes_messages(found, owner):
            raise UnknownModel(f"the graph {found.graph!r} takes no messages, so it is no model")
        return found

    async def _takes_messages(self, assistant: Assistant, owner: Owner) -> bool:
        given, _ = await self._fields(assistant, owner)
        return given is None or MESSAGES in given

    async def _fields(
        self, assistant: Assistant, owner: Owner
    ) -> tuple[frozenset[str] | None, frozenset[str]]:
        graph = assistant.graph
        if graph not in self.fields:
            schemas = await self.introspection.schemas(assistant, owner)
            self.fields[graph] = (schema_fields(schemas.input), schema_fields(schemas.context) or frozenset())
        return self.fields[graph]


class CompletedRun:
    """A run as a completion: its chunks as they come, or all of it at its end."""

    def __init__(self, followed: FollowedRun, body: CompletionIn, *, is_kept: bool) -> None:
        self._followed = followed
        self._is_kept = is_kept
        self._text = AnswerText()
        self._shown = Completion(
            id=followed.run.id,
            created=int(followed.run.created_at.timestamp()),
            model=body.model,
            includes_usage=body.includes_usage,
        )

    async def tell(self, tell: Tell) -> None:
        await tell(self._shown.first())
        has_said = False
        async for part in self._followed.parts():
            if part is None:
                await tell(b": ping\n\n")
            elif delta := self._text.hear(part):
                has_said = True
                await tell(self._shown.text(delta))
        if failed := self._failure():
            await tell(event(failed))
            return
        asked = questions_text(await self._followed.thread(), is_kept=self._is_kept)
        if has_said:
            rest = APART + asked if asked else ""
        else:
            rest = asked or self._text.whole(await self._followed.output())
        if rest:
            await tell(self._shown.text(rest))
        await tell(self._shown.last(self._text.usage))

    async def response(self, headers: Mapping[str, str]) -> Response:
        async for part in self._followed.parts():
            if part is not None:
                self._text.hear(part)
        if failed := self._failure():
            # A run that failed was retried as its graph says: a client would only repeat what it did.
            return JSONResponse(failed, 502, {**headers, "x-should-retry": "false"})
        asked = questions_text(await self._followed.thread(), is_kept=self._is_kept)
        has_said = any(self._text.texts.values())
        text = self._text.whole(await self._followed.output()) if has_said or not asked else ""
        text = APART.join(part for part in (text, asked) if part)
        return JSONResponse(self._shown.whole(text, self._text.usage), headers=dict(headers))

    def _failure(self) -> dict[str, Any] | None:
        run = self._followed.run
        if run.status not in (RunStatus.ERROR, RunStatus.TIMEOUT):
            return None
        told = failure(run)
        return {
            "error": {"message": told["message"], "type": SERVER, "param": None, "code": told["error"]},
        }


def _answer(thread: Thread, body: CompletionIn) -> Json:
    """The answer that the last message gives to the thread's questions; None for none."""
    last = body.messages[-1]
    return answers_in_words(thread, last.text.strip() if last.role == "user" else "")


def _thread_id(owner: Owner, assistant: Assistant, *, thread: str | None, chat: str | None) -> str | None:
    """The thread that a header names, or the one of a chat with this model; None for a temporary one."""
    whose = f"{owner.tenant}\n{owner.user_id}"
    if thread:
        try:
            return str(UUID(thread))
        except ValueError:
            return str(uuid5(NAMESPACE, f"{whose}\n\n{thread}"))
    return str(uuid5(NAMESPACE, f"{whose}\n{assistant.id}\n{chat}")) if chat else None


def _shown(assistant: Assistant) -> ModelOut:
    """A graph's own assistant has the graph's name, as in requests."""
    is_own = assistant.id == system_id(assistant.graph)
    return ModelOut(
        id=assistant.graph if is_own else assistant.id,
        created=int(assistant.created_at.timestamp()),
        name=assistant.name,
        description=assistant.description,
    )
