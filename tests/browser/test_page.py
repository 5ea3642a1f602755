"""The page as its users have it: a real browser, a real server, and nothing behind its back."""

import re
from pathlib import Path
from typing import Any

import docx
import httpx
import pytest
from playwright.sync_api import APIResponse, Browser, Route, expect

from tests.browser.samples import PROMPT, SENTENCE
from tests.browser.visits import PATIENCE, Visit, page_serving, visiting
from tests.processes import SECONDS, Server, clew
from tests.repositories import git, repository


def ask(server: Server, method: str, path: str, **more: Any) -> None:
    """Somebody else does something, past the page."""
    httpx.request(method, server.address + path, timeout=SECONDS, **more).raise_for_status()


def test_a_round_from_dropped_files_to_the_saved_document(
    visit: Visit, server: Server, report_and_sales: tuple[Path, Path], tmp_path: Path
) -> None:
    page = visit.page
    visit.drop(*report_and_sales)
    expect(page.locator(".composer .size")).to_have_text([re.compile("kB$"), "97 B"])
    visit.write(PROMPT)
    page.keyboard.press("Enter")
    visit.wait_for("completed")

    expect(page.locator(".said.user .file .name")).to_have_text(["report.pdf", "sales.csv"])
    logged = server.get(f"/api/workflows/{visit.id}/logs").json()["logs"]
    expect(page.locator(".activity li.log .text")).to_have_text([line["message"] for line in logged])
    messages = server.get(f"/api/workflows/{visit.id}/messages").json()["messages"]
    expect(page.locator(".said")).to_have_count(len(messages))

    with page.expect_download() as download:
        page.locator(".said.last").get_by_role("link", name="report.docx").click()
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert saved.name == "report.docx"
    document = docx.Document(str(saved))
    text = "\n".join(paragraph.text for paragraph in document.paragraphs)
    assert SENTENCE in text
    assert len(document.inline_shapes) == 1, "the chart"
    visit.check(server)


def test_the_next_round_and_the_thread_after_a_reload(visit: Visit, server: Server) -> None:
    page = visit.page
    visit.start("agent", "first")
    visit.wait_for("completed")
    page.get_by_role("textbox").fill("second")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".said.assistant .prose")).to_have_text(["you said: first", "you said: second"])
    page.reload()
    expect(page.locator(".said.user .text")).to_have_text(["first", "second"])
    expect(page.locator(".said.assistant .prose")).to_have_text(["you said: first", "you said: second"])
    expect(page).to_have_title(re.compile(r"^(\(\d+\) )?first · Clew$"))
    visit.check(server)


def test_what_is_taken_back_leaves_the_page(
    visit: Visit, server: Server, report_and_sales: tuple[Path, Path]
) -> None:
    page = visit.page
    prompt = f"Please: {PROMPT}"  # other threads of this server say the same
    visit.drop(*report_and_sales)
    visit.write(prompt)
    page.keyboard.press("Enter")
    visit.wait_for("completed")
    path = f"/api/workflows/{visit.id}/messages"
    first = server.get(path).json()["messages"][0]
    expect(page.locator(".said.user .file .name")).to_have_text(["report.pdf", "sales.csv"])
    ask(server, "DELETE", f"{path}/{first['id']}/files/{first['documents'][0]['fileId']}")
    expect(page.locator(".said.user .file .name")).to_have_text(["sales.csv"])
    expect(page.locator(".menu .name").filter(has_text="report.pdf")).to_have_count(0)
    ask(server, "DELETE", f"{path}/{first['id']}")
    for _ in ("at once", "and after a reload"):
        expect(page.locator(".said.last")).to_have_count(1)
        expect(page.locator(".said.user")).to_have_count(0)
        expect(page.locator(".head h1")).to_have_text("Untitled")
        expect(page.get_by_text(prompt)).to_have_count(0)
        page.reload()
    visit.check(server)


def test_a_file_and_then_its_message_are_deleted_after_a_question(
    visit: Visit, server: Server, report_and_sales: tuple[Path, Path]
) -> None:
    page = visit.page
    prompt = f"Now: {PROMPT}"
    visit.drop(*report_and_sales)
    visit.write(prompt)
    page.keyboard.press("Enter")
    visit.wait_for("completed")
    files, dialog = page.locator(".said.user .file .name"), page.get_by_role("dialog")

    page.get_by_role("button", name="Delete the file report.pdf").click()
    expect(dialog).to_contain_text("Delete “report.pdf”?")
    dialog.get_by_role("button", name="Keep it").click()
    expect(dialog).to_have_count(0)
    expect(files).to_have_text(["report.pdf", "sales.csv"])
    page.get_by_role("button", name="Delete the file report.pdf").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(files).to_have_text(["sales.csv"])
    expect(dialog).to_have_count(0)

    page.get_by_role("button", name=f"Delete the message {prompt[:30]}").click()
    expect(dialog).to_contain_text(f"Delete “{prompt[:30]}")
    dialog.get_by_role("button", name="Delete").click()
    for _ in ("at once", "and after a reload"):
        expect(page.locator(".said.last")).to_have_count(1)
        expect(page.locator(".said.user")).to_have_count(0)
        expect(page.locator(".head h1")).to_have_text("Untitled")
        expect(dialog).to_have_count(0)
        page.reload()
    shown = server.get(f"/api/workflows/{visit.id}/messages").json()["messages"]
    assert {message["role"] for message in shown} == {"assistant"}
    visit.check(server)


def test_an_answer_that_comes_late_does_not_bring_back_what_was_deleted(
    visit: Visit, server: Server, report_and_sales: tuple[Path, Path]
) -> None:
    page = visit.page
    visit.drop(report_and_sales[1])
    visit.write("Make a chart of sales by region")  # a document that stays when the message is gone
    page.keyboard.press("Enter")
    visit.wait_for("completed")
    held: list[tuple[Route, APIResponse]] = []
    thread = page.url
    page.goto("about:blank")  # or it might be the page as it was that asks
    page.route("**/documents", lambda route: held.append((route, route.fetch())), times=1)
    page.goto(thread)
    visit.wait_for("completed")
    visit.until(lambda: len(held) == 1)
    delete = page.get_by_role("button", name="Delete the message")
    delete.click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(delete).to_have_count(0)
    expect(page.locator(".menu summary")).to_be_visible()
    listed = page.locator(".menu .name").filter(has_text="sales.csv")
    expect(listed).to_have_count(0)
    ((route, answer),) = held
    with page.expect_response("**/documents") as late:
        route.fulfill(response=answer)
    late.value.finished()
    page.get_by_role("textbox").fill("the page was painted since")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    expect(listed).to_have_count(0)
    visit.check(server)


def test_nothing_is_deleted_of_a_round_that_runs(visit: Visit, server: Server) -> None:
    page = visit.page
    visit.start("agent", "hello")
    visit.wait_for("completed")
    delete = page.get_by_role("button", name="Delete the message hello")
    delete.click()
    # Somebody else goes on with the thread meanwhile.
    body = {"prompt": "slowly: " + "word " * 300}
    ask(server, "POST", f"/api/workflows/start?id={visit.id}", json=body)
    expect(page.locator(".foot .status.running")).to_be_visible()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("wait until its round has ended")
    dialog.get_by_role("button", name="Keep it").click()
    expect(delete).to_have_count(0)
    page.get_by_role("button", name="Stop", exact=True).click()
    visit.wait_for("stopped")
    delete.click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.locator(".said.user")).to_have_count(1)
    visit.check(server, network=True)  # one answer was a 409


def test_a_deletion_that_did_not_arrive_says_so_where_it_was_asked_and_can_be_repeated(
    visit: Visit, server: Server
) -> None:
    page = visit.page
    visit.start("agent", "hello")
    visit.wait_for("completed")
    page.route("**/messages/*", lambda route: route.abort(), times=1)
    page.get_by_role("button", name="Delete the message hello").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_have_text("The server cannot be reached.")
    expect(page.locator(".said.user .text")).to_have_text(["hello"])
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog).to_have_count(0)
    expect(page.locator(".said.user")).to_have_count(0)
    visit.check(server, network=True)


def test_what_waits_is_approved_with_its_exact_arguments_before_the_eyes(
    visit: Visit, server: Server
) -> None:
    page = visit.page
    visit.start("agent", "tools: send_mail to=ann@example.com")
    card = page.get_by_role("group", name="Allow the tool send_mail to run?")
    expect(card.locator(".arguments dd")).to_have_text("ann@example.com")
    expect(page.locator(".thread[aria-current] .status")).to_have_text("Waiting for you")
    card.get_by_role("button", name="Approve").click()
    visit.wait_for("completed")
    expect(card).to_have_count(0)
    expect(page.locator(".said.assistant .prose").last).to_have_text("sent to ann@example.com")
    visit.check(server)


def test_a_no_says_why(visit: Visit, server: Server) -> None:
    page = visit.page
    visit.start("agent", "tools: send_mail to=bob@example.com")
    page.get_by_label("Comment, if any").fill("not to Bob")
    page.get_by_role("button", name="Reject").click()
    visit.wait_for("completed")
    page.locator(".activity summary").first.click()
    expect(page.get_by_text("Rejected: not to Bob")).to_be_visible()
    visit.check(server)


def test_questions_are_answered_one_after_another(visit: Visit, server: Server) -> None:
    page = visit.page
    visit.start("asking", "go")
    for question, answer in (("name?", "Ann"), ("age?", "42")):
        expect(page.locator(".waiting .question")).to_have_text(question)
        page.get_by_label("Your answer").fill(answer)
        page.get_by_role("button", name="Answer").click()
    visit.wait_for("completed")
    values = server.get(f"/api/workflows/{visit.id}/state").json()["values"]
    assert values["log"] == ["Ann is 42"]
    visit.check(server)


def test_a_round_is_stopped_and_a_thread_is_deleted_after_a_question(visit: Visit, server: Server) -> None:
    page = visit.page
    visit.start("slow", "take your time")
    page.get_by_role("button", name="Stop", exact=True).click()
    visit.wait_for("stopped")
    thread = visit.id
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="What should I work on?")).to_be_visible()
    expect(page.locator(f'.thread[href$="{thread}"]')).to_have_count(0)
    assert server.get(f"/api/threads/{thread}").status_code == 404
    visit.check(server)


def test_a_failed_round_says_why_and_can_be_tried_again(visit: Visit, server: Server) -> None:
    page = visit.page
    visit.start("broken", "go")
    visit.wait_for("failed")
    expect(page.locator(".outcome.failed")).to_contain_text("no such issue")
    page.get_by_role("button", name="Try again").click()
    # The stage it began with, and the one it was taken up with.
    expect(page.locator(".activity li.stage")).to_have_count(2)
    visit.wait_for("failed")
    visit.check(server)


def test_a_failed_round_whose_message_was_deleted_cannot_be_tried_again(visit: Visit, server: Server) -> None:
    page = visit.page
    visit.start("broken", "go")
    visit.wait_for("failed")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    page.get_by_role("button", name="Delete the message go").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    for _ in ("at once", "and after a reload"):
        expect(page.locator(".again")).to_contain_text("The message it began with was deleted")
        expect(page.get_by_role("button", name="Try again")).to_have_count(0)
        page.reload()
    visit.check(server)


def test_a_prompt_whose_answer_was_lost_is_kept_and_sent_again_as_the_same(
    visit: Visit, server: Server
) -> None:
    def lose(route: Route) -> None:
        route.fetch()  # it reached the server
        route.abort()

    page = visit.page
    prompt = "said twice, meant once"
    page.route("**/api/workflows/start", lose, times=1)
    page.locator(".composer").get_by_label("Graph").select_option("agent")
    visit.write(prompt)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Your text is kept")
    page.get_by_role("button", name="Send").click()
    visit.wait_for("completed")
    threads = server.get("/api/threads").json()["threads"]
    assert [thread["name"] for thread in threads].count(prompt) == 1
    visit.check(server, network=True)


def test_an_issue_is_worked_on_from_the_page(visit: Visit, server: Server, tmp_path: Path) -> None:
    page, worktree = visit.page, repository(tmp_path / "shop")
    page.get_by_role("link", name="New thread").click()
    page.locator(".composer").get_by_label("Graph").select_option("coding")
    page.get_by_label("Issue").fill("SHOP-7")
    page.get_by_label("Worktree").fill("not/absolute")
    visit.write("Empty carts crash\n\n- [ ] return early")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_contain_text("absolute")
    page.get_by_label("Worktree").fill(str(worktree))
    page.get_by_role("button", name="Send").click()
    visit.wait_for("blocked")
    expect(page.get_by_text("return early").first).to_be_visible()
    expect(page.locator(".waiting")).to_contain_text("Plan: as it is written above.")
    page.get_by_text("Edit the plan").click()
    plan = page.get_by_label("Plan", exact=True)
    plan.fill(plan.input_value().replace("return early", "return zero"))
    page.get_by_role("button", name="Approve").click()
    visit.wait_for("completed")
    assert git(worktree, "status", "--porcelain")
    assert "- [ ] return zero" in (worktree / "notes" / "SHOP-7.md").read_text()
    changes = page.get_by_role("group", name="Diff")
    expect(changes).to_contain_text("1 file changed")
    expect(changes.locator(".lines .added").first).to_be_visible()
    visit.check(server, network=True)


def test_a_prompt_sent_before_the_graphs_are_known_starts_what_is_usual(visit: Visit, server: Server) -> None:
    page = visit.page
    held: list[Route] = []
    page.goto("about:blank")
    page.route("**/api/graphs", lambda route: held.append(route))
    visit.open(f"{server.address}/")
    visit.write("Quicker than the list")
    page.keyboard.press("Enter")
    page.locator(".said.user").wait_for()
    assert server.get(f"/api/threads/{visit.id}").json()["graph"] == "chat"
    for route in held:
        route.continue_()
    visit.wait_for("completed")
    visit.check(server)


def test_a_key_is_asked_for_and_used_for_everything(
    browser: Browser, tmp_path: Path, report_and_sales: tuple[Path, Path]
) -> None:
    made = clew(tmp_path, "keys", "create", "--name", "page", "--json")
    assert made.returncode == 0, made.stderr
    key = next(word for word in made.stdout.replace('"', " ").split() if word.startswith("clew_"))
    with page_serving(tmp_path) as server, visiting(browser) as visit:
        page = visit.page
        page.goto(f"{server.address}/")
        page.get_by_label("Key", exact=True).fill(f"{key}x")
        page.get_by_role("button", name="Use it").click()
        expect(page.get_by_text("The server rejected this key.")).to_be_visible()
        page.get_by_label("Key", exact=True).fill(key)
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_have_count(0)
        visit.drop(report_and_sales[1])
        expect(page.locator(".composer .size")).to_have_text("97 B")
        visit.write("Make a table of sales by region")
        page.keyboard.press("Enter")
        visit.wait_for("completed")
        with page.expect_download() as download:
            page.locator(".said.user").get_by_role("link", name="sales.csv").click()
        assert Path(download.value.path()).read_bytes() == report_and_sales[1].read_bytes()
        assert page.evaluate("localStorage.length + document.cookie.length") == 0
        assert key not in page.url
        visit.check(server, network=True)  # the first answer was a 401


def test_it_works_under_a_path_of_a_proxy(browser: Browser, server: Server) -> None:
    def strip(route: Route) -> None:
        route.continue_(url=route.request.url.replace("/behind/a/proxy/", "/"))

    with visiting(browser) as visit:
        outside: list[str] = []
        visit.page.on("request", lambda request: outside.append(request.url))
        visit.page.route("**/behind/a/proxy/**", strip)
        visit.open(f"{server.address}/behind/a/proxy/")
        visit.start("agent", "hello")
        visit.wait_for("completed")
        assert [url for url in outside if "/behind/a/proxy/" not in url] == []
        visit.check(server)


@pytest.mark.parametrize("place", [".head", ".said"])
def test_a_question_that_is_left_and_asked_at_once_again_is_shown(
    visit: Visit, server: Server, place: str
) -> None:
    page = visit.page
    visit.start("agent", "hello")
    visit.wait_for("completed")
    opener = page.locator(place).get_by_text("Delete")
    opener.click()
    keep = page.get_by_role("button", name="Keep it")
    expect(keep).to_be_focused()
    # Quicker than the page is painted.
    opener.evaluate(
        """(opener) => {
          const dialog = document.querySelector("dialog");
          dialog.addEventListener("close", () => opener.click());
          dialog.close();
        }"""
    )
    expect(keep).to_be_focused()
    keep.click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    visit.check(server)


@pytest.mark.parametrize("place", [".head", ".said"])
def test_a_question_that_is_asked_again_before_its_dialog_told_of_its_end_is_shown(
    visit: Visit, server: Server, place: str
) -> None:
    page = visit.page
    visit.start("agent", "hello")
    visit.wait_for("completed")
    opener = page.locator(place).get_by_text("Delete")
    opener.click()
    keep = page.get_by_role("button", name="Keep it")
    expect(keep).to_be_focused()
    # Closed at once, as by Escape, while the event that tells of it is still to come.
    opener.evaluate(
        """(opener) => {
          document.querySelector("dialog").close();
          opener.click();
        }"""
    )
    expect(keep).to_be_focused()
    keep.click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    visit.check(server)


HOSTILE = '<img src="x" onerror="document.title = 1"><script>document.title = 2</script> **bold** `code`'


def test_whatever_is_said_is_text(visit: Visit, server: Server) -> None:
    visit.start("agent", HOSTILE)
    visit.wait_for("completed")
    expect(visit.page.locator(".said.user .text")).to_have_text([HOSTILE])
    answer = f"you said: {HOSTILE}".replace("**", "").replace("`", "")
    expect(visit.page.locator(".said.assistant .prose")).to_have_text([answer])
    expect(visit.page.locator("main img, main script")).to_have_count(0)
    visit.check(server)


MARKDOWN = """this

## Sales *and* `costs`

Two lines
of **one** paragraph, with a [link](https://example.com/a?b=1 "x"), https://example.com/bare and report.md.

> A quote
> > inside a quote

1. first
   - nested
     - deeper
2. second, ~~gone~~

| Region | Sum |
|:-------|----:|
| a \\| b | 12 |

```python
<b>not bold</b>
```

***

&lt;entity&gt; and \\*no emphasis\\*
"""


def test_an_answer_shows_its_markdown(visit: Visit, server: Server) -> None:
    visit.start("agent", MARKDOWN)
    visit.wait_for("completed")
    prose = visit.page.locator(".said.assistant .prose")
    expect(prose.locator(".heading")).to_have_text("Sales and costs")
    expect(prose.locator(".heading em, .heading code")).to_have_text(["and", "costs"])
    expect(prose.locator("strong, s")).to_have_text(["one", "gone"])
    expect(prose.locator("a")).to_have_text(["link", "https://example.com/bare"])
    assert prose.locator("a").first.get_attribute("href") == "https://example.com/a?b=1"
    assert prose.locator("a").first.get_attribute("rel") == "noopener noreferrer nofollow"
    expect(prose.locator("blockquote blockquote p")).to_have_text("inside a quote")
    expect(prose.locator("ol > li > ul > li > ul > li")).to_have_text("deeper")
    expect(prose.locator("th, td")).to_have_text(["Region", "Sum", "a | b", "12"])
    expect(prose.locator("td.right")).to_have_css("text-align", "right")
    expect(prose.locator("pre code")).to_have_text("<b>not bold</b>")
    expect(prose.locator("hr")).to_have_count(1)
    expect(prose.locator(":scope > p").last).to_have_text("<entity> and *no emphasis*")
    visit.check(server)


# What is said, what is shown of it, and the addresses it links to.
LINKS: tuple[tuple[str, str, list[str]], ...] = (
    ("[a](javascript:alert(1))", "[a](javascript:alert(1))", []),
    ("[a](JaVaScRiPt&#58;alert(1))", "[a](JaVaScRiPt:alert(1))", []),
    ("<javascript:alert(1)>", "<javascript:alert(1)>", []),
    ("[a](data:text/html,x)", "[a](data:text/html,x)", []),
    ("[a](//example.com) [b](/api/workflows)", "a b", []),
    ("![a chart](https://example.com/x.png)", "a chart", ["https://example.com/x.png"]),
    ("![a chart](/api/x.png) ![](x.svg)", "a chart image", []),
    ("[![a](https://example.com/x.png)](https://example.com/)", "a", ["https://example.com/"]),
    ('[a](https://example.com/"onclick=alert(1))', "a", ["https://example.com/%22onclick=alert(1)"]),
)


def test_only_whole_web_addresses_are_links_and_no_picture_is_loaded(visit: Visit, server: Server) -> None:
    visit.start("agent", "\n\n".join(["these", *(said for said, _, _ in LINKS)]))
    visit.wait_for("completed")
    paragraphs = visit.page.locator(".said.assistant .prose > p")
    expect(paragraphs).to_have_text(["you said: these", *(shown for _, shown, _ in LINKS)])
    expect(visit.page.locator("main img")).to_have_count(0)
    for paragraph, (_, _, addresses) in zip(paragraphs.all()[1:], LINKS, strict=True):
        assert [link.get_attribute("href") for link in paragraph.locator("a").all()] == addresses
    visit.check(server)


def test_the_keyboard_is_enough(visit: Visit, server: Server) -> None:
    page = visit.page
    expect(page.get_by_role("textbox", name="Describe the task")).to_be_focused()
    page.locator(".composer").get_by_label("Graph").select_option("agent")
    page.get_by_role("textbox").focus()
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    visit.wait_for("completed")
    expect(page.locator(".said.user .text")).to_have_js_property("textContent", "one\ntwo")
    for name in (re.compile("^Delete$"), re.compile("^Delete the message one two$")):
        opener = page.get_by_role("button", name=name)
        for answer in ("Escape", "Enter"):  # which leaves, and which says what has the focus: keep it
            opener.focus()
            page.keyboard.press("Enter")
            expect(page.get_by_role("button", name="Keep it")).to_be_focused()
            page.keyboard.press(answer)
            expect(page.get_by_role("dialog")).to_have_count(0)
            expect(opener).to_be_focused()
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, a, textarea, select, input, progress")]
          .filter((one) => !(one.textContent.trim() || one.ariaLabel || one.closest("label")))
          .map((one) => one.outerHTML)"""
    )
    assert unnamed == []
    page.get_by_role("button", name="Delete the message").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Keep it")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("dialog").get_by_role("button", name="Delete")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".said.user")).to_have_count(0)
    visit.check(server)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_of_it(browser: Browser, server: Server, scheme: str) -> None:
    with visiting(browser, viewport={"width": 360, "height": 640}, color_scheme=scheme) as visit:
        page = visit.page
        visit.open(f"{server.address}/")
        page.get_by_role("button", name="Threads").click()
        visit.start("agent", "tools: send_mail to=" + "x" * 300)
        page.get_by_role("button", name="Approve").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        page.get_by_role("button", name="Stop", exact=True).click()
        visit.page.locator(".composer").wait_for()
        visit.check(server)


def test_a_phone_shows_the_buttons_of_a_message_with_a_long_name(
    browser: Browser, server: Server, report_and_sales: tuple[Path, Path]
) -> None:
    sales = report_and_sales[1].rename(report_and_sales[1].with_name(f"{'sales_' * 20}.csv"))
    with visiting(browser, viewport={"width": 360, "height": 640}) as visit:
        page = visit.page
        visit.open(f"{server.address}/")
        visit.drop(sales)
        visit.write("Make a table of sales by region")
        page.keyboard.press("Enter")
        for name in ("Delete the message", "Delete the file"):
            button = page.get_by_role("button", name=name)
            expect(button).to_be_visible(timeout=2 * PATIENCE)
            box = button.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] < 360
        visit.check(server)
