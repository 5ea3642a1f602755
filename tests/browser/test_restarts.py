"""A server that is killed and started again under an open page: nothing is lost, nothing is doubled."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.visits import PATIENCE, comes_to, page_serving, start, visiting
from tests.processes import port_to_keep

MAIL = "tools: send_mail to=ann@example.com"

# Views that ask again and again, those that follow a thread, and what each has once its data is there.
ASKING = {
    "waiting": ".waiting",
    "operate/metrics": ".chart",
    "operate/crons": ".empty",
    "operate/queue": ".figures",
}
FOLLOWING = {"run": ".span", "log": ".events li", "graph": ".node", "state": ".values"}


@pytest.mark.timeout(240)
def test_every_live_view_goes_on_after_the_server_was_killed(browser: Browser, tmp_path: Path) -> None:
    with ExitStack() as stack:
        # A browser opens few connections to a server for each context, and every page here keeps one.
        asking = {place: stack.enter_context(visiting(browser)) for place in ASKING}
        following = {tab: stack.enter_context(visiting(browser)) for tab in FOLLOWING}
        with page_serving(tmp_path, port=port_to_keep()) as server:
            thread = start(server, "agent", MAIL)
            comes_to(server, thread, "blocked")
            for place, visit in asking.items():
                visit.open(f"{server.address}/#/{place}")
                expect(visit.page.locator(ASKING[place]).first).to_be_visible()
            for tab, visit in following.items():
                visit.open(f"{server.address}/#/threads/{thread}/{tab}")
                expect(visit.page.locator(FOLLOWING[tab]).first).to_be_visible()
            server.signal(signal.SIGKILL)
            server.wait()
        for visit in asking.values():
            # As if the user came back to the tab: the page asks at once.
            visit.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            expect(visit.page.get_by_role("alert").filter(has_text="cannot be reached")).to_be_visible()
        with page_serving(tmp_path, port=server.port) as revived:
            revived.post(f"/api/workflows/{thread}/approve", {}).raise_for_status()
            for visit in asking.values():
                expect(visit.page.get_by_role("alert")).to_have_count(0, timeout=2 * PATIENCE)
            expect(asking["waiting"].page.get_by_text("Nothing waits for you.")).to_be_visible()
            for visit in following.values():
                visit.wait_for_status("completed")
                expect(visit.page.get_by_role("alert")).to_have_count(0)
            events = revived.get(f"/api/threads/{thread}/events").json()["events"]
            shown = following["log"].page.locator(".events .seq")
            expect(shown).to_have_text([str(event["seq"]) for event in events])
            expect(following["graph"].page.locator(".node.current")).to_have_count(0)
            expect(following["state"].page.locator(".checkpoints li").first).to_contain_text("end")
            for visit in (*asking.values(), *following.values()):
                visit.check(revived, network=True)


def test_a_server_killed_and_started_again_in_the_middle_loses_and_repeats_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    words = " ".join(f"word{number}" for number in range(12))
    with visiting(browser) as visit:
        page = visit.page
        with page_serving(tmp_path, port=port_to_keep()) as server:
            visit.open(f"{server.address}/")
            visit.start("agent", "before")
            visit.wait_for("completed")
            page.get_by_role("textbox").fill(f"slowly: {words}")
            page.get_by_role("button", name="Send").click()
            # As it is said, or in the end: a page that had to wait for the processor has missed the middle.
            expect(page.locator(".said.assistant").nth(1)).to_contain_text("word2")
            server.signal(signal.SIGKILL)
            server.wait()
            expect(page.get_by_text("Connection lost. Trying again.")).to_be_visible()
        with page_serving(tmp_path, port=server.port) as revived:
            visit.wait_for("completed")
            expect(page.get_by_text("Connection lost. Trying again.")).to_have_count(0)
            expect(page.locator(".said.draft")).to_have_count(0)
            events = revived.get(f"/api/threads/{visit.id}/events?limit=1000").json()["events"]
            said = [event["content"]["content"] for event in events if event["type"].endswith("_msg")]
            expect(page.locator(".said .text, .said .prose")).to_have_text(said)
            stages = [event["content"]["stage"] for event in events if event["type"] == "stage_changed"]
            expect(page.locator(".activity li.stage .text")).to_have_text(stages)
            visit.check(revived, network=True)


def test_a_round_that_was_recovered_says_so(browser: Browser, tmp_path: Path) -> None:
    with visiting(browser) as visit:
        with page_serving(tmp_path, port=port_to_keep()) as server:
            thread = start(server, "slow", "go")
            visit.open(f"{server.address}/#/threads/{thread}/run")
            expect(visit.page.locator(".span").first).to_be_visible()
            server.signal(signal.SIGKILL)
            server.wait()
        with page_serving(tmp_path, port=server.port) as revived:
            expect(visit.page.locator(".span.recovery")).to_contain_text("interrupted", timeout=2 * PATIENCE)
            visit.check(revived, network=True)
