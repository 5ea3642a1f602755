"""No tracker: the issue is what the request says."""

from clew.apps.coding.plan import Issue, issue_of
from clew.domain.errors import Invalid


class NoTracker:
    async def fetch(self, issue_id: str, text: str | None) -> Issue:
        if text is None:
            raise Invalid(
                "the profile has no tracker, so the prompt must be the issue's text", field="prompt"
            )
        return issue_of(issue_id, text)
