"""No tracker: the issue is what the request says."""

from clew.apps.coding.plan import Issue, issue_of
from clew.apps.coding.ports import PullRequest
from clew.domain.errors import Invalid, Permanent
from clew.domain.retry import ErrorClass


class NoTracker:
    async def fetch(self, issue_id: str, text: str | None) -> Issue:
        if text is None:
            raise Invalid(
                "the profile has no tracker, so the prompt must be the issue's text", field="prompt"
            )
        return issue_of(issue_id, text)

    async def comment(self, issue_id: str, text: str, *, mark: str) -> str:  # noqa: ARG002 - there is nowhere to say it
        raise Permanent("the profile has no tracker to comment in", ErrorClass.VALIDATION)

    async def pull_request(self, issue_id: str, wanted: PullRequest) -> str:  # noqa: ARG002 - there is no place for it
        raise Permanent("the profile has no tracker with pull requests", ErrorClass.VALIDATION)

    def repository(self, issue_id: str) -> str:  # noqa: ARG002 - there is none
        return ""
