"""`clew run`, `chat`, `pending`, `approve`, `reject`, `answer` and the live commands of `clew threads`, declared."""

from pathlib import Path
from typing import Annotated

import typer

from clew.cli.options import AsJson, Config, Follow, Key, Tenant, ThreadId, Url, User, Yes

Call = Annotated[
    str | None, typer.Option(help="The call to answer, by its id, if the thread waits for several.")
]
Output = Annotated[Path, typer.Option(help="Folder for documents that the thread makes.", metavar="FOLDER")]
Files = Annotated[
    list[Path] | None, typer.Option("--file", help="A file to send; repeat for several.", metavar="PATH")
]
Profile = Annotated[str | None, typer.Option(help="A profile of the settings.")]
Thread = Annotated[str | None, typer.Option(help="Continue this thread, by its id or the beginning of it.")]


def add_to(app: typer.Typer, threads: typer.Typer) -> None:
    app.command("run")(run)
    app.command("chat")(chat)
    app.command("pending")(pending)
    app.command("approve")(approve)
    app.command("reject")(reject)
    app.command("answer")(answer)
    threads.command("search")(search)
    threads.command("tail")(tail)
    threads.command("stop")(stop)
    threads.command("resume")(resume)


def run(
    graph: Annotated[str | None, typer.Argument(help="The graph; `clew graphs` lists them.")] = None,
    prompt: Annotated[str | None, typer.Option(help="What the user says.")] = None,
    input: Annotated[
        str | None, typer.Option(help="The graph's input as JSON, or @FILE with it.", metavar="JSON")
    ] = None,
    file: Files = None,
    thread: Thread = None,
    profile: Profile = None,
    name: Annotated[str | None, typer.Option(help="A name for the thread.")] = None,
    issue: Annotated[str | None, typer.Option(help="The issue of a coding workflow.")] = None,
    worktree: Annotated[
        Path | None, typer.Option(help="The git work tree of a coding workflow.", metavar="PATH")
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(help="Another field of the start; repeat for several.", metavar="NAME=VALUE"),
    ] = None,
    output: Output = Path(),
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Ask nothing: exit with 4 if the thread waits.")
    ] = False,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    user: User = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Start a thread and follow it to its end: stages, text, questions, documents."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.running import StartRequest, run_graph  # noqa: PLC0415 - heavy

    more = [*(field or ())]
    if issue is not None:
        more.append(f"issueId={issue}")
    if worktree is not None:
        more.append(f"worktreePath={worktree.absolute()}")
    run_graph(
        StartRequest(
            graph=graph,
            prompt=prompt,
            input=input,
            files=tuple(file or ()),
            profile=profile,
            name=name,
            fields=tuple(more),
        ),
        thread=thread,
        output=output,
        target=Target(url=url, key=key, config=config, tenant=tenant, user=user),
        asks=not no_input,
        as_json=as_json,
    )


def chat(
    graph: Annotated[str | None, typer.Argument(help="The graph; default: chat.")] = None,
    thread: Thread = None,
    file: Files = None,
    profile: Profile = None,
    output: Output = Path(),
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    user: User = "",
    config: Config = None,
) -> None:
    """Talk to a graph in the terminal, with files. `--thread` continues a conversation."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.running import StartRequest  # noqa: PLC0415 - heavy
    from clew.cli.running import chat as talk  # noqa: PLC0415 - heavy

    talk(
        StartRequest(graph=graph, profile=profile, files=tuple(file or ())),
        thread=thread,
        output=output,
        target=Target(url=url, key=key, config=config, tenant=tenant, user=user),
    )


def pending(
    thread_id: Annotated[str | None, typer.Argument(help="Only this thread.")] = None,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show what threads wait for: approvals, questions, calls in doubt."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.thread_actions import pending  # noqa: PLC0415 - heavy

    pending(thread_id, target=Target(url=url, key=key, config=config, tenant=tenant), as_json=as_json)


def approve(
    thread_id: ThreadId,
    call: Call = None,
    feedback: Annotated[str, typer.Option(help="A comment for the thread.")] = "",
    plan: Annotated[
        Path | None, typer.Option(help="A file with the plan to carry out in place of the one that is shown.")
    ] = None,
    follow: Follow = False,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Approve what a thread waits for."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.thread_actions import approve  # noqa: PLC0415 - heavy

    target = Target(url=url, key=key, config=config, tenant=tenant)
    approve(thread_id, call=call, feedback=feedback, plan=plan, follow=follow, target=target, as_json=as_json)


def reject(
    thread_id: ThreadId,
    feedback: Annotated[str, typer.Option(help="Why not; the thread gets it.")],
    call: Call = None,
    follow: Follow = False,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Reject what a thread waits for."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.thread_actions import reject  # noqa: PLC0415 - heavy

    target = Target(url=url, key=key, config=config, tenant=tenant)
    reject(thread_id, call=call, feedback=feedback, follow=follow, target=target, as_json=as_json)


def answer(
    thread_id: ThreadId,
    text: Annotated[str | None, typer.Argument(help="The answer: JSON, or text.")] = None,
    call: Call = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="For a call in doubt: it did not happen, run it again.")
    ] = False,
    follow: Follow = False,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question of a thread."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.thread_actions import answer  # noqa: PLC0415 - heavy

    target = Target(url=url, key=key, config=config, tenant=tenant)
    answer(thread_id, text, call=call, retry=retry, follow=follow, target=target, as_json=as_json)


def search(
    words: Annotated[list[str], typer.Argument(help="Words of one message, or of the name.")],
    limit: Annotated[int, typer.Option(help="How many threads at most.", min=1, max=100)] = 20,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Find threads by the words of their messages."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.thread_actions import search  # noqa: PLC0415 - heavy

    target = Target(url=url, key=key, config=config, tenant=tenant)
    search(" ".join(words), limit=limit, target=target, as_json=as_json)


def tail(
    thread_id: ThreadId,
    lines: Annotated[int, typer.Option(help="How many of its newest events come first.", min=0)] = 20,
    forever: Annotated[bool, typer.Option("--forever", help="Stay when the round has ended.")] = False,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Follow a thread that a server runs, to the end of its round."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.running import tail  # noqa: PLC0415 - heavy

    target = Target(url=url, key=key, config=config, tenant=tenant)
    tail(thread_id, lines=lines, forever=forever, target=target, as_json=as_json)


def stop(
    thread_id: ThreadId,
    yes: Yes = False,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Stop a thread's round for good."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.thread_actions import stop  # noqa: PLC0415 - heavy

    stop(thread_id, yes=yes, target=Target(url=url, key=key, config=config, tenant=tenant), as_json=as_json)


def resume(
    thread_id: ThreadId,
    follow: Follow = False,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Resume a failed round where it stood."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.thread_actions import resume  # noqa: PLC0415 - heavy

    target = Target(url=url, key=key, config=config, tenant=tenant)
    resume(thread_id, follow=follow, target=target, as_json=as_json)
