"""Table tool of the chat: queries of a model over the tables in the documents, computed by the analyst in its confined process."""

import json
from collections.abc import Sequence

from langchain_core.tools import ToolException

from clew.apps.chat.agents.registry import Role
from clew.apps.chat.cpu_budget import CpuBudget
from clew.apps.chat.documents import ChatDocuments, Entry
from clew.apps.chat.plan import AgentTask, TaskDocument
from clew.apps.chat.workers import AgentWorkers
from clew.apps.drivers.inquiries import Inquiry, Purpose, Reply
from clew.domain.documents import split_name
from clew.domain.errors import LimitExceeded, Permanent
from clew.domain.thread import Thread
from clew.graph.tools import LedgerTool, tool

_ANALYST = "analyst"


class GivenQuery:
    """The driver of an analyst that is told what to compute."""

    name = "query"
    model = "query"

    def __init__(self, sql: str, table: str) -> None:
        self._view = {"sql": sql, "answerOnly": True} | ({"table": table} if table else {})

    def can(self, purpose: Purpose) -> bool:
        return purpose is Purpose.CHART

    async def ask(self, inquiry: Inquiry) -> Reply:  # noqa: ARG002 - whatever is asked, this is the query
        return Reply(text=json.dumps(self._view))


def table_query(
    workers: AgentWorkers,
    role: Role,
    shelf: ChatDocuments,
    thread: Thread,
    known: Sequence[Entry],
    language: str,
    cpu: CpuBudget,
) -> LedgerTool:
    """Answers one SELECT, with the place of the table and the query."""

    @tool(
        name="query_tables",
        description=(
            "Computes one SQL SELECT (DuckDB) over the tables in the user's documents. A table is named by its document in"
            ' double quotes, like "sales.csv"; a wrong name is answered with those that there are.'
        ),
    )
    async def query_tables(sql: str) -> str:
        documents: list[TaskDocument] = []
        for entry in known:
            if entry.kind == "table" or entry.tables:
                name, ext = split_name(entry.label)
                contents = await shelf.contents(thread, entry)
                documents.append(
                    {"id": entry.id, "fileId": 0, "name": name, "ext": ext, "data": "", "contents": contents}
                )
        task: AgentTask = {
            "taskId": thread.id,
            "workflowId": thread.id,
            "prompt": "",
            "inputDocuments": documents,
            "outputSpecifications": [],
            "context": {
                "workflowRound": thread.round,
                "agentType": _ANALYST,
                "timestamp": "",
                "language": language,
            },
        }
        # Where the figures come from is said with them.
        table = next((one.label for one in known if one.kind == "table" and f'"{one.label}"' in sql), "")
        try:
            given = await workers.process(role, GivenQuery(sql, table), task, cpu)
        except (Permanent, LimitExceeded) as exc:
            raise ToolException(str(exc)) from exc
        return str(given.get("feedback", "")) if isinstance(given, dict) else ""

    query_tables.handle_tool_error = True
    return query_tables
