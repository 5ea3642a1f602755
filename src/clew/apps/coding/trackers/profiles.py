"""Trackers by profile, opened when first needed."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import SecretStr

from clew.apps.coding.ports import Tracker
from clew.apps.coding.trackers.github import GitHub
from clew.apps.coding.trackers.http import TrackerClient
from clew.apps.coding.trackers.jira import Jira
from clew.apps.coding.trackers.none import NoTracker
from clew.domain.errors import Invalid
from clew.domain.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerAccess:
    """What it takes to reach the trackers."""

    github_url: str
    github_repository: str = ""
    github_token: SecretStr | None = None
    jira_url: str | None = None
    jira_user: str = ""
    jira_token: SecretStr | None = None
    seconds: float = 15


class Trackers:
    def __init__(self, profiles: Mapping[str, Profile], access: TrackerAccess) -> None:
        self._profiles = profiles
        self._access = access
        self._outsides: list[TrackerClient] = []
        self._opened: dict[str, Tracker] = {}

    def of(self, profile: str) -> Tracker:
        """Raises Invalid when the profile is not there, or what its tracker takes is not set."""
        if profile not in self._profiles:
            raise Invalid(f"no profile {profile!r}", field="profile")
        name = self._profiles[profile].tracker
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    async def aclose(self) -> None:
        for outside in self._outsides:
            await outside.aclose()

    def _open(self, name: str) -> Tracker:
        access = self._access
        match name:
            case "github":
                headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
                outside = self._outside("GitHub", headers | _bearer(access.github_token))
                return GitHub(outside, url=access.github_url, repository=access.github_repository)
            case "jira":
                if access.jira_url is None:
                    raise Invalid("its tracker is Jira, and trackers.jira_url is not set", field="profile")
                outside = self._outside("Jira", {"Accept": "application/json"} | _jira(access))
                return Jira(outside, url=access.jira_url)
            case _:
                return NoTracker()

    def _outside(self, name: str, headers: Mapping[str, str]) -> TrackerClient:
        outside = TrackerClient(name, headers, seconds=self._access.seconds)
        self._outsides.append(outside)
        return outside


def _jira(access: TrackerAccess) -> dict[str, str]:
    """In the cloud a user and the user's token; on a server of one's own a token alone."""
    if access.jira_token is None or not access.jira_user:
        return _bearer(access.jira_token)
    both = f"{access.jira_user}:{access.jira_token.get_secret_value()}".encode()
    return {"Authorization": f"Basic {b64encode(both).decode()}"}


def _bearer(token: SecretStr | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
