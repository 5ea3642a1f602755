"""Issues over real HTTP: found, not found, away, not let in; and no token where it does not belong."""

import socket
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from pydantic import SecretStr

from clew.apps.coding.ports import PullRequest
from clew.apps.coding.trackers.profiles import TrackerAccess, Trackers
from clew.domain.errors import Invalid, NotFound, Permanent, Transient
from clew.domain.profile import Profile
from tests.github_server import github_server
from tests.providers import Provider, Reply, Sent, provider

pytestmark = pytest.mark.anyio

TOKEN = "a-very-secret-token"
PROFILES = {name: Profile(name=name, driver="offline", tracker=name) for name in ("none", "github", "jira")}
GITHUB = {
    "title": "Carts  crash",
    "body": "When empty.\r\n",
    "html_url": "https://github.com/acme/shop/issues/7",
}
JIRA = {"key": "SHOP-7", "fields": {"summary": "Carts crash", "description": "When empty."}}
ISSUES = {"github": ("acme/shop#7", GITHUB), "jira": ("SHOP-7", JIRA)}


@pytest.fixture
def tracker() -> Iterator[Provider]:
    def answer(sent: Sent) -> Reply:
        return Reply(JIRA if "/rest/" in sent.path else GITHUB)

    with provider(answer) as known:
        yield known


def access(url: str, **more: Any) -> TrackerAccess:
    return TrackerAccess(
        **{
            "github_url": url,
            "github_token": SecretStr(TOKEN),
            "jira_url": f"{url}/jira/",
            "jira_user": "ann@example.com",
            "jira_token": SecretStr(TOKEN),
            **more,
        }
    )


@pytest.fixture
async def trackers(tracker: Provider) -> AsyncIterator[Trackers]:
    async with aclosing(Trackers(PROFILES, access(tracker.url))) as opened:
        yield opened


async def test_without_a_tracker_the_request_is_the_issue(trackers: Trackers) -> None:
    issue = await trackers.of("none").fetch("X-1", "Title\n\nText")
    assert (issue.id, issue.title, issue.body) == ("X-1", "Title", "Text")
    with pytest.raises(Invalid) as refused:
        await trackers.of("none").fetch("X-1", None)
    assert refused.value.field == "prompt"


async def test_github_is_asked_with_its_token(trackers: Trackers, tracker: Provider) -> None:
    issue = await trackers.of("github").fetch("acme/shop#7", None)
    assert (issue.title, issue.body) == ("Carts crash", "When empty.")
    assert issue.url == "https://github.com/acme/shop/issues/7"
    (sent,) = tracker.requests
    assert sent.path == "/repos/acme/shop/issues/7"
    assert sent.headers["authorization"] == f"Bearer {TOKEN}"


async def test_a_number_is_one_of_the_repository_in_the_settings(tracker: Provider) -> None:
    async with aclosing(Trackers(PROFILES, access(tracker.url, github_repository="acme/shop"))) as known:
        await known.of("github").fetch("#12", None)
    assert tracker.requests[0].path == "/repos/acme/shop/issues/12"


async def test_jira_is_asked_with_user_and_token_or_the_token_alone(tracker: Provider) -> None:
    async with aclosing(Trackers(PROFILES, access(tracker.url))) as known:
        issue = await known.of("jira").fetch("SHOP-7", None)
    assert (issue.title, issue.body) == ("Carts crash", "When empty.")
    assert issue.url == f"{tracker.url}/jira/browse/SHOP-7"
    async with aclosing(Trackers(PROFILES, access(tracker.url, jira_user=""))) as known:
        await known.of("jira").fetch("SHOP-7", None)
    first, second = tracker.requests
    assert first.path == "/jira/rest/api/2/issue/SHOP-7"
    assert first.query == {"fields": "summary,description"}
    both = b64encode(f"ann@example.com:{TOKEN}".encode()).decode()
    assert first.headers["authorization"] == f"Basic {both}"
    assert second.headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("name", "issue_id"),
    [
        *(
            ("github", one)
            for one in ("7", "#7", "shop#7", "acme/shop", "acme/shop#0", "acme/../x#1", "SHOP-7")
        ),
        *(("jira", one) for one in ("7", "shop-7", "SHOP-", "SHOP-0", "SHOP-7/../x", "acme/shop#7")),
    ],
)
async def test_what_is_no_id_there_is_refused_before_anybody_is_asked(
    trackers: Trackers, tracker: Provider, name: str, issue_id: str
) -> None:
    with pytest.raises(Invalid) as refused:
        await trackers.of(name).fetch(issue_id, None)
    assert refused.value.field == "issueId"
    assert tracker.requests == []


async def test_a_tracker_that_is_not_set_up_is_said_to_be_so() -> None:
    trackers = Trackers(PROFILES, access("http://127.0.0.1:1", jira_url=None))
    with pytest.raises(Invalid, match=r"trackers\.jira_url") as refused:
        trackers.of("jira")
    assert refused.value.field == "profile"


@pytest.mark.parametrize("name", ["github", "jira"])
@pytest.mark.parametrize(
    ("reply", "kind", "error_class"),
    [
        (Reply({}, 404), NotFound, None),
        (Reply({}, 410), NotFound, None),
        (Reply({"message": TOKEN}, 401), Permanent, "auth"),
        (Reply({}, 403), Permanent, "auth"),
        (Reply({}, 403, {"x-ratelimit-remaining": "0", "retry-after": "7"}), Transient, "rate_limit"),
        (Reply({}, 429, {"retry-after": "7"}), Transient, "rate_limit"),
        (Reply({}, 500), Transient, "network_timeout"),
        (Reply({}, 301, {"location": "http://127.0.0.1:1/"}), Permanent, "validation"),
        (Reply([1]), Permanent, "validation"),
    ],
)
async def test_what_goes_wrong_has_its_class_and_no_token(
    trackers: Trackers,
    tracker: Provider,
    name: str,
    reply: Reply,
    kind: type[Exception],
    error_class: str | None,
) -> None:
    tracker.answer = lambda _: reply
    issue_id = ISSUES[name][0]
    with pytest.raises(kind) as failed:
        await trackers.of(name).fetch(issue_id, None)
    assert TOKEN not in str(failed.value)
    assert getattr(failed.value, "error_class", None) == error_class
    if kind is NotFound:
        assert issue_id in str(failed.value)
    if error_class == "rate_limit":
        assert getattr(failed.value, "retry_after", None) == 7


@pytest.mark.accept("001-36")
async def test_a_tracker_that_is_away_or_slow_is_given_up_on(tracker: Provider) -> None:
    async with aclosing(Trackers(PROFILES, access("http://127.0.0.1:1"))) as known:
        with pytest.raises(Transient, match="cannot be reached"):
            await known.of("github").fetch("acme/shop#7", None)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes a call and says nothing
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with aclosing(Trackers(PROFILES, access(url, seconds=0.3))) as known:
            with pytest.raises(Transient, match="in time"):
                await known.of("jira").fetch("SHOP-7", None)


async def test_a_long_issue_is_cut_and_an_odd_one_is_taken_as_far_as_it_goes(
    trackers: Trackers, tracker: Provider
) -> None:
    tracker.answer = lambda _: Reply({"title": "x" * 10_000, "body": "\ud800y" * 100_000})
    issue = await trackers.of("github").fetch("acme/shop#7", None)
    assert len(issue.title) <= 500
    assert len(issue.body) <= 50_000
    issue.body.encode()  # no half of a pair is left
    tracker.answer = lambda _: Reply({"title": None, "body": 3})
    issue = await trackers.of("github").fetch("acme/shop#7", None)
    assert (issue.title, issue.body) == ("acme/shop#7", "")


async def test_github_gets_a_comment_once_however_many_there_are() -> None:
    with github_server(TOKEN) as server:
        server.comments += [{"body": f"comment {number}", "html_url": "x"} for number in range(150)]
        async with aclosing(Trackers(PROFILES, access(server.url))) as opened:
            tracker = opened.of("github")
            first = await tracker.comment("acme/shop#7", "Done.", mark="Clew workflow 1, round 1")
            again = await tracker.comment("acme/shop#7", "Done.", mark="Clew workflow 1, round 1")
            other = await tracker.comment("acme/shop#7", "More.", mark="Clew workflow 1, round 2")
        assert first == again != other
        assert [one["body"] for one in server.comments[150:]] == [
            "Done.\n\nClew workflow 1, round 1",
            "More.\n\nClew workflow 1, round 2",
        ]


async def test_github_opens_one_pull_request_for_a_branch() -> None:
    wanted = PullRequest(branch="clew/7", base="main", title="Mend carts", body="They crash.")
    with github_server(TOKEN) as server:
        async with aclosing(Trackers(PROFILES, access(server.url))) as opened:
            tracker = opened.of("github")
            assert tracker.repository("acme/shop#7") == "acme/shop"
            first = await tracker.pull_request("acme/shop#7", wanted)
            assert await tracker.pull_request("acme/shop#7", wanted) == first
        (pull,) = server.pulls
        assert {name: pull[name] for name in ("head", "base", "title", "body")} == {
            "head": "clew/7",
            "base": "main",
            "title": "Mend carts",
            "body": "They crash.",
        }


async def test_jira_gets_a_comment_once(tracker: Provider) -> None:
    said: list[Any] = []

    def answer(sent: Sent) -> Reply:
        assert sent.path == "/jira/rest/api/2/issue/SHOP-7/comment"
        if sent.body is None:
            return Reply({"comments": said})
        said.append(sent.body | {"id": str(10_000 + len(said))})
        return Reply(said[-1], 201)

    tracker.answer = answer
    async with aclosing(Trackers(PROFILES, access(tracker.url))) as opened:
        first = await opened.of("jira").comment("SHOP-7", "Done.", mark="Clew workflow 1, round 1")
        assert await opened.of("jira").comment("SHOP-7", "Done.", mark="Clew workflow 1, round 1") == first
        with pytest.raises(Permanent, match="no pull requests"):
            await opened.of("jira").pull_request(
                "SHOP-7", PullRequest(branch="b", base="main", title="t", body="")
            )
    assert first == f"{tracker.url}/jira/browse/SHOP-7?focusedCommentId=10000"
    assert [one["body"] for one in said] == ["Done.\n\nClew workflow 1, round 1"]
