"""Chat graph: a project manager plans, agents run its plan task by task, and it reports the result.

Every task is its own step. Its result is in the checkpoint before it is reported. So after a crash, the next process
continues with the first task that has no result, and reports nothing twice.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, messages_from_dict, messages_to_dict
from langchain_core.tools import BaseTool
from langgraph.channels import EphemeralValue
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph

from clew.apps.chat.agents.project_manager import Situation, make_plan
from clew.apps.chat.agents.registry import AgentRegistry
from clew.apps.chat.conclusion import conclude, review
from clew.apps.chat.cpu_budget import CpuBudget
from clew.apps.chat.documents import ChatDocuments, Entry, by_label, entries
from clew.apps.chat.ending import text_in
from clew.apps.chat.plan import (
    PROJECT_MANAGER,
    TOOL_USER,
    AgentTask,
    PlannedTask,
    Result,
    WorkPlan,
    has_failed,
    plan_as_json,
    progress,
    read_plan,
    read_result,
    without_data,
)
from clew.apps.chat.table_tool import table_query
from clew.apps.chat.tool_use import (
    FindTools,
    ToolUser,
    document_search,
    no_tools,
    result_of,
    wants_tools,
)
from clew.apps.chat.workers import AgentWorkers
from clew.apps.drivers.asking import open_session, run_of_thread
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Purpose
from clew.apps.drivers.session import DriverSession
from clew.documents.documents import EXTRACTED_CHARACTERS
from clew.documents.passages import cut
from clew.domain import views
from clew.domain.errors import ClewError, Invalid, LimitExceeded, NotFound, Permanent
from clew.domain.events import (
    Log,
    UserMessage,
)
from clew.domain.profile import Budget
from clew.domain.retry import ErrorClass, RetryPolicy
from clew.domain.thread import Json, Thread
from clew.graph.stream import clew_message
from clew.ports.run_context import RunContext
from clew.texts.phrases import Text, listed, say
from clew.toolsets.calculator import calculator

# These messages contain private text; they are written only at debug level.
debug = logging.getLogger("clew.debug")

HISTORY_MESSAGES = 12
HISTORY_CHARACTERS = 1_000
# How much of an agent's text the last message of a round is written from.
SAID_CHARACTERS = 8_000
_REASON_CHARACTERS = 300
_BIG_FILE_STEPS = 20


class ChatState(TypedDict, total=False):
    # A round's input and a node's messages: dropped at the next step, because the log has all of them.
    messages: Annotated[list[Any], EphemeralValue]
    prompt: str
    language: str
    documents: list[dict[str, Json]]
    plan: dict[str, Json]
    results: list[dict[str, Json]]
    # What the model and its tools said in the task that runs: as JSON, since it is not said to the user.
    turns: list[dict[str, Json]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatLimits:
    """What one round may cost."""

    # Of what one task is given, and of what all tasks of a round may make together.
    input_bytes: int = 200 * 2**20
    output_bytes: int = 100 * 2**20
    # Of computing, by all tasks of a round together; waiting for a model is not computing.
    cpu_seconds: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    shelf: ChatDocuments
    agents: AgentRegistry
    driver: Callable[[Thread], Driver]
    policy: Callable[[Thread], RetryPolicy]
    budget: Callable[[Thread], Budget | None] = lambda _: None
    # The language of a text, and the one spoken before.
    detect: Callable[[str, str | None], str]
    workers: AgentWorkers
    limits: ChatLimits = ChatLimits()
    # Those of MCP servers.
    tools: FindTools = no_tools

    def graph(self) -> StateGraph[ChatState, None, ChatState, ChatState]:
        graph = StateGraph(ChatState)
        graph.add_node("intake", self.intake)
        graph.add_node("plan", self.plan)
        graph.add_node("work", self.work)
        graph.add_node("consult", self.consult)
        graph.add_node("act", self.act)
        graph.add_node("answer", self.answer)
        graph.add_edge(START, "intake")
        graph.add_edge("intake", "plan")
        for node in ("plan", "work", "consult"):
            graph.add_conditional_edges(node, _next, ["work", "consult", "act", "answer"])
        graph.add_edge("act", "consult")
        graph.add_edge("answer", END)
        return graph

    async def intake(self, state: ChatState) -> ChatState:
        """Read the user's prompt and files."""
        run = run_of_thread()
        thread = run.thread
        first = "Workflow initialized" if thread.round == 1 else f"Resuming workflow, round {thread.round}"
        await run.record(
            Log(message=first, progress=0, ref="first"),
            Log(message="Workflow processing started", progress=0, ref="started"),
        )
        asked = await self._asked(run)
        prompt = text_in(asked.content) if asked else _prompt_in(state.get("messages", []))
        if not prompt.strip():
            raise Permanent("there is no prompt to work on", ErrorClass.VALIDATION)
        known = _shown(run, state.get("documents", []))
        for file_id in asked.documents if asked else ():
            entry = await self._take_in(run, file_id, known)
            known = [one for one in known if entry is None or one.id != entry.id] + ([entry] if entry else [])
        return {
            "prompt": prompt,
            "language": self.detect(prompt, state.get("language")),
            "documents": [entry.as_json() for entry in known],
            "plan": {},
            "results": [],
            "turns": [],
        }

    async def plan(self, state: ChatState) -> ChatState:
        """Let the project manager make the plan."""
        run = run_of_thread()
        await run.record(_line("Analyzing request and planning work", 10, PROJECT_MANAGER))
        session = self._session(run)
        known = _shown(run, state["documents"])
        agents = dict(self.agents.descriptions)
        if session.can(Purpose.USE):
            agents[TOOL_USER] = await self._tool_user(run, state).description()
        situation = Situation(
            prompt=state["prompt"],
            language=state["language"],
            agents=agents,
            documents=[entry.described for entry in by_label(known).values()],
            round=run.thread.round,
            history=await self._history(run),
            sees=session.can(Purpose.SEE),
        )
        plan = await make_plan(session, situation)
        await run.record(
            _line("Planned outputs", 20, PROJECT_MANAGER),
            _line("Work plan created", 25, PROJECT_MANAGER),
        )
        said = _message(run, "plan", plan.response, PROJECT_MANAGER, session)
        return {
            "plan": plan_as_json(plan),
            "language": plan.language or state["language"],
            "messages": [said],
        }

    async def work(self, state: ChatState) -> ChatState:
        """Run the first task that has no result."""
        run = run_of_thread()
        planned = await self._announce(run, state)
        session, cpu = self._session(run), self._cpu(state)
        task = await self._task(run, state, planned, session, cpu)

        async def process() -> Result:
            return await self._process(task, session, cpu)

        return await self._outcome(run, state, session, cpu, process)

    async def consult(self, state: ChatState) -> ChatState:
        """Ask the model for the next turn of a task with tools."""
        run, turns = run_of_thread(), messages_from_dict(state.get("turns", []))
        planned = await self._announce(run, state)
        session, cpu = self._session(run), self._cpu(state)
        session.count(turn.usage_metadata for turn in turns if isinstance(turn, AIMessage))
        task = await self._task(run, state, planned, session, cpu)

        async def process() -> Result | AIMessage:
            turn = await self._tool_user(run, state).ask(run, session, task, turns)
            if wants_tools([turn]):
                return turn
            return read_result(result_of(planned, str(turn.text)), max_bytes=self.limits.output_bytes)

        return await self._outcome(run, state, session, cpu, process)

    async def act(self, state: ChatState) -> ChatState:
        """Carry out the calls of the model's last turn."""
        run = run_of_thread()
        (last,) = messages_from_dict(state["turns"][-1:])
        assert isinstance(last, AIMessage)  # noqa: S101 - the edge leads here after such a turn only
        results = await self._tool_user(run, state).act(run, last)
        return {"turns": [*state["turns"], *messages_to_dict(results)]}

    async def _announce(self, run: RunContext, state: ChatState) -> PlannedTask:
        """The first task without a result. The lines of the log are there once, however often it is begun."""
        plan, results = _plan(state), state["results"]
        number, total = len(results) + 1, len(plan.tasks)
        planned = plan.tasks[number - 1]
        await self._tell_failure(run, results, total)
        running = f"Running task {number}/{total}: {planned.agent}"
        await run.record(_line(running, progress(number - 1, total), planned.agent))
        return planned

    def _cpu(self, state: ChatState) -> CpuBudget:
        spent = sum(float(result.get("cpu", 0.0)) for result in state["results"])
        return CpuBudget(limit=self.limits.cpu_seconds, spent_before=spent)

    async def _outcome(
        self,
        run: RunContext,
        state: ChatState,
        session: DriverSession,
        cpu: CpuBudget,
        process: Callable[[], Awaitable[Result | AIMessage]],
    ) -> ChatState:
        """What the task changes: it has a result, or failed with a reason, or took a turn that calls tools."""
        results = state["results"]
        number = len(results) + 1
        agent = _plan(state).tasks[number - 1].agent
        done: dict[str, Json] = {"agent": agent, "ok": True, "reason": "", "documents": []}
        made: list[Entry] = []
        try:
            result = await process()
            if isinstance(result, AIMessage):
                return {"turns": [*state.get("turns", []), *messages_to_dict([result])]}
            made = await self._keep(run, state, number, result)
            text = result.feedback
            shown = [one.as_json() for one in made]
            done |= {"documents": shown, "refused": result.refused, "answer": result.answer}
        except (GraphBubbleUp, LimitExceeded):
            raise
        except MemoryError as exc:
            raise LimitExceeded("resource limit: out of memory", ErrorClass.INTERNAL) from exc
        except Exception as exc:  # noqa: BLE001 - an agent may raise anything; its task has failed, and the next one runs
            debug.debug("%s failed", agent, exc_info=exc)
            reason = _reason(exc)
            text = say(Text.TASK_FAILED, state["language"], reason=reason)
            done |= {"ok": False, "reason": reason}
        done |= {"cpu": cpu.spent, "said": cut(text, SAID_CHARACTERS)}
        return {
            "results": [*results, done],
            "documents": [*state["documents"], *(one.as_json() for one in made)],
            "turns": [],
            "messages": [_message(run, f"task.{number}", text, agent, session, made)],
        }

    def _tool_user(self, run: RunContext, state: ChatState) -> ToolUser:
        async def find() -> Sequence[BaseTool]:
            known = list(by_label(_shown(run, state["documents"])).values())
            search, analyst = document_search(self.shelf, run.thread, known), self.agents.role("analyst")
            given = (self.shelf, run.thread, known, state["language"], self._cpu(state))
            return [calculator(), search, table_query(self.workers, analyst, *given), *await self.tools()]

        return ToolUser(find)

    async def answer(self, state: ChatState) -> ChatState:
        """Report what was planned and what was delivered."""
        run = run_of_thread()
        plan, results = _plan(state), state["results"]
        await self._tell_failure(run, results, len(plan.tasks))
        failed = [result for result in results if not result["ok"]]
        if has_failed(len(failed), len(results)):
            reasons = "; ".join(f"{result['agent']}: {result['reason']}" for result in failed)
            raise Permanent(f"{len(failed)} of {len(results)} tasks failed ({reasons})", ErrorClass.INTERNAL)
        await run.record(_line("Creating final response", 90, PROJECT_MANAGER))
        made = by_label(entry for result in results for entry in _shown(run, result["documents"]))
        session = self._session(run)
        text = review(plan, list(made), results, state["language"], is_offline=not session.model)
        unseen = [
            entry.label
            for entry in _shown(run, state["documents"])
            if entry.kind == "picture" and entry.origin == "user" and entry.round == run.thread.round
        ]
        if unseen and session.model and not session.can(Purpose.SEE):
            documents = listed(unseen, state["language"])
            text = f"{text} {say(Text.NOT_SEEN, state['language'], documents=documents)}"
        text = await conclude(session, plan, state, text)
        delivered = [made[label] for label in plan.final_documents if label in made] or list(made.values())
        said = clew_message(
            text,
            id=f"{run.thread.round}.last",
            agent=PROJECT_MANAGER,
            marker="last",
            documents=[entry.id for entry in delivered],
            tokens=(session.tokens_in, session.tokens_out),
            model=session.model,
        )
        return {"messages": [said]}

    async def _take_in(self, run: RunContext, file_id: str, known: Sequence[Entry]) -> Entry | None:
        thread = run.thread
        fresh = [entry.label for entry in known if entry.origin == "user" and entry.round == thread.round]
        try:
            entry, warnings = await self.shelf.take_in(
                thread, file_id, fresh, progress=_reading(run, file_id)
            )
        except NotFound:
            gone = f"The file {file_id} is no longer there"
            await run.record(Log(message=gone, level="warning", ref=f"gone/{file_id}"))
            return None
        await run.record(
            *(
                Log(message=f"{entry.label}: {warning}", level="warning", ref=f"{entry.id}/{number}")
                for number, warning in enumerate(warnings)
            ),
            entry.added,
        )
        return entry

    async def _process(self, task: AgentTask, session: DriverSession, cpu: CpuBudget) -> Result:
        """Run the task where it does not block the server, and validate the agent's result."""
        name = task["context"]["agentType"]
        debug.debug("task for %s: %s", name, without_data(task))
        given = await self.workers.process(self.agents.role(name), session, task, cpu)
        result = read_result(given, max_bytes=self.limits.output_bytes)
        labels = [document.label for document in result.documents]
        debug.debug("result of %s: %s %s", name, result.feedback, labels)
        return result

    async def _task(
        self, run: RunContext, state: ChatState, planned: PlannedTask, session: DriverSession, cpu: CpuBudget
    ) -> AgentTask:
        async def extract(texts: Sequence[tuple[str, bool]], prompt: str) -> Sequence[str]:
            return await self.workers.extracts(texts, prompt, cpu, limit=EXTRACTED_CHARACTERS)

        thread, stamp = run.thread, run.stamp()
        known = _shown(run, state["documents"])
        if planned.inputs is None:
            chosen = [entry for entry in known if entry.origin == "user" and entry.round == thread.round]
        else:
            labelled = by_label(known)
            # A document that an earlier task failed to make is missing; the agent works with the others.
            chosen = [labelled[label] for label in planned.inputs if label in labelled]
        if sum(entry.size for entry in chosen) > self.limits.input_bytes:
            raise Permanent(
                f"resource limit: a task is given more than {self.limits.input_bytes} bytes",
                ErrorClass.VALIDATION,
            )
        return {
            "taskId": stamp.new_id(),
            "workflowId": thread.id,
            "prompt": planned.prompt,
            "inputDocuments": [
                await self.shelf.shown(thread, entry, planned.prompt, session, extract) for entry in chosen
            ],
            "outputSpecifications": [
                {"label": output.label, "description": output.description} for output in planned.outputs
            ],
            "context": {
                "workflowRound": thread.round,
                "agentType": planned.agent,
                "timestamp": stamp.now.isoformat(),
                "language": state["language"],
            },
        }

    async def _keep(self, run: RunContext, state: ChatState, number: int, result: Result) -> list[Entry]:
        before = sum(document["size"] for done in state["results"] for document in done["documents"])
        if before + result.size > self.limits.output_bytes:
            raise Permanent(
                f"resource limit: the round made more than {self.limits.output_bytes} bytes",
                ErrorClass.VALIDATION,
            )
        return [
            await self.shelf.put(run.thread, str(number), document)
            for document in {one.label: one for one in result.documents}.values()
        ]

    async def _tell_failure(self, run: RunContext, results: Sequence[dict[str, Json]], total: int) -> None:
        """Log the failure of the previous task: only now is its result in the checkpoint and final."""
        if results and not results[-1]["ok"]:
            number, last = len(results), results[-1]
            text = f"Task {number}/{total} failed: {last['agent']}: {last['reason']}"
            await run.record(Log(message=text, level="error", agent=last["agent"], ref=f"failed/{number}"))

    def _session(self, run: RunContext) -> DriverSession:
        thread = run.thread
        return open_session(run, self.driver(thread), self.policy(thread), self.budget(thread))

    async def _asked(self, run: RunContext) -> UserMessage | None:
        """The prompt that began this round."""
        _, events = await run.transcript()
        said = [event.body for event in events if event.round == run.thread.round]
        return next((body for body in reversed(said) if isinstance(body, UserMessage)), None)

    async def _history(self, run: RunContext) -> list[dict[str, str]]:
        """The messages of earlier rounds, without redacted ones."""
        _, events = await run.transcript()
        earlier = [event for event in events if event.round < run.thread.round]
        said = list(views.messages(run.thread, earlier))[-HISTORY_MESSAGES:]
        return [
            {"role": message.role, "content": cut(text_in(message.content), HISTORY_CHARACTERS)}
            for message in said
        ]


def _shown(run: RunContext, stored: Iterable[dict[str, Json]]) -> list[Entry]:
    """Without redacted documents, also those redacted before a failed round was retried: no task gets them."""
    return [entry for entry in entries(stored) if entry.id not in run.thread.redacted]


def _next(state: ChatState) -> str:
    if wants_tools(messages_from_dict(state.get("turns", [])[-1:])):
        return "act"
    tasks, done = _plan(state).tasks, len(state["results"])
    if done >= len(tasks):
        return "answer"
    return "consult" if tasks[done].agent == TOOL_USER else "work"


def _plan(state: ChatState) -> WorkPlan:
    """The stored plan, which was validated when it was made."""
    stored = state["plan"]
    agents = {task["agent"] for task in stored["objWorkplan"]}
    inputs = {one["label"] for task in stored["objWorkplan"] for one in task.get("inputDocuments", ())}
    return read_plan(stored, agents=agents, documents=inputs)


def _line(message: str, done: int, agent: str) -> Log:
    return Log(message=message, progress=done, agent=agent, ref=message)


def _message(
    run: RunContext, name: str, text: str, agent: str, session: DriverSession, made: Sequence[Entry] = ()
) -> AIMessage:
    return clew_message(
        text,
        id=f"{run.thread.round}.{name}",
        agent=agent,
        documents=[entry.id for entry in made],
        added=[entry.added for entry in made],
        tokens=(session.tokens_in, session.tokens_out),
        model=session.model,
    )


def _reading(run: RunContext, file_id: str) -> Callable[[int, int], None]:
    """Logs the progress of reading a big file at each quarter."""
    told: set[int] = set()

    def tell(done: int, total: int) -> None:
        quarter = 4 * done // max(1, total)
        if total >= _BIG_FILE_STEPS and 0 < quarter < 4 and quarter not in told:
            told.add(quarter)
            text = f"Reading the file: {done} of {total} parts"
            run.note(Log(message=text, progress=0, ref=f"reading/{file_id}/{quarter}"))

    return tell


def _prompt_in(messages: Any) -> str:
    """The last message of a round's input, for a round without a message in the log."""
    for message in reversed(messages if isinstance(messages, list) else []):
        content = message.get("content") if isinstance(message, dict) else getattr(message, "content", None)
        if isinstance(content, str | list):
            return text_in(content)
    return ""


def _reason(exc: Exception) -> str:
    """For the thread's owner, in one line."""
    if isinstance(exc, Invalid) and exc.field:
        return f"{exc.field}: {exc}"
    first_line = str(exc).partition("\n")[0][:_REASON_CHARACTERS]
    if isinstance(exc, ClewError):
        return first_line
    return f"{type(exc).__name__}: {first_line}" if first_line else type(exc).__name__
