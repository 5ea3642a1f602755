"""Jira issues, by their key: `ABC-12`."""

import re

from clew.apps.coding.plan import Issue
from clew.apps.coding.trackers.http import TrackerClient, body_in, title_in
from clew.domain.errors import Invalid

_KEY = re.compile(r"[A-Z][A-Z0-9_]{0,49}-[1-9][0-9]{0,9}")


class Jira:
    def __init__(self, outside: TrackerClient, *, url: str) -> None:
        self._outside = outside
        self._url = url.rstrip("/")

    async def fetch(self, issue_id: str, text: str | None) -> Issue:  # noqa: ARG002 - it has the issue's own
        if not _KEY.fullmatch(issue_id):
            raise Invalid("expected the key of an issue in Jira like ABC-12", field="issueId")
        # Version 2, on servers and in the cloud: descriptions are text there, not a tree.
        address = f"{self._url}/rest/api/2/issue/{issue_id}?fields=summary,description"
        fields = (await self._outside.get(address, issue_id)).get("fields")
        known = fields if isinstance(fields, dict) else {}
        return Issue(
            id=issue_id,
            title=title_in(known.get("summary")) or issue_id,
            body=body_in(known.get("description")),
            url=f"{self._url}/browse/{issue_id}",
        )
