"""A discovery interview: reads a document, asks its author one question at a time, and hands back a better one.

    ingest -> discovery -> qa (once a question) -> draft -> completed

Every wait for an answer is an interrupt, so it lasts as long as it takes. The stage of the thread is the step.
"""

from dataclasses import asdict
from typing import Any, Literal, TypedDict
from uuid import uuid4

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from clew.domain.interview import Kind, Question, improve, questions
from clew.graph.run import current_run


class Interview(TypedDict, total=False):
    messages: list[Any]  # as a chat starts it: what was said is the document
    document: str
    goal: str
    questions: list[dict[str, str]]
    answers: list[str]
    improved: str
    changes: list[str]
    reply: AIMessage


def ingest(state: Interview) -> Interview:
    """Take the document as it was given; ask for it if it was not."""
    document = str(state.get("document") or "").strip() or _said(state.get("messages") or [])
    if not document:
        document = _asked("Please paste the document you want to improve.", number=0, of=0)
    return {"document": document, "goal": str(state.get("goal") or ""), "answers": [], "messages": []}


def discovery(state: Interview) -> Interview:
    found = questions(state["document"], state["goal"])
    return {"questions": [{name: str(value) for name, value in asdict(one).items()} for one in found]}


def qa(state: Interview) -> Interview:
    """One question. Asked again from here after a restart, it is the same one."""
    number = len(state["answers"])
    one = state["questions"][number]
    answer = _asked(one["text"], number=number + 1, of=len(state["questions"]), about=one["quote"])
    return {"answers": [*state["answers"], answer]}


def draft(state: Interview) -> Interview:
    asked = [
        Question(kind=Kind(one["kind"]), quote=one["quote"], text=one["text"]) for one in state["questions"]
    ]
    made = improve(state["document"], asked, state["answers"])
    return {"improved": made.text, "changes": list(made.changes)}


def completed(state: Interview) -> Interview:
    """Say the result in the conversation, where everybody finds it."""
    run = current_run()
    return {"reply": AIMessage(state["improved"], id=run.stamp().new_id() if run else str(uuid4()))}


def interview() -> StateGraph[Interview, None, Interview, Interview]:
    graph = StateGraph(Interview)
    graph.add_node("ingest", ingest)
    graph.add_node("discovery", discovery)
    graph.add_node("qa", qa)
    graph.add_node("draft", draft)
    graph.add_node("completed", completed)
    graph.add_edge(START, "ingest")
    graph.add_edge("ingest", "discovery")
    graph.add_edge("discovery", "qa")
    graph.add_conditional_edges("qa", _next, ["qa", "draft"])
    graph.add_edge("draft", "completed")
    graph.add_edge("completed", END)
    return graph


def _next(state: Interview) -> Literal["qa", "draft"]:
    return "qa" if len(state["answers"]) < len(state["questions"]) else "draft"


def _asked(question: str, *, number: int, of: int, about: str = "") -> str:
    answer = interrupt(
        {"kind": "elicitation", "message": question, "number": number, "of": of, "about": about}
    )
    if isinstance(answer, dict):  # as other doors answer; one that expired says nothing
        answer = answer.get("text") or answer.get("answer") or answer.get("feedback")
    return answer if isinstance(answer, str) else ""


def _said(messages: list[Any]) -> str:
    for message in reversed(messages):
        content = message.get("content") if isinstance(message, dict) else getattr(message, "content", None)
        if isinstance(content, str) and content.strip():
            return content.strip()
    return ""
