"""Pending calls: list them, answer them, change their deadlines; approve or reject a workflow's one approval."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from clew.api.access import needs
from clew.api.credentials import Principal
from clew.api.guard import Caller
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.thread_access import ThreadAccess
from clew.api.workflow_schemas import (
    ApproveIn,
    CallOut,
    CallsOut,
    DeadlineIn,
    DecidedOut,
    RejectIn,
    ResolveIn,
    WorkflowId,
)
from clew.domain.errors import Invalid, InvalidState, NotFound
from clew.domain.events import Resolution
from clew.domain.questions import require_plan
from clew.domain.thread import Executor, Json, Owner, Pending, SuspensionKind
from clew.domain.tool_calls import CallStatus
from clew.engine.commands import Commands
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls

CallId = Annotated[str, Path(max_length=256)]
# What a person decides. Answers to questions and results of a client's work need the scope `write` alone.
DECISIONS = frozenset({SuspensionKind.APPROVAL, SuspensionKind.IN_DOUBT})


def approvals_router(commands: Commands, store: Store, prefix: str, *, access: ThreadAccess) -> APIRouter:
    """Under /api, and also without the prefix, where the first clients expect it."""
    router = Router(prefix=f"{prefix}/workflows", tags=["approvals"])
    # Two routes must not have one name in the description.
    under = "" if prefix else "_unprefixed"

    @router.post(
        "/{workflow_id}/approve",
        dependencies=[needs("approve")],
        name=f"approve{under}",
        responses=errors(Invalid, NotFound, InvalidState),
    )
    async def approve(caller: Caller, workflow_id: WorkflowId, body: ApproveIn | None = None) -> DecidedOut:
        """Approve the one approval the workflow waits for. It continues in the background."""
        given = body or ApproveIn()
        await decide(caller, workflow_id, approved=True, feedback=given.feedback, plan=given.plan)
        return DecidedOut(status="approved", workflow_id=workflow_id)

    @router.post(
        "/{workflow_id}/reject",
        dependencies=[needs("approve")],
        name=f"reject{under}",
        responses=errors(Invalid, NotFound, InvalidState),
    )
    async def reject(caller: Caller, workflow_id: WorkflowId, body: RejectIn) -> DecidedOut:
        """Reject the one approval the workflow waits for, with a reason."""
        await decide(caller, workflow_id, approved=False, feedback=body.feedback)
        return DecidedOut(status="rejected", workflow_id=workflow_id)

    async def decide(
        caller: Principal, workflow_id: str, *, approved: bool, feedback: str, plan: str | None = None
    ) -> None:
        await access.at(workflow_id, caller.owner)
        try:
            await commands.approve(
                workflow_id,
                caller.owner,
                approved=approved,
                feedback=feedback,
                plan=plan,
                by=_name(caller),
            )
        except InvalidState as exc:
            raise await with_decision(store, exc, workflow_id, caller.owner) from exc

    return router


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallsRoutes:
    commands: Commands
    store: Store
    calls: Calls
    access: ThreadAccess

    def router(self) -> APIRouter:
        router = Router(prefix="/api/workflows/{workflow_id}/tool-calls", tags=["tool calls"])
        router.get("", dependencies=[needs("read")], responses=errors(Invalid, NotFound))(
            self.list_tool_calls
        )
        router.get("/{call_id}", dependencies=[needs("read")], responses=errors(Invalid, NotFound))(
            self.get_tool_call
        )
        router.post(
            "/{call_id}/resolve",
            dependencies=[needs("write")],
            responses=errors(Invalid, NotFound, InvalidState),
        )(self.resolve_tool_call)
        router.put(
            "/{call_id}/deadline",
            dependencies=[needs("write")],
            responses=errors(Invalid, NotFound, InvalidState),
        )(self.move_deadline)
        router.delete(
            "/{call_id}/deadline",
            dependencies=[needs("write")],
            responses=errors(Invalid, NotFound, InvalidState),
        )(self.lift_deadline)
        return router

    async def list_tool_calls(
        self,
        caller: Caller,
        workflow_id: WorkflowId,
        status: Annotated[
            list[CallStatus] | None, Query(description="Those with this status, instead of those that wait.")
        ] = None,
    ) -> CallsOut:
        """The calls that wait for an answer, or those with a status."""
        thread = await self.access.at(workflow_id, caller.owner)
        found = await self.calls.find(thread.id, status=status or ())
        return CallsOut(
            tool_calls=[CallOut.of(thread, call) for call in found if status or call.id in thread.pending]
        )

    async def get_tool_call(self, caller: Caller, workflow_id: WorkflowId, call_id: CallId) -> CallOut:
        """One call, in any status."""
        thread = await self.access.at(workflow_id, caller.owner)
        return CallOut.of(thread, await self.calls.get(thread.id, call_id))

    async def resolve_tool_call(
        self, caller: Caller, workflow_id: WorkflowId, call_id: CallId, body: ResolveIn
    ) -> CallOut:
        """Answer a call. The first answer counts; any other is refused with an error that names the first one."""
        thread = await self.access.at(workflow_id, caller.owner)
        call = await self.calls.get(thread.id, call_id)
        pending = thread.pending.get(call_id)
        if pending is None:
            raise await with_decision(
                self.store, _not_waiting(workflow_id, call_id), workflow_id, caller.owner, call_id
            )
        if pending.kind in DECISIONS:
            caller.require("approve")
        answer, approved = meant(pending, body, is_tool=bool(call.name))
        try:
            thread = await self.commands.resolve(
                workflow_id,
                caller.owner,
                call_id,
                answer,
                approved=approved,
                kind=pending.kind,
                by=_name(caller),
            )
        except InvalidState as exc:
            raise await with_decision(self.store, exc, workflow_id, caller.owner, call_id) from exc
        return CallOut.of(thread, await self.calls.get(thread.id, call_id))

    async def move_deadline(
        self, caller: Caller, workflow_id: WorkflowId, call_id: CallId, body: DeadlineIn
    ) -> CallOut:
        """Change the deadline of a call."""
        return await self._reschedule(caller, workflow_id, call_id, body)

    async def lift_deadline(self, caller: Caller, workflow_id: WorkflowId, call_id: CallId) -> CallOut:
        """Remove the deadline of a call."""
        return await self._reschedule(caller, workflow_id, call_id, None)

    async def _reschedule(
        self, caller: Principal, workflow_id: str, call_id: str, body: DeadlineIn | None
    ) -> CallOut:
        thread = await self.access.at(workflow_id, caller.owner)
        await self.calls.get(thread.id, call_id)
        deadline = body.deadline if body else None
        if call_id not in thread.pending or not await self.calls.reschedule(thread.id, call_id, deadline):
            raise _not_waiting(workflow_id, call_id)
        return CallOut.of(thread, await self.calls.get(thread.id, call_id))


def tool_calls_router(commands: Commands, store: Store, calls: Calls, *, access: ThreadAccess) -> APIRouter:
    return ToolCallsRoutes(commands=commands, store=store, calls=calls, access=access).router()


def meant(pending: Pending, body: ResolveIn, *, is_tool: bool) -> tuple[Json, bool]:
    """The answer to the call, and whether it approves. Raises Invalid when it does not fit the question."""
    said = "answer" in body.model_fields_set
    if pending.kind is SuspensionKind.IN_DOUBT:
        if body.retry:
            return {"retry": True}, True
        if said:
            return body.answer, True
        raise Invalid("say how it ended (`answer`), or that it may run again (`retry`)", field="answer")
    if body.plan is not None:
        require_plan(pending, body.plan, approved=body.approved is True)
    if pending.kind is SuspensionKind.APPROVAL:
        if body.approved is not None:
            answer: dict[str, Any] = {"approved": body.approved}
            if body.feedback:
                answer["feedback"] = body.feedback
            if body.plan is not None:
                answer["plan"] = body.plan
            return answer | ({"answer": body.answer} if said else {}), body.approved
        if said and not is_tool and pending.executor is Executor.HUMAN:
            return body.answer, True  # a graph's own question, which may have any answer
        raise Invalid("say whether it is `approved`", field="approved")
    if not said:
        raise Invalid("an `answer` is needed", field="answer")
    return body.answer, True


async def with_decision(
    store: Store, exc: InvalidState, workflow_id: str, owner: Owner, call_id: str | None = None
) -> InvalidState:
    """The error for a late answer; it names this round's decision, without the text of its answer."""
    thread = await store.get(workflow_id, owner)
    if call_id is None and thread.pending:
        return exc
    answers = await store.read(thread.id, after=thread.round_seq - 1, types=(Resolution.type,))
    for event in reversed(answers):
        if isinstance(event.body, Resolution) and call_id in (None, event.body.call_id):
            return InvalidState(f"{exc}; it was {_decision(event.body)}")
    return exc


def _decision(body: Resolution) -> str:
    if body.outcome != "answered":
        return body.outcome
    by = f" by {body.by}" if body.by else ""
    match body.answer:
        case {"approved": True}:
            return f"approved{by}"
        case {"approved": False}:
            return f"rejected{by}"
        case _:
            return f"answered{by}"


def _not_waiting(workflow_id: str, call_id: str) -> InvalidState:
    return InvalidState(f"call {call_id!r} of workflow {workflow_id!r} waits for no answer")


def _name(caller: Principal) -> str:
    return caller.user_id or caller.key_id
