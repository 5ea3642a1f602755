"""GitHub issues, by `owner/name#12`; or by `12` where the settings name a repository."""

import re

from clew.apps.coding.plan import Issue
from clew.apps.coding.ports import PullRequest
from clew.apps.coding.trackers.http import TrackerClient, body_in, title_in
from clew.domain.errors import Invalid

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]{0,38})/([A-Za-z0-9._-]{1,100})#([1-9][0-9]{0,9})")
_PAGE = "100"
_MOST_PAGES = 20
_NUMBER = re.compile(r"#?([1-9][0-9]{0,9})")


class GitHub:
    def __init__(self, outside: TrackerClient, *, url: str, repository: str = "") -> None:
        self._outside = outside
        self._url = url.rstrip("/")
        self._repository = repository

    async def fetch(self, issue_id: str, text: str | None) -> Issue:  # noqa: ARG002 - it has the issue's own
        repository, number = self._place(issue_id)
        found = await self._outside.get(f"{self._url}/repos/{repository}/issues/{number}", issue_id)
        return Issue(
            id=issue_id,
            title=title_in(found.get("title")) or issue_id,
            body=body_in(found.get("body")),
            url=title_in(found.get("html_url")),
        )

    async def comment(self, issue_id: str, text: str, *, mark: str) -> str:
        repository, number = self._place(issue_id)
        url = f"{self._url}/repos/{repository}/issues/{number}/comments"
        for page in range(1, _MOST_PAGES + 1):
            found = await self._outside.get_list(url, issue_id, {"per_page": _PAGE, "page": str(page)})
            for one in found:
                if mark in str(one.get("body") or ""):
                    return title_in(one.get("html_url"))
            if len(found) < int(_PAGE):
                break
        made = await self._outside.post(url, issue_id, {"body": f"{text}\n\n{mark}"})
        return title_in(made.get("html_url"))

    async def pull_request(self, issue_id: str, wanted: PullRequest) -> str:
        repository = self.repository(issue_id)
        url = f"{self._url}/repos/{repository}/pulls"
        head = f"{repository.partition('/')[0]}:{wanted.branch}"
        asked = {"head": head, "base": wanted.base, "state": "open"}
        for one in await self._outside.get_list(url, issue_id, asked):
            return title_in(one.get("html_url"))
        body = {"title": wanted.title, "head": wanted.branch, "base": wanted.base, "body": wanted.body}
        made = await self._outside.post(url, issue_id, body)
        return title_in(made.get("html_url"))

    def repository(self, issue_id: str) -> str:
        return self._place(issue_id)[0]

    def _place(self, issue_id: str) -> tuple[str, str]:
        if named := _NAMED.fullmatch(issue_id):
            return f"{named[1]}/{named[2]}", named[3]
        if self._repository and (number := _NUMBER.fullmatch(issue_id)):
            return self._repository, number[1]
        also = " or 12" if self._repository else ""
        raise Invalid(f"expected an issue of GitHub like owner/name#12{also}", field="issueId")
