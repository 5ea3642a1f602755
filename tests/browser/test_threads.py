"""Starting threads and answering what they wait for: forms, assistants, examples, reviews, deadlines; what a chat shows."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import APIResponse, Browser, Route, expect

from tests.browser.visits import PATIENCE, Visit, comes_to, page_serving, start, visiting
from tests.processes import Server

MAIL = "tools: send_mail to=ann@example.com"


def test_a_graph_is_started_from_a_form_or_from_json(visit: Visit, server: Server) -> None:
    page = visit.page
    composer = page.locator(".composer")
    composer.get_by_label("Graph").select_option("typed")
    composer.get_by_label("Input").select_option("form")
    composer.get_by_role("textbox", name="Marks").fill("by hand")
    composer.get_by_role("textbox", name="Plan").fill("{no json")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_contain_text("plan: ")
    composer.get_by_role("textbox", name="Plan").fill('{"steps": 7}')
    composer.get_by_role("textbox", name="Log").fill('["first"]')
    page.get_by_role("button", name="Send").click()
    visit.wait_for("blocked")
    state = server.get(f"/api/workflows/{visit.id}/state").json()["values"]
    assert (state["marks"], state["log"]) == ("by hand", ["first"])
    page.get_by_role("link", name="New thread").click()
    composer.get_by_label("Graph").select_option("two_steps")
    composer.get_by_label("Input").select_option("json")
    composer.get_by_label("Input as JSON").fill('{"log": ["raw"]}')
    page.get_by_role("button", name="Send").click()
    visit.wait_for("completed")
    assert server.get(f"/api/workflows/{visit.id}/state").json()["values"]["log"] == ["raw", "plan", "code"]
    visit.check(server)


def test_an_assistant_is_chosen_and_runs_once(visit: Visit, server: Server) -> None:
    page = visit.page
    made = {"graph_id": "agent", "name": "Support", "config": {"tags": ["support"]}}
    assistant = server.post("/assistants", made).raise_for_status().json()["assistant_id"]
    page.reload()
    composer = page.locator(".composer")
    composer.get_by_label("Graph").select_option("agent")
    composer.get_by_label("Assistant").select_option(assistant)
    visit.write("hello there")
    page.get_by_role("button", name="Send").click()
    visit.wait_for("completed")
    expect(page.locator(".said.user .text")).to_have_text("hello there")
    [run] = server.get(f"/threads/{visit.id}/runs").json()
    assert run["assistant_id"] == assistant
    visit.check(server)


@pytest.mark.timeout(300)
def test_an_example_brings_its_files_along(visit: Visit, server: Server) -> None:
    page = visit.page
    page.get_by_role("button", name="Summarize the report").click()
    expect(page.locator(".composer .file .size")).to_have_text(["2.5 kB", "97 B"])
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".head .status.completed")).to_be_visible(timeout=6 * PATIENCE)
    expect(page.locator(".said.assistant img.preview")).to_be_visible()
    page.get_by_role("link", name="Documents", exact=True).click()
    expect(page.locator("iframe[title='Preview of report.pdf']")).to_be_visible()
    expect(page.get_by_role("columnheader", name="month")).to_be_visible()
    visit.check(server)


def test_operators_see_why_a_graph_is_missing(browser: Browser, tmp_path: Path) -> None:
    with page_serving(tmp_path, "  lost: nowhere.at:all\n") as server, visiting(browser) as visit:
        visit.open(f"{server.address}/")
        visit.page.get_by_text("1 graph could not be loaded").click()
        expect(visit.page.locator(".broken dd")).to_contain_text("No module named 'nowhere'")
        visit.check(server)


NESTED = """
from langgraph.graph import END, START, StateGraph


def step(state: dict) -> dict:
    return {}


def chain(*nodes):
    graph = StateGraph(dict)
    for before, (name, node) in zip((START, *(name for name, _ in nodes)), nodes):
        graph.add_node(name, node)
        graph.add_edge(before, name)
    graph.add_edge(nodes[-1][0], END)
    return graph


def graph():
    return chain(("plan", step), ("team", chain(("research", step), ("write", step)).compile()), ("answer", step))
"""


def test_a_subgraph_opens_in_the_picture_of_its_graph(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "nested.py").write_text(NESTED)
    with page_serving(tmp_path, "  nested: ./nested.py:graph\n") as server, visiting(browser) as visit:
        page = visit.page
        thread = start(server, "nested", "go")
        comes_to(server, thread, "completed")
        visit.open(f"{server.address}/#/threads/{thread}/graph")
        nodes = page.locator(".node text")
        expect(nodes).to_have_text(["start", "plan", "answer", "end", "team ▸"])
        expect(page.locator(".node.visited text")).to_have_text(["plan", "answer", "team ▸"])
        page.get_by_role("button", name="team").click()
        expect(nodes).to_have_text(["start", "plan", "answer", "end", "research", "write"])
        expect(page.locator(".frame")).to_have_count(1)
        page.get_by_role("button", name="team").click()
        expect(nodes).to_have_count(5)
        visit.check(server)


def test_arguments_are_edited_where_the_tool_allows_it(visit: Visit, server: Server) -> None:
    page = visit.page
    thread = start(server, "reviewed_agent", "tools: count upto=3; greet name=ann")
    comes_to(server, thread, "blocked")
    page.goto(f"{server.address}/#/waiting")
    card = page.get_by_role("group", name="Allow count, greet?")
    send = card.get_by_role("button", name="Send decisions")
    expect(send).to_be_disabled()
    count, greet = (card.get_by_role("group", name=f"Decision about {name}") for name in ("count", "greet"))
    expect(greet.get_by_role("button")).to_have_text(["Approve"])
    count.get_by_role("button", name="Edit").click()
    card.get_by_label("upto").fill("")
    greet.get_by_role("button", name="Approve").click()
    send.click()
    expect(card.get_by_role("alert")).to_contain_text("upto")
    card.get_by_label("upto").fill("6")
    send.click()
    comes_to(server, thread, "completed")
    state = server.get(f"/api/workflows/{thread}/state").text
    assert "0 1 2 3 4 5" in state
    assert "hello ann" in state
    expect(card).to_have_count(0)
    visit.check(server)


def test_a_deadline_counts_down_and_options_are_buttons(visit: Visit, server: Server) -> None:
    page = visit.page
    visit.start("timed", "go")
    visit.wait_for("blocked")
    left = page.locator(".countdown")
    expect(left).to_have_text(re.compile(r"^59 min \d+ s$"))
    before = left.inner_text()
    expect(left).not_to_have_text(before)
    page.get_by_role("button", name="blue").click()
    visit.wait_for("completed")
    assert server.get(f"/api/workflows/{visit.id}/state").json()["values"]["log"] == ["blue"]
    visit.check(server)


def test_who_answered_meanwhile_is_told(visit: Visit, server: Server) -> None:
    page = visit.page
    thread = start(server, "agent", MAIL)
    comes_to(server, thread, "blocked")
    # This page does not hear of the other answer before it sends its own: it gets the first list again and again.
    listed: list[APIResponse] = []

    def as_before(route: Route) -> None:
        listed.extend([] if listed else [route.fetch()])
        route.fulfill(response=listed[0])

    page.route("**/api/threads?status=blocked*", as_before)
    page.goto(f"{server.address}/#/waiting")
    card = page.get_by_role("article").filter(has=page.locator(f'a[href*="{thread}"]'))
    card.get_by_role("button", name="Approve").wait_for()
    server.post(f"/api/workflows/{thread}/approve", {}).raise_for_status()
    card.get_by_role("button", name="Approve").click()
    expect(page.locator(".notice")).to_contain_text("it was approved")
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.locator(".notice")).to_have_text("")
    visit.check(server, network=True)


@pytest.mark.parametrize("place", ["waiting", "threads/{thread}"])
def test_approve_is_five_tabs_away_at_most(visit: Visit, server: Server, place: str) -> None:
    page = visit.page
    thread = start(server, "agent", MAIL)
    comes_to(server, thread, "blocked")
    page.goto(f"{server.address}/#/{place.format(thread=thread)}")
    page.locator(".waiting").first.wait_for()
    expect(page.locator(".waiting").first).to_be_focused()
    for _ in range(5):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == "Approve":
            break
    assert page.evaluate("document.activeElement.textContent.trim()") == "Approve"
    visit.check(server)


def test_data_is_no_bubble_and_code_has_colours(visit: Visit, server: Server) -> None:
    page = visit.page
    visit.start("planning", "go")
    visit.wait_for("completed")
    said = page.locator(".said.assistant")
    expect(said.first.locator("summary")).to_have_text("Data")
    expect(said.first.locator("pre")).to_be_hidden()
    code = said.last.locator("pre code")
    expect(code.locator(".tok-comment")).to_have_text("# greets")
    expect(code.locator(".tok-keyword")).to_have_text("return")
    expect(code.locator(".tok-string")).to_have_text('"hello"')
    expect(code.locator(".tok-number")).to_have_text("42")
    visit.check(server)
