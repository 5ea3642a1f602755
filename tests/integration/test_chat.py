"""The chat workflow in one process: plans, tasks, documents, failures, stops and languages, on real files."""

import asyncio
import json
import logging
import sys
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import docx
import openpyxl
import pytest
from PIL import Image

from clew.apps.chat.plan import MAX_TASKS
from clew.domain.errors import NotFound
from clew.domain.events import AssistantMessage, DocumentAdded, Log, RoundFinished, UserMessage
from clew.domain.thread import Status
from clew.domain.views import messages as messages_of
from tests import made_files
from tests.chats import CSV, agents_folder, open_chat, plan_of, planning, step, tasks_of
from tests.databases import APP_DATABASES, locate
from tests.openai_server import Hang, Refuse, Say, in_turn, openai_server, prompt_of
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

PAGES = (
    "Revenue grew by 12 percent in the last year. The northern region grew most of all regions.",
    "Costs stayed flat because logistics were renegotiated. The board opened an office in Lisbon.",
    "Customer satisfaction rose to 87 percent. The supply of chips remains the main risk.",
)
PROMPT = "Summarize the report and chart sales by region as report.docx"


@pytest.fixture(params=APP_DATABASES)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


class TestOffline:
    @pytest.mark.mainly_sqlite(False)
    async def test_a_pdf_and_a_csv_become_a_report(self, where: str, tmp_path: Path) -> None:
        async with open_chat(where, tmp_path) as chat:
            thread = await chat.run(PROMPT, report__pdf=made_files.pdf(*PAGES), sales__csv=CSV)
            assert (thread.status, thread.failure_reason) == (Status.COMPLETED, None)
            documents = await chat.documents(thread)
            said = await chat.messages(thread)

        opened = docx.Document(BytesIO(documents["report.docx"][1]))
        paragraphs = [paragraph.text for paragraph in opened.paragraphs]
        assert "Summary of report.pdf" in paragraphs
        assert "Revenue grew by 12 percent in the last year." in paragraphs
        assert len(opened.inline_shapes) == 1
        assert [[cell.text for cell in row.cells] for row in opened.tables[0].rows] == [
            ["region", "sales"], ["North", "220.5"], ["East", "75"], ["South", "75"],
        ]  # fmt: skip
        with Image.open(BytesIO(documents["sales_chart.png"][1])) as image:
            image.verify()
        book = openpyxl.load_workbook(BytesIO(documents["sales_table.xlsx"][1]))
        assert [cell.value for cell in next(book.worksheets[0].iter_rows(min_row=2))] == ["North", 220.5]

        assert [(one.agent, one.marker) for one in said] == [
            ("projectManager", "step"), ("summarizer", "step"), ("analyst", "step"), ("writer", "step"), ("projectManager", "last"),
        ]  # fmt: skip
        assert "No language model is configured" in str(said[0].content)
        assert said[-1].content == "Done. Delivered: report.docx."
        assert said[-1].documents == said[3].documents == (documents["report.docx"][0].id,)

    @pytest.mark.accept("004-10", "004-11", "004-12", "004-13", "004-15")
    @pytest.mark.mainly_sqlite(False)
    async def test_what_is_said_and_logged_in_which_order(self, where: str, tmp_path: Path) -> None:
        async with open_chat(where, tmp_path) as chat:
            thread = await chat.run("Chart sales by region", sales__csv=CSV)
            logs = await chat.logs(thread)
            messages = list(messages_of(thread, await chat.house.log(thread)))
        assert [(line.message, line.progress, line.level, line.status) for line in logs] == [
            ("Workflow initialized", 0, "info", Status.RUNNING),
            ("Workflow processing started", 0, "info", Status.RUNNING),
            ("Analyzing request and planning work", 10, "info", Status.RUNNING),
            ("Planned outputs", 20, "info", Status.RUNNING),
            ("Work plan created", 25, "info", Status.RUNNING),
            ("Running task 1/1: analyst", 30, "info", Status.RUNNING),
            ("Creating final response", 90, "info", Status.RUNNING),
            ("Workflow completed successfully", 100, "info", Status.COMPLETED),
        ]
        assert [line.agent for line in logs[2:7]] == ["projectManager"] * 3 + ["analyst", "projectManager"]
        assert [(one.role, one.agent, one.marker, one.number) for one in messages] == [
            ("user", "", "first", 1),
            ("assistant", "projectManager", "step", 2),
            ("assistant", "analyst", "step", 3),
            ("assistant", "projectManager", "last", 4),
        ]

    @pytest.mark.accept("004-12")
    async def test_the_last_message_is_there_only_when_the_round_has_ended(self, tmp_path: Path) -> None:
        async with open_chat("memory", tmp_path) as chat:
            thread = await chat.run("Chart sales by region", sales__csv=CSV)
            log = await chat.house.log(thread)
        last = next(e for e in log if isinstance(e.body, AssistantMessage) and e.body.marker == "last")
        end = next(e for e in log if isinstance(e.body, RoundFinished))
        assert last.at == end.at, "one commit"

    @pytest.mark.accept("004-2", "004-14", "004-44")
    async def test_the_next_round_knows_the_documents_of_the_one_before(
        self, where: str, tmp_path: Path
    ) -> None:
        async with open_chat(where, tmp_path) as chat:
            first = await chat.run(PROMPT, report__pdf=made_files.pdf(*PAGES), sales__csv=CSV)
            thread = await chat.again(first, "Now as PDF")
            assert (thread.status, thread.round) == (Status.COMPLETED, 2)
            logs = await chat.logs(thread)
            documents = await chat.documents(thread)
        assert [line.message for line in logs if line.progress == 0][2:] == [
            "Resuming workflow, round 2",
            "Workflow processing started",
        ]
        assert documents["report_2.pdf"][1].startswith(b"%PDF")
        assert thread.stats.messages > first.stats.messages
        assert thread.stats.milliseconds > first.stats.milliseconds

    @pytest.mark.accept("004-32")
    async def test_a_damaged_file_is_a_document_and_a_warning(self, where: str, tmp_path: Path) -> None:
        damaged = made_files.pdf(*PAGES)[:200]
        async with open_chat(where, tmp_path) as chat:
            thread = await chat.run("Chart sales by region", broken__pdf=damaged, sales__csv=CSV)
            documents = await chat.documents(thread)
            warnings = [line for line in await chat.logs(thread) if line.level == "warning"]
        assert thread.status is Status.COMPLETED
        assert documents["broken.pdf"][1] == damaged
        assert warnings
        assert all(line.message.startswith("broken.pdf: ") for line in warnings)

    @pytest.mark.accept("004-27")
    async def test_it_speaks_the_users_language(self, tmp_path: Path) -> None:
        cases = [
            ("Zeichne den Umsatz nach Region als Diagramm", "kein Sprachmodell", "Fertig. Geliefert: "),
            ("Fais un graphique des ventes par région", "Aucun modèle", "C’est fait. Livré : "),  # noqa: RUF001
            ("Haz un gráfico de las ventas por región", "ningún modelo", "Listo. Entregado: "),
            ("Fai un grafico delle vendite per regione", "Nessun modello", "Fatto. Consegnato: "),
            ("Faça um gráfico das vendas por região", "Nenhum modelo", "Pronto. Entregue: "),
            ("按地区绘制销售图表", "没有配置语言模型", "已完成。 已交付："),  # noqa: RUF001
            # Few words, and words that two languages share.
            ("Revenue per month", "No language model", "Done."),
            # The table has no such column.
            ("Total per product", "No language model", "I did not do this"),
            ("Vendas por cliente", "Nenhum modelo", "Não fiz isto"),
        ]
        async with open_chat("memory", tmp_path) as chat:
            for prompt, first, last in cases:
                said = await chat.messages(await chat.run(prompt, sales__csv=CSV))
                assert first in str(said[0].content), prompt
                assert str(said[-1].content).startswith(last), prompt

    async def test_a_word_of_no_language_changes_none(self, tmp_path: Path) -> None:
        async with open_chat("memory", tmp_path) as chat:
            german = await chat.run("Zeichne den Umsatz nach Region als Diagramm", sales__csv=CSV)
            said = await chat.messages(await chat.again(german, "ok"))
        assert str(said[-1].content).startswith("Fertig.")

    async def test_a_file_that_is_named_hides_no_other(self, tmp_path: Path) -> None:
        prompt = "Summarize tram.txt and chart tickets by canton as brief.docx"
        tram = (
            b"Trams run every ten minutes. At noon they run twice as often. The last one leaves at midnight."
        )
        tickets = b"canton,tickets\nBern,20\nZug,7\nUri,3\n"
        async with open_chat("memory", tmp_path) as chat:
            thread = await chat.run(prompt, tram__txt=tram, tickets__csv=tickets)
            documents = await chat.documents(thread)
        opened = docx.Document(BytesIO(documents["brief.docx"][1]))
        assert "Summary of tram.txt" in [paragraph.text for paragraph in opened.paragraphs]
        assert [cell.text for cell in opened.tables[0].rows[1].cells] == ["Bern", "20"]
        assert len(opened.inline_shapes) == 1

    async def test_nothing_to_do_is_an_answer_too(self, tmp_path: Path) -> None:
        async with open_chat("memory", tmp_path) as chat:
            thread = await chat.run("Hello")
            said = await chat.messages(thread)
        assert thread.status is Status.COMPLETED
        assert [one.marker for one in said] == ["step", "last"]

    async def test_two_files_of_one_name_are_two(self, tmp_path: Path) -> None:
        async with open_chat("memory", tmp_path) as chat:
            one, two = (
                await chat.upload("a.txt", b"First text here."),
                await chat.upload("a.txt", b"Second text here."),
            )
            request = await chat.request("Summarize", {})
            started = await chat.house.start("chat", "x")
            await chat.house.rest(started)
            request = type(request)(message="Summarize", documents=(one, two))
            thread = await chat.house.app.execution.commands.next_round(started.id, None, request)
            thread = await chat.house.rest(thread)
            said = await chat.messages(thread)
        summary = str(said[3].content)
        assert "a.txt, a (2).txt" in summary
        assert "First text here." in summary
        assert "Second text here." in summary

    async def test_a_file_that_is_gone_is_a_warning(self, tmp_path: Path) -> None:
        async with open_chat("memory", tmp_path) as chat:
            request = await chat.request("Hello", {})
            started = await chat.house.start("chat", "x")
            await chat.house.rest(started)
            request = type(request)(message="Hello", documents=("file_nope",))
            thread = await chat.house.app.execution.commands.next_round(started.id, None, request)
            thread = await chat.house.rest(thread)
            logs = await chat.logs(thread)
        assert thread.status is Status.COMPLETED
        assert "The file file_nope is no longer there" in [line.message for line in logs]

    @pytest.mark.accept("004-38")
    async def test_what_was_made_goes_with_its_thread_and_what_was_brought_stays(
        self, where: str, tmp_path: Path
    ) -> None:
        async with open_chat(where, tmp_path) as chat:
            thread = await chat.run("Chart sales by region", sales__csv=CSV)
            files = chat.house.app.stores.files
            made, _ = (await chat.documents(thread))["sales_chart.png"]
            assert (await files.get_file(made.file_id)).name == "sales_chart.png"
            await chat.house.app.execution.commands.delete(thread.id, None)
            with pytest.raises(NotFound):
                await files.get_file(made.file_id)
            assert [file.name for file in await files.find_files()] == ["sales.csv"]
            assert await files.find_documents(thread.id) == []


class TestWithAModel:
    """The model is a local server; the agents are those of a folder."""

    @pytest.mark.accept("004-24", "004-25", "004-26", "004-29", "004-30")
    async def test_a_task_is_given_what_the_contract_says(self, tmp_path: Path) -> None:
        folder = agents_folder(tmp_path, "ann", "bob")
        plan = plan_of(
            step("ann", "look at the costs", "first.bin", ["report.pdf"]),
            step("bob", "look at the satisfaction", "second.txt", ["report.pdf", "first.bin"]),
            final=("second.txt", "third.txt"),
            language="de",
        )
        async with openai_server(planning(plan)) as model:
            environ = {"CLEW_MODELS_OPENAI_BASE_URL": model.url, "CLEW_AGENTS_FOLDER": str(folder)}
            async with open_chat("memory", tmp_path, **environ) as chat:
                report = made_files.pdf(*PAGES)
                thread = await chat.run("Tu was", report__pdf=report)
                documents = await chat.documents(thread)
                said = await chat.messages(thread)
                added = await chat.house.bodies(thread, DocumentAdded)
                ids = [documents[label][0].file_id for label in ("report.pdf", "first.bin")]
                numbers = {
                    *(await chat.house.app.stores.numbers.of("file", thread.owner.tenant, ids)).values()
                }
        assert thread.status is Status.COMPLETED
        first, second = tasks_of(folder)
        assert set(first) == {
            "taskId",
            "workflowId",
            "prompt",
            "inputDocuments",
            "outputSpecifications",
            "context",
        }
        assert first["workflowId"] == thread.id
        assert first["prompt"] == "look at the costs"
        assert first["outputSpecifications"] == [{"label": "first.bin", "description": ""}]
        context = first["context"]
        assert (context["workflowRound"], context["agentType"], context["language"]) == (1, "ann", "de")
        assert context["timestamp"].endswith("+00:00")
        (given,) = first["inputDocuments"]
        assert set(given) == {"id", "fileId", "name", "ext", "data", "contents"}
        assert numbers == {given["fileId"] for given in second["inputDocuments"]}
        assert given["fileId"] in numbers
        assert {type(number) for number in numbers} == {int}
        assert (given["name"], given["ext"]) == ("report", "pdf")
        assert b64decode(given["data"]) == report
        assert len(given["contents"]) == 3
        item = given["contents"][0]
        assert set(item) == {
            "sequenceNr",
            "name",
            "ext",
            "contentType",
            "data",
            "dataExtracted",
            "metadata",
            "summary",
        }

        assert [doc["name"] for doc in second["inputDocuments"]] == ["report", "first"]
        assert b64decode(second["inputDocuments"][1]["data"]) == bytes(range(256))
        assert documents["first.bin"][1] == bytes(range(256))
        assert documents["second.txt"][1] == b"made of report.pdf, first.bin."
        assert said[1].documents == (documents["first.bin"][0].id,)
        assert [one.name for one in added] == ["report", "first", "second"]
        answer, _, reviewed = str(said[-1].content).partition("\n\n")
        assert answer == "said the model"
        assert reviewed == "Fertig. Geliefert: second.txt. Versprochen, aber nicht geliefert: third.txt."

    @pytest.mark.accept("004-31")
    async def test_what_is_extracted_depends_on_the_task(self, tmp_path: Path) -> None:
        folder = agents_folder(tmp_path, "ann")
        plan = plan_of(
            step("ann", "logistics costs", inputs=["a.txt"]),
            step("ann", "customer satisfaction", inputs=["a.txt"]),
        )
        async with openai_server(planning(plan)) as model:
            environ = {"CLEW_MODELS_OPENAI_BASE_URL": model.url, "CLEW_AGENTS_FOLDER": str(folder)}
            async with open_chat("memory", tmp_path, **environ) as chat:
                await chat.run("x", a__txt=" ".join(PAGES).encode())
        contents = [task["inputDocuments"][0]["contents"][0] for task in tasks_of(folder)]
        assert contents[0]["data"] == contents[1]["data"] == " ".join(PAGES)
        assert "logistics" in contents[0]["dataExtracted"]
        assert "logistics" not in contents[1]["dataExtracted"]
        assert "satisfaction" in contents[1]["dataExtracted"]

    @pytest.mark.accept("004-31")
    async def test_of_a_long_document_the_model_picks_what_matters(self, tmp_path: Path) -> None:
        folder = agents_folder(tmp_path, "ann")
        plan = plan_of(step("ann", "logistics", inputs=["a.txt"]))
        async with openai_server(planning(plan, Say(json.dumps({"1": "picked by the model"})))) as model:
            environ = {"CLEW_MODELS_OPENAI_BASE_URL": model.url, "CLEW_AGENTS_FOLDER": str(folder)}
            async with open_chat("memory", tmp_path, **environ) as chat:
                thread = await chat.run("x", a__txt=" ".join(PAGES * 40).encode())
        (content,) = tasks_of(folder)[0]["inputDocuments"][0]["contents"]
        assert content["dataExtracted"] == "picked by the model"
        assert content["metadata"]["aiProcessed"] is True
        assert (thread.stats.tokens_in, thread.stats.tokens_out) == (33, 21), (
            "the plan, the parts, the answer"
        )

    @pytest.mark.accept("004-21")
    @pytest.mark.parametrize(
        ("failing", "status"), [(1, "completed"), (2, "completed"), (3, "failed"), (4, "failed")]
    )
    async def test_more_than_half_failed_is_failed(self, tmp_path: Path, failing: int, status: str) -> None:
        folder = agents_folder(tmp_path, "ann")
        tasks = [step("ann", "fail" if n < failing else "work", f"d{n}.txt") for n in range(4)]
        async with openai_server(planning(plan_of(*tasks, final=("d0.txt", "d3.txt")))) as model:
            environ = {"CLEW_MODELS_OPENAI_BASE_URL": model.url, "CLEW_AGENTS_FOLDER": str(folder)}
            async with open_chat("memory", tmp_path, **environ) as chat:
                thread = await chat.run("x")
                logs, said = await chat.logs(thread), await chat.messages(thread)
        assert thread.status == status
        assert len(tasks_of(folder)) == 4, "the rest runs all the same"
        errors = [line for line in logs if line.level == "error" and line.message.startswith("Task ")]
        assert [line.message for line in errors] == [
            f"Task {n + 1}/4 failed: ann: RuntimeError: told to fail" for n in range(failing)
        ]
        progress = [line.progress for line in logs if line.message.startswith("Running task")]
        assert progress == [30, 45, 60, 75]
        assert [one.marker for one in said].count("last") == 1
        if status == "completed":
            assert f"{failing} of 4 tasks failed." in str(said[-1].content)
            assert "missing: d0.txt" in str(said[-1].content)
        else:
            assert f"{failing} of 4 tasks failed" in (thread.failure_reason or "")
            assert logs[-1].level == "error"
            assert logs[-1].progress == 100
            assert f"{failing} of 4 tasks failed" in logs[-1].message
            assert logs[-1].status is Status.FAILED
            assert f"{failing} of 4 tasks failed" in str(said[-1].content)

    @pytest.mark.accept("004-19", "004-20")
    @pytest.mark.parametrize(
        "said",
        [
            "I would rather not.",
            "{",
            "[]",
            "{}",
            plan_of(step("nobody")),
            plan_of(step("summarizer", out="../../etc/passwd")),
            plan_of(step("summarizer", inputs=["nowhere.txt"])),
            plan_of(*[step("summarizer")] * (MAX_TASKS + 1)),
            "[" * 100_000,
        ],
    )
    async def test_no_valid_plan_is_a_failed_round(self, tmp_path: Path, said: str) -> None:
        async with (
            openai_server(in_turn(Say(said))) as model,
            open_chat("memory", tmp_path, CLEW_MODELS_OPENAI_BASE_URL=model.url) as chat,
        ):
            thread = await chat.run("x")
            logs, messages = await chat.logs(thread), await chat.messages(thread)
        assert thread.status is Status.FAILED
        assert "no valid work plan" in (thread.failure_reason or "")
        assert len(model.requests) == 2, "asked once more, and no more"
        assert "could not be carried out" in prompt_of(model.requests[1])
        assert [(line.level, line.progress) for line in logs[-2:]] == [("error", 100), ("error", 100)]
        assert "no valid work plan" in logs[-1].message
        assert [one.marker for one in messages] == ["last"]

    async def test_a_plan_that_is_wrong_once_is_put_right(self, tmp_path: Path) -> None:
        answers = in_turn(Say("Sure! Here is the plan."), Say(f"```json\n{plan_of(says='42')}\n```"))
        async with (
            openai_server(answers) as model,
            open_chat("memory", tmp_path, CLEW_MODELS_OPENAI_BASE_URL=model.url) as chat,
        ):
            thread = await chat.run("x")
            said = await chat.messages(thread)
        assert thread.status is Status.COMPLETED
        assert [one.content for one in said] == ["42", "Done."]

    async def test_results_that_lead_elsewhere_are_failed_tasks(self, tmp_path: Path) -> None:
        folder = agents_folder(tmp_path, "ann")
        plan = plan_of(step("ann", "escape"), step("ann", "work"), step("ann", "work"))
        async with openai_server(planning(plan)) as model:
            environ = {"CLEW_MODELS_OPENAI_BASE_URL": model.url, "CLEW_AGENTS_FOLDER": str(folder)}
            async with open_chat("memory", tmp_path, **environ) as chat:
                thread = await chat.run("x")
                logs = await chat.logs(thread)
                assert await chat.documents(thread) == {}
        assert thread.status is Status.COMPLETED
        assert "Task 1/3 failed: ann: documents[0].label: expected a file name like report.docx" in [
            line.message for line in logs
        ]

    @pytest.mark.accept("004-22")
    async def test_a_round_that_makes_too_much_has_failed(self, tmp_path: Path) -> None:
        folder = agents_folder(tmp_path, "ann")
        plan = plan_of(*(step("ann", "work", f"{n}.bin") for n in range(20)))
        async with openai_server(planning(plan)) as model:
            environ = {
                "CLEW_MODELS_OPENAI_BASE_URL": model.url,
                "CLEW_AGENTS_FOLDER": str(folder),
                "CLEW_LIMITS_UPLOAD_BYTES": "1024",
            }
            async with open_chat("memory", tmp_path, **environ) as chat:
                thread = await chat.run("x")
        assert thread.status is Status.FAILED
        assert "resource limit" in (thread.failure_reason or "")

    @pytest.mark.accept("004-22")
    async def test_a_round_that_takes_too_long_has_failed(self, where: str, tmp_path: Path) -> None:
        async with openai_server(in_turn(Hang())) as model:
            environ = {"CLEW_MODELS_OPENAI_BASE_URL": model.url, "CLEW_LIMITS_ROUND_SECONDS": "1"}
            async with open_chat(where, tmp_path, **environ) as chat:
                thread = await chat.run("Bitte fasse dich kurz und schreibe einen Brief")
                said = await chat.messages(thread)
        assert thread.failure_reason == "timeout: the round ran longer than 1 s"
        assert [(one.marker, one.content) for one in said] == [
            ("last", "Der Workflow ist fehlgeschlagen: timeout: the round ran longer than 1 s")
        ]

    @pytest.mark.accept("004-12", "004-16", "004-18")
    async def test_a_stop_in_a_slow_call_is_at_once_and_final(self, where: str, tmp_path: Path) -> None:
        plan = plan_of(step("summarizer", out="s.md", inputs=["a.txt"]), language="de")
        async with (
            openai_server(planning(plan, Say("word " * 2000, seconds=0.05))) as model,
            open_chat(where, tmp_path, CLEW_MODELS_OPENAI_BASE_URL=model.url) as chat,
        ):
            started = await chat.start("Fasse das zusammen", a__txt=b"Some text to sum up here.")
            await until(lambda: len(model.requests) >= 2 and model.open, 60)
            thread = await chat.house.app.execution.commands.stop(started.id, None)
            assert thread.status is Status.STOPPED
            await until(lambda: not model.open)
            seen = await chat.house.log(thread)
            await asyncio.sleep(0.2)
            assert await chat.house.log(thread) == seen
        logs = [event.body for event in seen if isinstance(event.body, Log)]
        said = [event.body for event in seen if isinstance(event.body, AssistantMessage)]
        assert (logs[-1].message, logs[-1].progress, logs[-1].status) == (
            "Workflow stopped by user",
            100,
            Status.STOPPED,
        )
        assert [(one.marker, one.content) for one in said] == [
            ("step", "On it."),
            ("last", "Der Workflow wurde gestoppt."),
        ]
        assert thread.last_active_at == seen[-1].at

    async def test_after_a_stop_the_next_round_begins_anew(self, tmp_path: Path) -> None:
        moves = [Say(plan_of(step("summarizer", inputs=["a.txt"]))), Say("word " * 2000, seconds=0.05)]
        async with (
            openai_server(lambda _: moves.pop(0) if moves else Say(plan_of(says="again"))) as model,
            open_chat("memory", tmp_path, CLEW_MODELS_OPENAI_BASE_URL=model.url) as chat,
        ):
            started = await chat.start("x", a__txt=b"Some text to sum up here.")
            await until(lambda: len(model.requests) >= 2, 60)
            thread = await chat.house.app.execution.commands.stop(started.id, None)
            thread = await chat.again(thread, "y")
            said = await chat.messages(thread)
            (user,) = [b for b in await chat.house.bodies(thread, UserMessage) if b.content == "y"]
        assert (thread.status, thread.round) == (Status.COMPLETED, 2)
        assert [one.content for one in said[-2:]] == ["again", "Done."]
        assert user.marker == "first"
        assert [one.marker for one in said].count("last") == 2

    async def test_a_busy_model_is_asked_again_and_that_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "clew.yaml").write_text("")
        moves = in_turn(Refuse(429, {"retry-after": "0.1"}), Say(plan_of(says="hi")))
        async with (
            openai_server(moves) as model,
            open_chat("memory", tmp_path, CLEW_MODELS_OPENAI_BASE_URL=model.url) as chat,
        ):
            thread = await chat.run("x")
            logs = await chat.logs(thread)
        assert thread.status is Status.COMPLETED
        (warning,) = [line for line in logs if line.level == "warning"]
        assert "Attempt 1 failed (rate_limit)" in warning.message

    async def test_a_driver_without_its_key_fails_the_thread_that_needs_it(self, tmp_path: Path) -> None:
        async with open_chat("memory", tmp_path, OPENAI_API_KEY="sk-x") as chat:
            assert "agent" in chat.house.app.execution.registry.graphs
        async with (
            openai_server(in_turn(Refuse(401))) as model,
            open_chat("memory", tmp_path, CLEW_MODELS_OPENAI_BASE_URL=model.url) as chat,
        ):
            thread = await chat.run("x")
        assert thread.status is Status.FAILED
        assert "auth after 1 attempt" in (thread.failure_reason or "")

    @pytest.mark.accept("001-22")
    @pytest.mark.parametrize(
        ("retry", "reason"),
        [
            ("max_retries: 1", "rate_limit after 2 attempts: no retry left"),
            ("max_retries: 0", "rate_limit after 1 attempt: no retry left"),
            ("retryable_errors: []", "rate_limit after 1 attempt: not retried"),
        ],
    )
    async def test_a_call_is_retried_as_often_as_the_profile_says_and_no_more(
        self, tmp_path: Path, retry: str, reason: str
    ) -> None:
        policy = f"{{base_delay: 0.1, {retry}}}"
        async with openai_server(in_turn(Refuse(429))) as model:
            profile = f"{{driver: 'api:openai', base_url: '{model.url}', retry: {policy}}}"
            async with open_chat("memory", tmp_path, more=f"profiles: {{default: {profile}}}\n") as chat:
                thread = await chat.run("x")
                logs = await chat.logs(thread)
        asked_again = [line for line in logs if line.message.startswith("Attempt ")]
        assert len(model.requests) == len(asked_again) + 1 == int(reason.split()[2])
        assert (
            thread.failure_reason
            == f"{reason}: the model could not be asked: too many requests, or the quota is used up"
        )

    async def test_a_profile_whose_package_is_not_installed_fails_with_what_to_install(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "langchain_openai", None)
        profiles = "profiles: {default: {driver: 'api:openai'}}\n"
        async with open_chat("memory", tmp_path, more=profiles, OPENAI_API_KEY="sk-x") as chat:
            thread = await chat.run("x")
        assert thread.status is Status.FAILED
        assert (thread.failure_reason or "").endswith(
            "api:openai needs another package: pip install 'clew-server[openai]'"
        )

    async def test_a_key_whose_package_is_not_installed_leaves_the_chat_offline(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "langchain_openai", None)
        async with open_chat("memory", tmp_path, OPENAI_API_KEY="sk-x") as chat:
            thread = await chat.run(
                "Summarize the notes", notes__txt=b"The clew led Theseus out. It was long."
            )
        assert thread.status is Status.COMPLETED

    async def test_a_failed_round_that_is_taken_up_repeats_nothing(self, where: str, tmp_path: Path) -> None:
        folder = agents_folder(tmp_path, "ann")
        tasks = [step("ann", "fail"), step("ann", "work", "a.txt")]
        async with openai_server(in_turn(Say(plan_of(*tasks, says="first")), Refuse(401))) as model:
            environ = {"CLEW_MODELS_OPENAI_BASE_URL": model.url, "CLEW_AGENTS_FOLDER": str(folder)}
            async with open_chat(where, tmp_path, **environ, CLEW_LIMITS_ROUND_SECONDS="60") as chat:
                thread = await chat.run("x")
                assert thread.status is Status.COMPLETED
                thread = await chat.again(thread, "y")
                assert thread.status is Status.FAILED
                before = await chat.messages(thread)
                taken = await chat.house.app.execution.commands.resume(thread.id, None)
                thread = await chat.house.rest(taken)
                after = await chat.messages(thread)
        assert thread.status is Status.FAILED
        assert [one.marker for one in after[len(before) :]] == ["last"]

    @pytest.mark.accept("004-42")
    @pytest.mark.parametrize("on", [True, False])
    async def test_what_agents_are_asked_is_logged_only_for_debugging(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, on: bool
    ) -> None:
        logger = logging.getLogger("clew.debug")
        logger.setLevel(logging.DEBUG if on else logging.CRITICAL)
        try:
            async with open_chat("memory", tmp_path) as chat:
                await chat.run("Chart the hidden sales by region", sales__csv=CSV)
        finally:
            logger.setLevel(logging.NOTSET)
        words = "\n".join(record.getMessage() for record in caplog.records)
        assert ("task for analyst" in words) is on
        assert ("hidden" in words) is on

    async def test_what_was_sent_is_kept_where_that_is_switched_on(self, tmp_path: Path) -> None:
        async with openai_server(in_turn(Say(plan_of(says="hi")))) as model:
            environ = {"CLEW_MODELS_OPENAI_BASE_URL": model.url, "CLEW_MODEL_CALLS_RECORD": "true"}
            async with open_chat("memory", tmp_path, **environ) as chat:
                thread = await chat.run("a very special prompt")
                (call,) = await chat.house.app.stores.audit.find(thread.id)
        assert call.rendered_context["prompt"] == "a very special prompt"
        assert (call.status, call.usage) == ("ok", {"input_tokens": 11, "output_tokens": 7})

    async def test_the_planner_is_told_what_was_said_and_not_what_was_taken_back(
        self, tmp_path: Path
    ) -> None:
        async with (
            openai_server(in_turn(Say(plan_of(says="noted")))) as model,
            open_chat("memory", tmp_path, CLEW_MODELS_OPENAI_BASE_URL=model.url) as chat,
        ):
            thread = await chat.run("my name is Ariadne")
            thread = await chat.again(thread, "who am I?")
            assert "Ariadne" in prompt_of(model.requests[-1])
            first = next(e for e in await chat.house.log(thread) if isinstance(e.body, UserMessage))
            hidden = await chat.house.app.execution.commands.redact(thread.id, None, first.id)
            await chat.again(hidden, "and now?")
            assert "Ariadne" not in prompt_of(model.requests[-1])


@pytest.mark.accept("004-28")
async def test_a_broken_agent_is_logged_and_the_chat_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = agents_folder(tmp_path, "ann")
    (folder / "broken.py").write_text("import nothing_of_the_kind")
    async with open_chat("memory", tmp_path, CLEW_AGENTS_FOLDER=str(folder)) as chat:
        assert (await chat.run("Chart sales", sales__csv=CSV)).status is Status.COMPLETED
    assert any("agent cannot be loaded" in record.getMessage() for record in caplog.records)
