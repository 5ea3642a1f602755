"""Work plans: the project manager's plan of a chat round, the task an agent gets, and the result it returns.

Plans and results come from models and from third-party code, so they are untrusted until they were validated
here. The objects agents see have the names of the published contract, which is JSON.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from clew.documents.documents import TaskContent
from clew.domain.documents import clean_name, clean_text, split_name
from clew.domain.errors import Invalid
from clew.domain.thread import Json

PROJECT_MANAGER = "projectManager"
# The agent that uses tools: a part of the graph, since each of its calls is a step.
TOOL_USER = "toolUser"

# A plan beyond these limits is a model's error, not a larger request.
MAX_TASKS = 20
MAX_DOCUMENTS = 20
MAX_LABEL = 120
MAX_TEXT = 20_000

_LABELS: Json = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"label": {"type": "string"}},
        "required": ["label"],
        "additionalProperties": False,
    },
}
# The JSON Schema of a plan, in the part of JSON Schema that all providers hold a model to.
PLAN_SCHEMA: Mapping[str, Json] = {
    "title": "work_plan",
    "type": "object",
    "properties": {
        "objFinalDocuments": {"type": "array", "items": {"type": "string"}},
        "objWorkplan": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "agent": {"type": "string"},
                    "prompt": {"type": "string"},
                    "outputDocuments": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {"label": {"type": "string"}, "description": {"type": "string"}},
                            "required": ["label", "description"],
                            "additionalProperties": False,
                        },
                    },
                    "inputDocuments": _LABELS,
                },
                "required": ["agent", "prompt", "outputDocuments", "inputDocuments"],
                "additionalProperties": False,
            },
        },
        "objUserResponse": {"type": "string"},
        "userLanguage": {"type": "string"},
    },
    "required": ["objFinalDocuments", "objWorkplan", "objUserResponse", "userLanguage"],
    "additionalProperties": False,
}

_LANGUAGE = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]{2,8})*", re.IGNORECASE)
_FIRST_PROGRESS, _LAST_PROGRESS = 30, 90


class OutputSpecification(TypedDict):
    label: str
    description: str


class TaskDocument(TypedDict):
    id: str
    fileId: int
    name: str
    ext: str
    data: str
    contents: list[TaskContent]


class TaskContext(TypedDict):
    workflowRound: int
    agentType: str
    timestamp: str
    language: str


class AgentTask(TypedDict):
    """What an agent is asked to do, and all it needs for it."""

    taskId: str
    workflowId: str
    prompt: str
    inputDocuments: list[TaskDocument]
    outputSpecifications: list[OutputSpecification]
    context: TaskContext


class ResultDocument(TypedDict):
    label: str
    content: str | bytes


class AgentResult(TypedDict):
    """What an agent did, in words, and the documents it made."""

    feedback: str
    documents: list[ResultDocument]
    refused: NotRequired[bool]
    # What answers the request in full. It becomes the last message of the round, and is not part of the feedback.
    answer: NotRequired[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    label: str
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """One agent's part. `inputs` are labels of documents; None is whatever the round brought."""

    agent: str
    prompt: str
    outputs: tuple[Output, ...] = ()
    inputs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    final_documents: tuple[str, ...]
    tasks: tuple[PlannedTask, ...]
    response: str
    language: str  # as the project manager called it; empty when that was no language code
    # The last message of a round without tasks, where rules planned it.
    closing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    label: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    feedback: str
    documents: tuple[Produced, ...] = ()
    # The agent did not do the task, and its feedback says why.
    refused: bool = False
    answer: str = ""

    @property
    def size(self) -> int:
        return sum(len(document.content) for document in self.documents)


def read_plan(value: Json, *, agents: Collection[str], documents: Collection[str]) -> WorkPlan:
    """The plan, if it can be carried out with these agents on these documents. Raises Invalid naming what is wrong."""
    given = _mapping(value, "plan")
    missing = [
        key
        for key in ("objFinalDocuments", "objWorkplan", "objUserResponse", "userLanguage")
        if key not in given
    ]
    if missing:
        raise Invalid(f"expected the key {missing[0]}", missing[0])
    ordered = _list(given["objWorkplan"], "objWorkplan", MAX_TASKS)
    at_hand = set(documents)
    tasks: list[PlannedTask] = []
    for number, entry in enumerate(ordered):
        task = _task(entry, f"objWorkplan[{number}]", agents, at_hand)
        tasks.append(task)
        at_hand |= {output.label for output in task.outputs}
    response = _text(given["objUserResponse"], "objUserResponse")
    if not tasks and not response.strip():
        raise Invalid("expected tasks, or an answer", "objWorkplan")
    finals = _list(given["objFinalDocuments"], "objFinalDocuments", MAX_DOCUMENTS)
    return WorkPlan(
        final_documents=tuple(
            dict.fromkeys(
                checked_label(_labelled(final), f"objFinalDocuments[{number}]")
                for number, final in enumerate(finals)
            )
        ),
        tasks=tuple(tasks),
        response=response,
        language=language_code(_text(given["userLanguage"], "userLanguage")),
        closing=str(given.get("closing") or "")[:MAX_TEXT],
    )


def plan_as_json(plan: WorkPlan) -> dict[str, Json]:
    """The plan in the JSON of the contract. `read_plan` reads it back."""
    return {
        "objFinalDocuments": list(plan.final_documents),
        "objWorkplan": [
            {
                "agent": task.agent,
                "prompt": task.prompt,
                "outputDocuments": [{"label": o.label, "description": o.description} for o in task.outputs],
            }
            | ({} if task.inputs is None else {"inputDocuments": [{"label": label} for label in task.inputs]})
            for task in plan.tasks
        ],
        "objUserResponse": plan.response,
        "userLanguage": plan.language,
    } | ({"closing": plan.closing} if plan.closing else {})


def read_result(value: object, *, max_bytes: int) -> Result:
    """What an agent returned, if it is a result at all. Raises Invalid."""
    given = _mapping(value, "result")
    documents = tuple(
        _produced(entry, f"documents[{number}]")
        for number, entry in enumerate(_list(given.get("documents", []), "documents", MAX_DOCUMENTS))
    )
    result = Result(
        feedback=_text(given.get("feedback"), "feedback"),
        documents=documents,
        refused=given.get("refused") is True,
        answer=str(given.get("answer") or "")[:MAX_TEXT],
    )
    if result.size > max_bytes:
        raise Invalid(f"expected documents of at most {max_bytes} bytes together", "documents")
    return result


def checked_label(value: Json, field: str) -> str:
    """A file name with an extension and nothing else: no path, nothing hidden, nothing invisible. Raises Invalid."""
    if isinstance(value, str) and len(value) <= MAX_LABEL and value == clean_name(value):
        stem, extension = split_name(value)
        if extension and not stem.startswith("."):
            return value
    raise Invalid("expected a file name like report.docx", field)


def language_code(text: str) -> str:
    """`de` of `de-CH`; empty when it is no code."""
    match = _LANGUAGE.fullmatch(text.strip())
    return match[1].lower() if match else ""


def has_failed(failed: int, total: int) -> bool:
    """Whether more than half of the tasks failed: the round has then failed."""
    return failed * 2 > total


def progress(done: int, total: int) -> int:
    """The progress of a round before its next task."""
    return _FIRST_PROGRESS + (_LAST_PROGRESS - _FIRST_PROGRESS) * done // max(1, total)


def _task(value: Json, field: str, agents: Collection[str], at_hand: Collection[str]) -> PlannedTask:
    given = _mapping(value, field)
    agent = _text(given.get("agent"), f"{field}.agent")
    if agent not in agents:
        raise Invalid(f"there is no such agent; there are {', '.join(sorted(agents))}", f"{field}.agent")
    prompt = _text(given.get("prompt"), f"{field}.prompt")
    if not prompt.strip():
        raise Invalid("expected what to do", f"{field}.prompt")
    outputs = tuple(
        _output(entry, f"{field}.outputDocuments[{number}]")
        for number, entry in enumerate(
            _list(given.get("outputDocuments") or [], f"{field}.outputDocuments", MAX_DOCUMENTS)
        )
    )
    return PlannedTask(agent=agent, prompt=prompt, outputs=outputs, inputs=_inputs(given, field, at_hand))


def _inputs(given: Mapping[str, Json], field: str, at_hand: Collection[str]) -> tuple[str, ...] | None:
    """Labels that exist before the task runs: a plan that needs what comes later, or never, cannot be carried out."""
    field = f"{field}.inputDocuments"
    if given.get("inputDocuments") is None:
        return None
    labels = [_labelled(entry) for entry in _list(given["inputDocuments"], field, MAX_DOCUMENTS)]
    for number, label in enumerate(labels):
        if not isinstance(label, str) or label not in at_hand:
            raise Invalid("no document of the user and no earlier task has this label", f"{field}[{number}]")
    return tuple(dict.fromkeys(labels))


def _output(value: Json, field: str) -> Output:
    label = checked_label(_labelled(value), f"{field}.label")
    described = value if isinstance(value, Mapping) else {}
    description = described.get("description") or described.get("prompt") or ""
    return Output(label=label, description=_text(description, f"{field}.description"))


def _labelled(value: Json) -> Json:
    """Documents are named by an object with a label, or by the label alone."""
    return value.get("label") if isinstance(value, Mapping) else value


def _produced(value: Json, field: str) -> Produced:
    given = _mapping(value, field)
    label = checked_label(given.get("label"), f"{field}.label")
    match given.get("content"):
        case bytes() as content:
            return Produced(label=label, content=content)
        case str() as content:
            return Produced(label=label, content=content.encode(errors="replace"))
        case _:
            raise Invalid("expected text or bytes", f"{field}.content")


def _mapping(value: object, field: str) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise Invalid("expected an object", field)
    return value


def _list(value: Json, field: str, most: int) -> Sequence[Json]:
    if not isinstance(value, list | tuple):
        raise Invalid("expected a list", field)
    if len(value) > most:
        raise Invalid(f"expected at most {most}", field)
    return value


def _text(value: Json, field: str) -> str:
    if not isinstance(value, str):
        raise Invalid("expected text", field)
    if len(value) > MAX_TEXT:
        raise Invalid(f"expected at most {MAX_TEXT} characters", field)
    return clean_text(value)


def without_data(task: AgentTask) -> str:
    shown: Json = json.loads(json.dumps(task))
    for document in shown["inputDocuments"]:
        document["data"] = f"<{len(document['data'])} characters of base64>"
    return json.dumps(shown, ensure_ascii=False)
