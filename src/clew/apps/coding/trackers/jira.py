"""Jira issues, by their key: `ABC-12`."""

import re

from clew.apps.coding.plan import Issue
from clew.apps.coding.ports import PullRequest
from clew.apps.coding.trackers.http import TrackerClient, body_in, title_in
from clew.domain.errors import Invalid, Permanent
from clew.domain.retry import ErrorClass

_KEY = re.compile(r"[A-Z][A-Z0-9_]{0,49}-[1-9][0-9]{0,9}")


class Jira:
    def __init__(self, outside: TrackerClient, *, url: str) -> None:
        self._outside = outside
        self._url = url.rstrip("/")

    async def fetch(self, issue_id: str, text: str | None) -> Issue:  # noqa: ARG002 - it has the issue's own
        # Version 2, on servers and in the cloud: descriptions are text there, not a tree.
        address = f"{self._issue(issue_id)}?fields=summary,description"
        fields = (await self._outside.get(address, issue_id)).get("fields")
        known = fields if isinstance(fields, dict) else {}
        return Issue(
            id=issue_id,
            title=title_in(known.get("summary")) or issue_id,
            body=body_in(known.get("description")),
            url=f"{self._url}/browse/{issue_id}",
        )

    async def comment(self, issue_id: str, text: str, *, mark: str) -> str:
        url = f"{self._issue(issue_id)}/comment"
        found = (await self._outside.get(f"{url}?orderBy=-created&maxResults=100", issue_id)).get("comments")
        said = found if isinstance(found, list) else []
        known = next(
            (one for one in said if isinstance(one, dict) and mark in str(one.get("body") or "")), None
        )
        made = known or await self._outside.post(url, issue_id, {"body": f"{text}\n\n{mark}"})
        return f"{self._url}/browse/{issue_id}?focusedCommentId={title_in(made.get('id'))}"

    async def pull_request(self, issue_id: str, wanted: PullRequest) -> str:  # noqa: ARG002 - there are none
        raise Permanent("Jira opens no pull requests", ErrorClass.VALIDATION)

    def repository(self, issue_id: str) -> str:  # noqa: ARG002 - there is none
        return ""

    def _issue(self, issue_id: str) -> str:
        if not _KEY.fullmatch(issue_id):
            raise Invalid("expected the key of an issue in Jira like ABC-12", field="issueId")
        return f"{self._url}/rest/api/2/issue/{issue_id}"
