"""Publishing of reviewed changes: what a person is asked, then a commit on a branch, a push, a pull request, a comment.

Each step finds out whether it was done before, so a step that was killed is carried out once.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from clew.apps.coding.checks import CheckResult
from clew.apps.coding.plan import Issue
from clew.apps.coding.ports import Commit, Commits, PullRequest, Tracker
from clew.apps.coding.record import Approval
from clew.domain.errors import Invalid, NotFound, Permanent
from clew.domain.profile import Publication
from clew.domain.retry import ErrorClass
from clew.domain.thread import Json
from clew.failpoints import failpoint

# The key of the question by which the record finds its answer.
ASKED = "publish"
GATE = "publish_approval_node"
NODE = "publish_node"
_SHOWN_DIFF = 60_000
_TITLE = 200

# The step that was done, and a line about it.
Tell = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    wanted: Publication
    commits: Commits
    tracker: Tracker
    # For pushing, if it belongs to the remote.
    token: str = ""

    async def question(
        self, issue: Issue, base: str, summary: str, tests: CheckResult | None
    ) -> dict[str, Json]:
        """What a person approves: all of it is carried out as it is shown here."""
        wanted = self.wanted
        tree, patch = await self.commits.tree(base)
        taken = await self.commits.remote_branches(wanted.remote, self.token) if wanted.remote else ()
        branch = await self.commits.free_branch(issue.id, base, taken=taken)
        title = " ".join(f"{issue.id}: {issue.title}".split())[:_TITLE]
        publish: dict[str, Json] = {
            "branch": branch,
            "message": f"{title}\n\n{summary}\n" if summary else f"{title}\n",
            "author": wanted.author,
            "base": base,
            "tree": tree,
        }
        steps = [f"Commit to {branch}"]
        if wanted.remote:
            publish["remote"] = wanted.remote
            steps.append(f"push to {wanted.remote}")
        if wanted.pull_request:
            publish["pull_request"] = {
                "repository": self.tracker.repository(issue.id),
                "base": wanted.base,
                "title": title,
            }
            steps.append(f"open a pull request for {wanted.base}")
        if wanted.comment:
            publish["comment"] = True
            steps.append(f"comment on {issue.id}")
        asked: dict[str, Json] = {
            "kind": "approval",
            "message": f"{', '.join(steps)}?",
            ASKED: publish,
            "files": list[Json](patch.files),
            "diff": patch.text[:_SHOWN_DIFF],
        }
        if len(patch.text) > _SHOWN_DIFF or patch.is_cut:
            asked["diff is cut"] = True
        if tests is not None:
            asked["tests"] = tests.line
        return asked

    async def publish(
        self, issue: Issue, approval: Approval, *, summary: str, mark: str, tell: Tell
    ) -> dict[str, Json]:
        """Carry out what was approved. Raises Transient for what may pass, Permanent for what does not."""
        shown = approval.shown[ASKED]
        given: Mapping[str, Json] = shown if isinstance(shown, dict) else {}
        branch, message = str(given["branch"]), str(given["message"])
        what = Commit(
            base=str(given["base"]),
            tree=str(given["tree"]),
            branch=branch,
            message=message,
            author=str(given["author"]),
            at=approval.at,
        )
        commit = await self.commits.commit(what)
        failpoint("publish_committed")
        tell("committed", f"Committed {commit[:12]} on {branch}")
        done: dict[str, Json] = {"branch": branch, "commit": commit}
        if remote := str(given.get("remote") or ""):
            await self.commits.push(remote, self.token, commit=commit, branch=branch)
            failpoint("publish_pushed")
            tell("pushed", f"Pushed {branch}")
            done["remote"] = remote
        pull = given.get("pull_request")
        if isinstance(pull, dict):
            body = f"{summary}\n\n{issue.url or issue.id}\n\n{mark}"
            wanted = PullRequest(branch=branch, base=str(pull["base"]), title=str(pull["title"]), body=body)
            done["pull_request"] = await _told(self.tracker.pull_request(issue.id, wanted))
            failpoint("publish_pull_request_opened")
            tell("pull_request", f"Pull request: {done['pull_request']}")
        if given.get("comment") is True:
            done["comment"] = await _told(self.tracker.comment(issue.id, said(done, summary), mark=mark))
            failpoint("publish_commented")
            tell("commented", f"Comment: {done['comment']}")
        return done


def said(done: Mapping[str, Json], summary: str) -> str:
    """What was done, for the chat and for the issue."""
    lines = [summary, f"Branch `{done['branch']}`, commit {str(done['commit'])[:12]}."]
    if done.get("pull_request"):
        lines.append(f"Pull request: {done['pull_request']}")
    return "\n\n".join(line for line in lines if line)


def token_for(remote: str, github_url: str, token: str) -> str:
    """The token of the GitHub API, if the remote is of the same GitHub."""
    address, api = urlsplit(remote), urlsplit(github_url)
    of_api = "github.com" if api.hostname == "api.github.com" else api.netloc
    is_secret = address.scheme == "https" or address.hostname in ("localhost", "127.0.0.1", "::1")
    return token if is_secret and address.netloc == of_api else ""


async def _told(call: Awaitable[str]) -> str:
    try:
        return await call
    except (NotFound, Invalid) as exc:
        raise Permanent(str(exc), ErrorClass.NOT_FOUND) from exc
