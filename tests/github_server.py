"""GitHub's API as far as coding workflows meet it: an issue, its comments, and pull requests, on loopback."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.providers import Provider, Reply, Sent, provider

REPOSITORY = "acme/shop"
PLACE = f"/repos/{REPOSITORY}"


@dataclass(slots=True)
class GitHubServer:
    provider: Provider
    token: str
    comments: list[dict[str, Any]] = field(default_factory=list)
    pulls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.provider.url

    def answer(self, sent: Sent) -> Reply:
        if sent.headers.get("authorization") != f"Bearer {self.token}":
            return Reply({"message": "Bad credentials"}, 401)
        match sent.path.removeprefix(PLACE):
            case "/issues/7":
                return Reply({"title": "Carts crash", "body": "- mend it\n", "html_url": f"{self.url}/7"})
            case "/issues/7/comments" if sent.body is None:
                size, page = int(sent.query["per_page"]), int(sent.query["page"])
                return Reply(self.comments[(page - 1) * size : page * size])
            case "/issues/7/comments":
                self.comments.append(sent.body | {"html_url": f"{self.url}/7#{len(self.comments)}"})
                return Reply(self.comments[-1], 201)
            case "/pulls" if sent.body is None:
                owner = REPOSITORY.partition("/")[0]
                heads = [one for one in self.pulls if f"{owner}:{one['head']}" == sent.query["head"]]
                return Reply(heads)
            case "/pulls":
                if any(one["head"] == sent.body["head"] for one in self.pulls):
                    return Reply({"message": "A pull request already exists"}, 422)
                self.pulls.append(sent.body | {"html_url": f"{self.url}/pull/{len(self.pulls) + 8}"})
                return Reply(self.pulls[-1], 201)
            case _:
                return Reply({"message": "Not Found"}, 404)


@contextmanager
def github_server(token: str) -> Iterator[GitHubServer]:
    with provider() as opened:
        known = GitHubServer(opened, token)
        opened.answer = known.answer
        yield known
