"""Operating from the page: filters, metrics, crons, assistants, the store, keys and settings, beside 5,000 threads."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.visits import Visit, page_serving, visiting
from tests.processes import SECONDS, Server, until
from tests.providers import Reply, provider

THREADS = 5_000


@pytest.fixture
def crowded_visit(browser: Browser, crowded: Server) -> Iterator[Visit]:
    with visiting(browser) as visit:
        visit.open(f"{crowded.address}/")
        yield visit


def recent(server: Server) -> list[Any]:
    points: list[Any] = server.get("/api/metrics/recent").json()["points"]
    return points


def operate(page: Page, section: str) -> None:
    page.get_by_role("link", name="Operate").click()
    page.get_by_role("navigation", name="Sections").get_by_role("link", name=section).click()


def test_threads_are_filtered_by_time_and_user_and_sorted_by_activity(
    crowded_visit: Visit, crowded: Server
) -> None:
    page = crowded_visit.page
    rows = page.locator(".thread .name")
    expect(page.get_by_role("button", name=re.compile(r"^Done \d+$"))).to_be_visible()
    total = sum(crowded.get("/api/threads/counts").json()["byStatus"].values())
    assert total >= THREADS
    for seen in (50, 100, 150):
        expect(rows).to_have_count(seen)
        page.get_by_role("button", name="Show more").click()
    page.get_by_text("Time, user, order").click()
    page.get_by_label("Threads of this user").fill("ann")
    page.get_by_label("Threads of this user").press("Enter")
    expect(page).to_have_url(re.compile("user=ann"))
    expect(rows.first).to_have_text(re.compile(r"^agent \d*[147] ?: |^agent \d+: "))
    expect(rows).to_have_count(50)
    page.get_by_label("Order").select_option("activity")
    expect(page).to_have_url(re.compile("sort=activity"))
    listed = crowded.get("/api/threads?user=ann&sort=activity&limit=50").json()["threads"]
    expect(rows).to_have_text([one["name"] for one in listed])
    page.get_by_label("Time of the last activity").select_option("hour")
    expect(page.get_by_text("No thread matches this filter.")).to_be_visible()
    page.reload()
    expect(page.get_by_text("No thread matches this filter.")).to_be_visible()
    expect(page.get_by_label("Order")).to_have_value("activity")
    crowded_visit.check(crowded)


def test_charts_show_the_last_hours(crowded_visit: Visit, crowded: Server) -> None:
    page = crowded_visit.page
    answer = httpx.post(
        f"{crowded.address}/api/workflows/start", json={"graph": "broken", "prompt": "go"}, timeout=SECONDS
    )
    thread = answer.json()["id"]
    until(lambda: crowded.get(f"/api/threads/{thread}").json()["status"] == "failed")
    # Of a minute that has just begun nothing is drawn.
    until(lambda: any(one["failedRounds"] and one["seconds"] >= 5 for one in recent(crowded)))
    operate(page, "Metrics")
    expect(page.locator(".chart")).to_have_count(5)
    expect(
        page.get_by_role("img", name=re.compile(r"^Rounds a minute: ended .*failed [\d.]+; at most"))
    ).to_be_visible()
    expect(page.get_by_role("img", name=re.compile(r"^Duration of a request: p50 \d"))).to_be_visible()
    crowded_visit.check(crowded)


def test_the_queue_shows_what_waits_and_who_runs_it(browser: Browser, tmp_path: Path) -> None:
    with page_serving(tmp_path, CLEW_RUNNER_CONCURRENCY="1") as server, visiting(browser) as visit:
        page = visit.page
        for _ in range(3):
            server.post("/api/workflows/start", {"graph": "slow", "prompt": "go"}).raise_for_status()
        visit.open(f"{server.address}/")
        operate(page, "Queue")
        expect(page.locator(".figures")).to_contain_text("Waiting2Running1")
        expect(page.get_by_role("group", name="Processes")).to_contain_text("1 of 1")
        rows = page.get_by_role("group", name="Next").get_by_role("row").filter(has=page.get_by_role("link"))
        last = rows.last.get_by_role("link").get_attribute("href")
        rows.last.get_by_role("button", name="first").click()
        expect(rows.first.get_by_role("link")).to_have_attribute("href", str(last))
        page.once("dialog", lambda dialog: dialog.accept())
        rows.first.get_by_role("button", name="Cancel").click()
        expect(rows).to_have_count(1)
        visit.check(server)


def test_a_cron_runs_now_is_paused_and_deleted(crowded_visit: Visit, crowded: Server) -> None:
    page = crowded_visit.page
    message = {"messages": [{"role": "user", "content": "from a cron"}]}
    cron = {
        "assistant_id": "agent",
        "schedule": "0 9 * * mon-fri",
        "timezone": "Europe/Berlin",
        "input": message,
    }
    crowded.post("/runs/crons", cron).raise_for_status()
    operate(page, "Crons")
    row = page.get_by_role("row").filter(has_text="Europe/Berlin")
    expect(row).to_contain_text(re.compile(r"in \d+ (hr|days?|min)"))
    expect(row).to_contain_text("agent")
    row.get_by_role("button", name="Run now").click()
    started = page.get_by_role("status").get_by_role("link")
    thread = started.inner_text()
    until(lambda: crowded.get(f"/api/threads/{thread}").json()["status"] == "completed")
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Enable").click()
    expect(row.get_by_role("button", name="Pause")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No cron.")).to_be_visible()
    started.click() if started.count() else page.goto(f"{crowded.address}/#/threads/{thread}")
    expect(page.locator(".said.user .text")).to_have_text("from a cron")
    crowded_visit.check(crowded)


def test_an_assistant_is_created_edited_compared_and_put_back(crowded_visit: Visit, crowded: Server) -> None:
    page = crowded_visit.page
    operate(page, "Assistants")
    page.get_by_role("button", name="New assistant").click()
    page.locator(".panel").get_by_role("combobox", name="Graph").select_option("agent")
    text = page.get_by_label("Assistant as JSON")
    text.fill('{"name": "Support", "config": {"configurable": {"tone": "kind"}}}')
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Support")).to_contain_text("agent · version 1")
    page.get_by_role("button", name="Edit").click()
    text.fill("{no json")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("JSON")
    text.fill('{"name": "Support", "config": {"configurable": {"tone": "short"}}}')
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Support")).to_contain_text("version 2")
    expect(page.locator(".difference .removed").filter(has_text="kind").first).to_be_visible()
    expect(page.locator(".difference .added").filter(has_text="short").first).to_be_visible()
    page.get_by_role("button", name="Use version 1").click()
    expect(page.get_by_role("button", name="Use version 2")).to_be_visible()
    found = crowded.post("/assistants/search", {"limit": 100}).json()
    assert [one["version"] for one in found if one["name"] == "Support"] == [1]
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("button", name="New assistant")).to_be_visible()
    expect(page.get_by_role("button", name="Open Support")).to_have_count(0)
    crowded_visit.check(crowded)


def test_items_are_browsed_written_edited_and_deleted(crowded_visit: Visit, crowded: Server) -> None:
    page = crowded_visit.page
    for name in ("ann", "bob"):
        item = {"namespace": ["users", name], "key": "prefs", "value": {"theme": name}}
        httpx.put(f"{crowded.address}/store/items", json=item, timeout=SECONDS).raise_for_status()
    operate(page, "Store")
    page.get_by_role("button", name="users.ann").click()
    expect(page.get_by_role("row").filter(has_text="prefs")).to_have_count(1)
    page.get_by_role("button", name="Edit prefs").click()
    page.get_by_label("Value as JSON").fill('{"theme": "dark"}')
    page.get_by_role("button", name="Save").click()
    page.get_by_text("show", exact=True).click()
    expect(page.locator("td pre")).to_contain_text('"theme": "dark"')
    page.get_by_role("button", name="New item").click()
    page.get_by_label("Its namespace").fill("users.ann")
    page.get_by_label("Key").fill("notes")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Edit notes")).to_be_visible()
    for key in ("notes", "prefs"):
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name=f"Delete {key}").click()
        expect(page.get_by_role("button", name=f"Delete {key}")).to_have_count(0)
    expect(page.get_by_text("No item in this namespace.")).to_be_visible()
    crowded_visit.check(crowded)


def test_a_webhook_that_was_given_up_is_called_again(crowded_visit: Visit, crowded: Server) -> None:
    page = crowded_visit.page
    statuses = iter([404, 200])
    with provider(lambda _: Reply(status=next(statuses))) as receiver:
        run = {"assistant_id": "two_steps", "input": {"log": []}, "webhook": f"{receiver.url}/secret"}
        crowded.post("/runs", {**run, "on_completion": "keep"}).raise_for_status()
        until(lambda: len(crowded.get("/api/webhooks/failed").json()["webhooks"]) == 1)
        operate(page, "Webhooks")
        row = page.get_by_role("row").filter(has_text=receiver.url)
        expect(row).to_contain_text("answered 404")
        expect(row).not_to_contain_text("secret")
        row.get_by_role("button", name="again").click()
        expect(page.get_by_text("No webhook was given up.")).to_be_visible()
        until(lambda: len(receiver.requests) == 2)
    crowded_visit.check(crowded)


def test_an_operator_filters_by_tenant(crowded_visit: Visit, crowded: Server) -> None:
    page = crowded_visit.page
    page.get_by_text("Time, user, order").click()
    page.get_by_label("Threads of this tenant").fill("nowhere")
    page.get_by_label("Threads of this tenant").press("Enter")
    expect(page.get_by_text("No thread matches this filter.")).to_be_visible()
    page.get_by_label("Threads of this tenant").fill("*")
    page.get_by_label("Threads of this tenant").press("Enter")
    expect(page.locator(".thread")).to_have_count(50)
    crowded_visit.check(crowded)


def test_settings_are_shown_without_secrets(crowded_visit: Visit, crowded: Server) -> None:
    page = crowded_visit.page
    operate(page, "Settings")
    row = page.get_by_role("row").filter(has=page.get_by_text("cleanup.cron_secret", exact=True))
    expect(row).to_contain_text("set")
    expect(page.locator(".panel")).not_to_contain_text("hush-hush")
    crowded_visit.check(crowded)


def test_the_first_key_closes_the_server_and_later_ones_show_what_they_may(
    browser: Browser, tmp_path: Path
) -> None:
    with page_serving(tmp_path) as server:
        with visiting(browser) as visit:
            page = visit.page
            visit.open(f"{server.address}/")
            operate(page, "Keys")
            page.get_by_role("textbox", name="Name").fill("mine")
            page.get_by_role("button", name="Create key").click()
            expect(page.locator(".new-key pre")).to_contain_text("clew_")
            page.get_by_role("button", name="Done").click()
            until(lambda: server.get("/api/threads").status_code == 401)
            expect(page.get_by_role("row").filter(has_text="mine")).to_contain_text("active")
            page.get_by_role("textbox", name="Name").fill("reader")
            for scope in ("write", "approve"):
                page.get_by_role("checkbox", name=scope).uncheck()
            page.get_by_role("button", name="Create key").click()
            reader = page.locator(".new-key pre").inner_text()
            visit.check(server)
        with visiting(browser) as visit:
            page = visit.page
            visit.open(f"{server.address}/#/operate/keys")
            page.get_by_role("dialog").get_by_role("textbox").fill(reader)
            page.get_by_role("button", name="Use it").click()
            sections = page.get_by_role("navigation", name="Sections").get_by_role("link")
            expect(sections).to_have_text(["Storage", "Crons", "Assistants", "Store", "Files"])
            expect(page.get_by_text("Your key does not allow this.")).to_be_visible()
            page.get_by_role("link", name="New thread").click()
            expect(page.get_by_text("it lacks the scope write")).to_be_visible()
            expect(page.locator(".composer")).to_have_count(0)
            visit.check(server, network=True)
        with visiting(browser) as visit:
            keys = server.get("/api/keys", authorization=f"Bearer {reader}")
            assert keys.status_code == 403
