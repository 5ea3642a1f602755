"""Git repositories that try to run a program: each by another way of git's configuration, its attributes or its folders.

`plant` sets the trap in a work tree. `spring` is a git command that an ordinary git falls for there: it shows that the
trap works at all.
"""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.repositories import git, repository

STATUS = ("status",)
DIFF = ("diff", "HEAD")


@dataclass(frozen=True, slots=True)
class Trap:
    plant: Callable[[Path, Path], None]
    spring: Sequence[str] = DIFF
    given: bytes = b""


def script(folder: Path, marker: Path) -> Path:
    """A program that leaves a mark, and ends."""
    made = folder / "trap.sh"
    made.write_text(f"#!/bin/sh\ntouch {marker}\n")
    made.chmod(0o755)
    return made


def springs(trap: Trap, repo: Path, marker: Path) -> bool:
    """Whether git as it is falls for the trap."""
    # A test of git itself, so the global and system configuration stay away and nothing else does.
    environment = {
        "PATH": os.environ["PATH"],  # noqa: TID251 - a child's
        "HOME": str(repo.parent),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "Ann",
        "GIT_AUTHOR_EMAIL": "ann@example.com",
        "GIT_COMMITTER_NAME": "Ann",
        "GIT_COMMITTER_EMAIL": "ann@example.com",
    }
    subprocess.run(
        ["git", *trap.spring],
        cwd=repo,
        env=environment,
        capture_output=True,
        input=trap.given,
        timeout=60,
        check=False,
    )
    return marker.exists()


def touch(repo: Path) -> None:
    """A tracked file that differs, so that git has to read it."""
    (repo / "README.md").write_text("# Sample\n\nchanged\n")


def _config(repo: Path, *pairs: tuple[str, str]) -> None:
    for name, value in pairs:
        git(repo, "config", "--local", name, value)


def _attributes(repo: Path, line: str = "* filter=x diff=x\n") -> None:
    (repo / ".gitattributes").write_text(line)


def clean_filter(repo: Path, run: Path) -> None:
    _attributes(repo)
    _config(repo, ("filter.x.clean", str(run)))


def smudge_filter(repo: Path, run: Path) -> None:
    _attributes(repo)
    _config(repo, ("filter.x.smudge", str(run)), ("filter.x.required", "true"))


def process_filter(repo: Path, run: Path) -> None:
    _attributes(repo)
    _config(repo, ("filter.x.process", str(run)))


def info_attributes(repo: Path, run: Path) -> None:
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "attributes").write_text("* filter=x\n")
    _config(repo, ("filter.x.clean", str(run)))


def attributes_file(repo: Path, run: Path) -> None:
    (repo / ".git" / "mine").write_text("* filter=x\n")
    _config(repo, ("core.attributesFile", str(repo / ".git" / "mine")), ("filter.x.clean", str(run)))


def include(repo: Path, run: Path) -> None:
    _attributes(repo)
    (repo / "shared.config").write_text(f'[filter "x"]\n\tclean = {run}\n')
    _config(repo, ("include.path", "../shared.config"))


def include_if(repo: Path, run: Path) -> None:
    _attributes(repo)
    (repo / "shared.config").write_text(f'[filter "x"]\n\tclean = {run}\n')
    _config(repo, (f"includeIf.gitdir:{repo}/.path", "../shared.config"))


def worktree_config(repo: Path, run: Path) -> None:
    _attributes(repo)
    _config(repo, ("extensions.worktreeConfig", "true"))
    (repo / ".git" / "config.worktree").write_text(f'[filter "x"]\n\tclean = {run}\n')


def textconv(repo: Path, run: Path) -> None:
    _attributes(repo)
    _config(repo, ("diff.x.textconv", str(run)))


def diff_command(repo: Path, run: Path) -> None:
    _attributes(repo)
    _config(repo, ("diff.x.command", str(run)))


def external_diff(repo: Path, run: Path) -> None:
    _config(repo, ("diff.external", str(run)))


def fsmonitor(repo: Path, run: Path) -> None:
    _config(repo, ("core.fsmonitor", str(run)))


def hooks_path(repo: Path, run: Path) -> None:
    hooks = repo / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "reference-transaction", "post-checkout", "pre-commit"):
        (hooks / name).write_text(run.read_text())
        (hooks / name).chmod(0o755)
    _config(repo, ("core.hooksPath", str(hooks)))


def hooks(repo: Path, run: Path) -> None:
    for name in ("post-index-change", "reference-transaction", "post-checkout", "pre-commit"):
        (repo / ".git" / "hooks" / name).write_text(run.read_text())
        (repo / ".git" / "hooks" / name).chmod(0o755)


def _lose_blob(repo: Path) -> None:
    """The committed README, as in a partial clone that has not fetched it yet."""
    blob = git(repo, "rev-parse", "HEAD:README.md").strip()
    (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()


def ssh_command(repo: Path, run: Path) -> None:
    _config(
        repo,
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", "ssh://host.invalid/x"),
        ("remote.origin.promisor", "true"),
        ("core.sshCommand", str(run)),
        ("protocol.ssh.allow", "always"),
    )
    _lose_blob(repo)


def upload_pack(repo: Path, run: Path) -> None:
    repository(repo.parent / f"{repo.name}-origin")
    _config(
        repo,
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", str(repo.parent / f"{repo.name}-origin")),
        ("remote.origin.promisor", "true"),
        ("remote.origin.uploadpack", str(run)),
        ("protocol.file.allow", "always"),
    )
    _lose_blob(repo)


def external_transport(repo: Path, run: Path) -> None:
    _config(
        repo,
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", f"ext::{run}"),
        ("remote.origin.promisor", "true"),
        ("protocol.ext.allow", "always"),
    )
    _lose_blob(repo)


def instead_of(repo: Path, run: Path) -> None:
    _config(
        repo,
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", "https://host.invalid/x"),
        ("remote.origin.promisor", "true"),
        (f"url.ext::{run} .insteadOf", "https://host.invalid/"),
        ("protocol.ext.allow", "always"),
    )
    _lose_blob(repo)


def git_proxy(repo: Path, run: Path) -> None:
    _config(
        repo,
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", "git://host.invalid/x"),
        ("remote.origin.promisor", "true"),
        ("core.gitProxy", str(run)),
        ("protocol.git.allow", "always"),
    )
    _lose_blob(repo)


def gpg_program(repo: Path, run: Path) -> None:
    _config(repo, ("gpg.program", str(run)), ("commit.gpgSign", "true"), ("log.showSignature", "true"))


def pager_and_editor(repo: Path, run: Path) -> None:
    _config(
        repo, ("core.pager", str(run)), ("core.editor", str(run)), ("sequence.editor", str(run)),
        ("pager.diff", str(run)), ("pager.ls-files", str(run)), ("pager.rev-parse", str(run)),
    )  # fmt: skip


def aliases(repo: Path, run: Path) -> None:
    _config(repo, *((f"alias.{name}", f"!{run}") for name in ("x", "diff", "ls-files", "rev-parse")))


def credential_helper(repo: Path, run: Path) -> None:
    _config(repo, ("credential.helper", f"!{run}"), ("core.askPass", str(run)))


def submodule(repo: Path, run: Path) -> None:
    inner = repository(repo / "inner")
    clean_filter(inner, run)
    fsmonitor(inner, run)
    git(repo, "-c", "advice.addEmbeddedRepo=false", "add", "inner")
    git(repo, "commit", "--quiet", "-m", "Inner")
    (repo / ".gitmodules").write_text(
        f'[submodule "inner"]\n\tpath = inner\n\turl = ext::{run}\n\tignore = none\n'
    )
    _config(repo, ("submodule.inner.update", f"!{run}"), ("diff.ignoreSubmodules", "none"))
    touch(inner)


def nested_repository(repo: Path, run: Path) -> None:
    inner = repository(repo / "nested")
    clean_filter(inner, run)
    fsmonitor(inner, run)
    touch(inner)


def git_file(repo: Path, run: Path) -> None:
    """`.git` is a file that names a folder inside of the work tree."""
    clean_filter(repo, run)
    fsmonitor(repo, run)
    (repo / ".git").rename(repo / "innocent")
    (repo / ".git").write_text("gitdir: innocent\n")


def common_dir(repo: Path, run: Path) -> None:
    """The configuration is where `commondir` says."""
    common = repository(repo.parent / f"{repo.name}-common")
    clean_filter(common, run)
    fsmonitor(common, run)
    (repo / ".git" / "commondir").write_text(f"{common / '.git'}\n")
    _attributes(repo)


def config_link(repo: Path, run: Path) -> None:
    clean_filter(repo, run)
    (repo / ".git" / "config").rename(repo / "elsewhere")
    (repo / ".git" / "config").symlink_to(repo / "elsewhere")


def global_configuration(repo: Path, run: Path) -> None:
    """Not the repository's: what the user's own settings name is not run either."""
    _attributes(repo)
    (repo.parent / ".gitconfig").write_text(
        f'[core]\n\tfsmonitor = {run}\n[filter "x"]\n\tclean = {run}\n\trequired\n[safe]\n\tdirectory = *\n'
    )


TRAPS: Mapping[str, Trap] = {
    "clean filter": Trap(clean_filter),
    "smudge filter": Trap(smudge_filter, ("checkout", "--", "README.md")),
    "process filter": Trap(process_filter),
    "info/attributes": Trap(info_attributes),
    "core.attributesFile": Trap(attributes_file),
    "include.path": Trap(include),
    "includeIf": Trap(include_if),
    "config.worktree": Trap(worktree_config),
    "textconv": Trap(textconv),
    "diff driver": Trap(diff_command),
    "diff.external": Trap(external_diff),
    "core.fsmonitor": Trap(fsmonitor, STATUS),
    "core.hooksPath": Trap(hooks_path, ("commit", "--allow-empty", "-m", "hooked")),
    "hooks": Trap(hooks, ("commit", "--allow-empty", "-m", "hooked")),
    "lazy fetch, core.sshCommand": Trap(ssh_command),
    "lazy fetch, uploadpack": Trap(upload_pack),
    "lazy fetch, ext::": Trap(external_transport),
    "lazy fetch, insteadOf": Trap(instead_of),
    "lazy fetch, core.gitProxy": Trap(git_proxy),
    "gpg.program": Trap(gpg_program, ("commit", "--allow-empty", "-m", "signed")),
    "pager and editor": Trap(pager_and_editor, ("commit", "--allow-empty")),
    "aliases": Trap(aliases, ("x",)),
    "credential.helper": Trap(
        credential_helper, ("credential", "fill"), b"protocol=https\nhost=host.invalid\n\n"
    ),
    "submodule": Trap(submodule, STATUS),
    "nested repository": Trap(nested_repository, ("-C", "nested", "status")),
    ".git is a file": Trap(git_file),
    "commondir": Trap(common_dir),
    "config is a link": Trap(config_link),
    "the user's own configuration": Trap(global_configuration),
}
