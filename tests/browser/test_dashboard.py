"""The dashboard: filters, the inbox, the views of a thread, and what an operator does."""

import re
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.base import AxeResults  # type: ignore[import-untyped]
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Dialog, expect

from tests.browser.visits import Visit, comes_to, page_serving, start, visiting
from tests.processes import SECONDS, Server, until

MAIL = "tools: send_mail to=ann@example.com"


def test_the_list_shows_every_page_and_its_filter_is_in_the_address(visit: Visit, server: Server) -> None:
    page = visit.page
    for number in range(60):
        start(server, "agent", f"thread {number}")
    failed = start(server, "broken", "go")
    comes_to(server, failed, "failed")
    page.reload()
    rows = page.locator(".thread")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator(".thread .name").filter(has_text=re.compile(r"^thread \d+$"))).to_have_count(60)
    page.get_by_role("button", name=re.compile(r"^Failed \d+$")).click()
    expect(page.locator(".thread .status:not(.failed)")).to_have_count(0)
    assert "status=failed" in page.url
    page.reload()
    expect(page.get_by_role("button", name=re.compile("^Failed"))).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".thread .status:not(.failed)")).to_have_count(0)
    page.get_by_label("Threads of this graph").select_option("agent")
    expect(page.get_by_text("No thread matches this filter.")).to_be_visible()
    visit.check(server)


def test_the_inbox_has_what_waits_in_all_threads_and_answers_it(visit: Visit, server: Server) -> None:
    page = visit.page
    gate, mail = start(server, "gated", "plan it"), start(server, "agent", MAIL)
    for thread in (gate, mail):
        comes_to(server, thread, "blocked")
    page.reload()
    expect(page).to_have_title(re.compile(r"^\(\d+\) Clew$"))
    page.get_by_role("link", name=re.compile("^Waiting for you")).click()
    card = page.get_by_role("article", name="plan it", exact=True)
    expect(card).to_contain_text("Continue with human_approval_node?")
    expect(card.locator("pre")).to_contain_text('"plan"')
    card.get_by_role("button", name="Approve").click()
    expect(card).to_have_count(0)
    comes_to(server, gate, "completed")
    other = page.get_by_role("article", name=MAIL, exact=True).first
    expect(other.locator(".arguments dd")).to_have_text("ann@example.com")
    other.get_by_role("button", name="Reject").click()
    comes_to(server, mail, "completed")
    visit.check(server)


def test_a_thread_has_its_run_its_graph_its_state_and_its_log(visit: Visit, server: Server) -> None:
    page = visit.page
    visit.start("agent", MAIL)
    visit.wait_for("blocked")
    tabs = page.get_by_role("navigation", name="Views of this thread")
    tabs.get_by_role("link", name="Run").click()
    expect(page.locator(".span .name")).to_have_text(["model", "send_mail", "tools", "for an answer"])
    expect(page.locator(".span.wait .took")).to_have_text("waiting")
    tabs.get_by_role("link", name="Graph").click()
    expect(page.locator(".node.visited text")).to_have_text("model")
    expect(page.locator(".node.current text")).to_have_text("tools")
    tabs.get_by_role("link", name="State").click()
    expect(page.locator(".values pre")).to_contain_text("send_mail")
    page.get_by_label("Compare with").select_option("2")
    expect(page.locator(".difference .added").first).to_be_visible()
    assert page.locator(".difference").inner_text().count("\n") > 10, "a line for each line"
    tabs.get_by_role("link", name="Log").click()
    thread = page.url.split("/")[-2]
    events = server.get(f"/api/threads/{thread}/events").json()["events"]
    expect(page.locator(".events .type")).to_have_text([event["type"] for event in events])
    page.get_by_label("Type").select_option("suspension")
    page.locator(".events summary").click()
    expect(page.locator(".events pre")).to_contain_text("ann@example.com")
    # The other views follow the thread too.
    tabs.get_by_role("link", name="Run").click()
    httpx.post(f"{server.address}/api/workflows/{thread}/approve", timeout=SECONDS).raise_for_status()
    expect(page.locator(".waterfall .facts")).to_contain_text("Done")
    expect(page.locator(".span.wait .took")).to_have_text(re.compile(r"\d"))
    visit.check(server)


def test_state_is_edited_and_a_run_starts_from_an_earlier_checkpoint(visit: Visit, server: Server) -> None:
    page = visit.page
    visit.start("two_steps", "go")
    visit.wait_for("completed")
    thread = visit.id
    page.get_by_role("navigation", name="Views of this thread").get_by_role("link", name="State").click()
    steps = page.locator(".checkpoints li")
    expect(steps).not_to_have_count(0)
    before = steps.count()
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Values to write").fill("not json")
    page.get_by_role("button", name="Write").click()
    expect(page.get_by_role("alert")).to_contain_text("JSON")
    page.get_by_label("Values to write").fill('{"log": ["by hand"]}')
    page.get_by_role("button", name="Write").click()
    expect(steps).to_have_count(before + 1)
    expect(page.locator(".values pre")).to_contain_text("by hand")
    comes_to(server, thread, "completed")
    page.once("dialog", lambda dialog: dialog.accept())
    steps.nth(before - 1).get_by_role("button").click()
    page.get_by_role("button", name="Run from here").click()
    until(lambda: len(server.get(f"/threads/{thread}/runs").json()) == 1)
    comes_to(server, thread, "completed")
    visit.check(server)


def test_an_operator_cleans_up_restores_and_pauses(browser: Browser, tmp_path: Path) -> None:
    with page_serving(tmp_path) as server, visiting(browser) as visit:
        page = visit.page
        thread = start(server, "agent", "to be deleted")
        comes_to(server, thread, "completed")
        httpx.delete(f"{server.address}/api/threads/{thread}?soft=true", timeout=SECONDS).raise_for_status()
        cron = {"assistant_id": "agent", "schedule": "0 9 * * mon-fri", "input": {"messages": []}}
        httpx.post(f"{server.address}/runs/crons", json=cron, timeout=SECONDS).raise_for_status()
        item = {"namespace": ["users", "ann"], "key": "prefs", "value": {"theme": "dark"}}
        httpx.put(f"{server.address}/store/items", json=item, timeout=SECONDS).raise_for_status()
        visit.open(f"{server.address}/")
        page.get_by_role("link", name="Operate").click()
        expect(page.locator(".figures")).to_contain_text("In the trash1")
        page.get_by_role("button", name="Dry run").click()
        expect(page.get_by_role("status").filter(has_text="would delete")).to_contain_text("0 threads")
        page.get_by_role("button", name="Restore").click()
        expect(page.get_by_role("button", name="Restore")).to_have_count(0)
        assert server.get(f"/api/threads/{thread}").json()["name"] == "to be deleted"
        sections = page.get_by_role("navigation", name="Sections")
        sections.get_by_role("link", name="Crons").click()
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("button", name="Enable")).to_be_visible()
        sections.get_by_role("link", name="Store").click()
        page.get_by_text("show", exact=True).click()
        expect(page.locator("td pre")).to_contain_text('"theme": "dark"')
        page.get_by_role("textbox", name="Namespace").fill("users.bob")
        expect(page.get_by_text("No item in this namespace.")).to_be_visible()
        for section, text in (("Assistants", "agent"), ("Files", "No file was uploaded."), ("Audit", "")):
            sections.get_by_role("link", name=section).click()
            expect(page.locator(".panel")).to_contain_text(text)
        visit.check(server)


# Each view, by its address, and what it alone has once its data is there.
PLACES = {
    "": ".composer",
    "waiting": ".inbox .waiting",
    "operate/storage": "[aria-label=Storage] .figures",
    "operate/queue": "[aria-label=Queue] .figures",
    "operate/metrics": ".chart",
    "operate/crons": "[aria-label=Crons] .empty",
    "operate/assistants": "[aria-label=Assistants] td",
    "operate/webhooks": "[aria-label=Webhooks] .empty",
    "operate/store": "[aria-label=Store] input",
    "operate/files": "[aria-label=Files]",
    "operate/keys": ".scopes",
    "operate/settings": "[aria-label=Settings] td",
    "operate/audit": "[aria-label=Audit] .empty",
    "threads/{thread}": ".reading > .waiting",
    "threads/{thread}/run": ".span",
    "threads/{thread}/graph": ".node",
    "threads/{thread}/state": ".values pre",
    "threads/{thread}/documents": ".panel > .empty",
    "threads/{thread}/log": ".events li",
}
AXE = Axe()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_every_view_is_accessible_and_fits(browser: Browser, server: Server, scheme: str, width: int) -> None:
    thread = start(server, "agent", MAIL)
    comes_to(server, thread, "blocked")
    with visiting(browser, viewport={"width": width, "height": 800}, color_scheme=scheme) as visit:
        visit.open(f"{server.address}/")
        visit.page.evaluate(AXE.axe_script)
        for place, sign in PLACES.items():
            visit.page.goto(f"{server.address}/#/{place.format(thread=thread)}")
            visit.page.locator(sign).first.wait_for()
            # The list is the same beside all of them.
            scope = {"include": [["html"]], "exclude": [["aside ul"]] if place else []}
            found = AxeResults(
                visit.page.evaluate("(scope) => axe.run(scope, {resultTypes: ['violations']})", scope)
            )
            assert found.violations_count == 0, f"{place}: {found.generate_report()}"
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= width, place
        visit.check(server)


def test_several_threads_are_stopped_and_put_in_the_trash(browser: Browser, tmp_path: Path) -> None:
    with page_serving(tmp_path) as server, visiting(browser) as visit:
        page = visit.page
        threads = [start(server, "agent", MAIL) for _ in range(3)]
        for thread in threads:
            comes_to(server, thread, "blocked")
        visit.open(f"{server.address}/")
        page.get_by_role("button", name="Select threads").click()
        tools = page.get_by_role("group", name="Selected threads")
        expect(tools.get_by_role("button", name="Stop")).to_be_disabled()
        page.get_by_role("checkbox").nth(0).check()
        tools.get_by_role("button", name="Stop").click()
        expect(page.locator(".thread .status.stopped")).to_have_count(1)
        page.get_by_role("button", name="Select threads").click()
        tools.get_by_role("button", name="All shown").click()
        page.once("dialog", lambda dialog: dialog.accept())
        tools.get_by_role("button", name="Delete").click()
        expect(page.get_by_text("Threads you start appear here.")).to_be_visible()
        assert len(server.get("/api/threads/deleted").json()["threads"]) == 3
        visit.check(server)


def test_shortcuts_move_and_approve_but_never_while_one_writes(browser: Browser, tmp_path: Path) -> None:
    with page_serving(tmp_path) as server, visiting(browser) as visit:
        page = visit.page
        older, newer = start(server, "agent", MAIL), start(server, "agent", MAIL)
        for thread in (older, newer):
            comes_to(server, thread, "blocked")
        visit.open(f"{server.address}/")
        expect(page.locator(".thread")).to_have_count(2)
        page.get_by_role("textbox").press("j")
        expect(page.get_by_role("textbox")).to_have_value("j")
        page.locator("#main").focus()
        page.keyboard.press("j")
        expect(page).to_have_url(re.compile(newer))
        page.keyboard.press("j")
        expect(page).to_have_url(re.compile(older))
        page.get_by_role("button", name="Approve").wait_for()
        asked: list[str] = []

        def accept(dialog: Dialog) -> None:
            asked.append(dialog.message)
            dialog.accept()

        page.once("dialog", accept)
        page.keyboard.press("a")
        visit.wait_for("completed")
        assert asked == ["Allow the tool send_mail to run?\n\nApprove?"]
        page.locator("#main").focus()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        visit.check(server)


def test_threads_are_found_by_their_words(browser: Browser, tmp_path: Path) -> None:
    with page_serving(tmp_path) as server, visiting(browser) as visit:
        page = visit.page
        wanted, other = start(server, "agent", MAIL), start(server, "agent", "Something else entirely")
        comes_to(server, wanted, "blocked")
        comes_to(server, other, "completed")
        visit.open(f"{server.address}/")
        expect(page.locator(".thread")).to_have_count(2)
        page.locator("#main").focus()
        page.keyboard.press("/")
        page.keyboard.type("entirel")
        expect(page.locator(".thread")).to_have_count(1)
        expect(page.locator(".thread .match")).to_contain_text("Something else entirely")
        expect(page).to_have_url(re.compile("q=entirel"))
        page.get_by_role("searchbox").fill("nothing like it")
        expect(page.get_by_text("No thread matches this filter.")).to_be_visible()
        page.get_by_role("searchbox").fill("")
        expect(page.locator(".thread")).to_have_count(2)
        visit.check(server)
