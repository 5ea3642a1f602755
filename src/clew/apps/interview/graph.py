"""Interview graph: reads a document, asks its author one question at a time, and returns an improved document.

    ingest -> discovery -> qa (once a question) -> draft -> completed

Every wait for an answer is an interrupt, so it may last any time. The stage of the thread is the step.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from clew.apps.chat.documents import ChatDocuments
from clew.apps.chat.plan import Produced
from clew.apps.interview.rules import InterviewQuestion, QuestionKind, improve, questions
from clew.domain.errors import InvalidState, NotFound
from clew.domain.events import Log, UserMessage
from clew.graph.run import current_run
from clew.graph.stream import clew_message
from clew.ports.run_context import RunContext

NAME = "improved.md"
PASTE = "Please paste the document you want to improve."


class InterviewState(TypedDict, total=False):
    messages: list[Any]  # the input of a chat: its message is the document
    document: str
    file_id: str
    goal: str
    questions: list[dict[str, str]]
    answers: list[str]
    improved: str
    changes: list[str]
    reply: AIMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Interview:
    shelf: ChatDocuments

    def graph(self) -> StateGraph[InterviewState, None, InterviewState, InterviewState]:
        graph = StateGraph(InterviewState)
        graph.add_node("ingest", self.ingest)
        graph.add_node("discovery", discovery)
        graph.add_node("qa", qa)
        graph.add_node("draft", draft)
        graph.add_node("completed", self.completed)
        graph.add_edge(START, "ingest")
        graph.add_edge("ingest", "discovery")
        graph.add_edge("discovery", "qa")
        graph.add_conditional_edges("qa", _next, ["qa", "draft"])
        graph.add_edge("draft", "completed")
        graph.add_edge("completed", END)
        return graph

    async def ingest(self, state: InterviewState) -> InterviewState:
        """Take the document from the text, the message or the upload; ask for it if there is none."""
        run = _run()
        text = _said(state.get("messages") or []) or await _pasted(run)
        if not text and (file_id := state.get("file_id")):
            text = await self._uploaded(run, file_id)
        if not text:
            text = _asked(PASTE, number=0, of=0)
        return {
            "document": text,
            "goal": str(state.get("goal") or ""),
            "answers": [],
            # The next round must not take this round's input for its own.
            "messages": [],
            "file_id": "",
        }

    async def completed(self, state: InterviewState) -> InterviewState:
        """Return the result: as a document of the thread, and as a message in the conversation."""
        run = _run()
        made = Produced(label=NAME, content=state["improved"].encode())
        entry = await self.shelf.put(run.thread, "improved", made)
        reply = clew_message(
            state["improved"],
            id=f"{run.thread.round}.improved",
            agent="interviewer",
            marker="last",
            documents=[entry.id],
            added=[entry.added],
        )
        return {"reply": reply}

    async def _uploaded(self, run: RunContext, file_id: str) -> str:
        try:
            entry, warnings = await self.shelf.take_in(run.thread, file_id, ())
        except NotFound:
            await run.record(
                Log(message="The file is no longer there", level="warning", ref=f"gone/{file_id}")
            )
            return ""
        lines = (
            Log(message=f"{entry.label}: {warning}", level="warning", ref=f"{entry.id}/{number}")
            for number, warning in enumerate(warnings)
        )
        await run.record(*lines, entry.added)
        items = await self.shelf.documents.files.contents(run.thread.id, entry.id)
        return "\n\n".join(item.data.strip() for item in items if item.metadata.get("isText")).strip()


def discovery(state: InterviewState) -> InterviewState:
    found = questions(state["document"], state["goal"])
    return {"questions": [{name: str(value) for name, value in asdict(one).items()} for one in found]}


def qa(state: InterviewState) -> InterviewState:
    """One question. After a restart this step asks the same one again."""
    number = len(state["answers"])
    one = state["questions"][number]
    answer = _asked(one["text"], number=number + 1, of=len(state["questions"]), about=one["quote"])
    return {"answers": [*state["answers"], answer]}


def draft(state: InterviewState) -> InterviewState:
    asked = [
        InterviewQuestion(kind=QuestionKind(one["kind"]), quote=one["quote"], text=one["text"])
        for one in state["questions"]
    ]
    made = improve(state["document"], asked, state["answers"])
    return {"improved": made.text, "changes": list(made.changes)}


def _next(state: InterviewState) -> Literal["qa", "draft"]:
    return "qa" if len(state["answers"]) < len(state["questions"]) else "draft"


def _asked(question: str, *, number: int, of: int, about: str = "") -> str:
    answer = interrupt(
        {"kind": "elicitation", "message": question, "number": number, "of": of, "about": about}
    )
    if isinstance(answer, dict):  # the form in which other APIs answer; an expired question has no answer
        answer = answer.get("text") or answer.get("answer") or answer.get("feedback")
    return answer if isinstance(answer, str) else ""


async def _pasted(run: RunContext) -> str:
    """The last user message of this round in the log, for an input without a document."""
    _, events = await run.transcript()
    for event in reversed(events):
        match event.body:
            case UserMessage(content=str(text)) if event.round == run.thread.round:
                return text.strip()
            case _:
                pass
    return ""


def _said(messages: list[Any]) -> str:
    for message in reversed(messages):
        content = message.get("content") if isinstance(message, dict) else getattr(message, "content", None)
        if isinstance(content, str) and content.strip():
            return content.strip()
    return ""


def _run() -> RunContext:
    run = current_run()
    if run is None:
        raise InvalidState("this graph keeps documents with its thread: it runs under Clew only")
    return run
