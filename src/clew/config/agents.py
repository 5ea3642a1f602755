"""Settings of agents: the models they ask, the work trees and issue trackers of coding, and what is kept of model calls."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import SecretStr

from clew.config.declare import Section, setting
from clew.config.kinds import (
    absolute_path,
    flag,
    folders,
    http_url,
    line,
    model_name,
    repository,
    seconds,
    secret,
    tesseract_languages,
    variables,
    whole,
)


class ModelCallSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_MODEL_CALLS_"

    record: Annotated[bool, flag()] = setting(False, "Keep each model call with the context it was given.")
    ttl_days: Annotated[int | None, whole(1, 3650)] = setting(None, "Days to keep them; for ever unless set.")
    rows_per_thread: Annotated[int | None, whole(1, 10**6)] = setting(
        None, "How many to keep of a thread, newest."
    )


class ModelAccessSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_MODELS_"

    openai_api_key: Annotated[SecretStr | None, secret()] = setting(
        None, "Key for `api:openai`.", aliases=("OPENAI_API_KEY",)
    )
    openai_base_url: Annotated[str | None, http_url()] = setting(
        None,
        "A server that speaks OpenAI's protocol, in its place; the key is sent there.",
        aliases=("OPENAI_BASE_URL",),
    )
    openai_model: Annotated[str, model_name()] = setting(
        "gpt-5-mini", "Model of `api:openai` where the profile names none."
    )
    anthropic_api_key: Annotated[SecretStr | None, secret()] = setting(
        None, "Key for `api:anthropic`.", aliases=("ANTHROPIC_API_KEY",)
    )
    anthropic_base_url: Annotated[str | None, http_url()] = setting(
        None,
        "A server that speaks Anthropic's protocol, in its place; the key is sent there.",
        aliases=("ANTHROPIC_BASE_URL",),
    )
    anthropic_model: Annotated[str, model_name()] = setting(
        "claude-sonnet-4-5", "Model of `api:anthropic` where the profile names none."
    )
    call_seconds: Annotated[float, seconds(1, 3600)] = setting(120, "Longest answer of a model.")


class AgentSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_AGENTS_"

    folder: Annotated[Path | None, absolute_path()] = setting(
        None, "Python files with agents of your own for the chat workflow."
    )
    processes: Annotated[bool, flag()] = setting(
        False, "Run each task of your own agents in a process with limits of CPU time and memory."
    )


class DocumentSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_DOCUMENTS_"

    ocr_languages: Annotated[str | None, tesseract_languages()] = setting(
        None,
        "Read the text of pictures and scanned pages with Tesseract, in these languages; not unless set.",
    )


class CodingSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_CODING_"

    roots: Annotated[tuple[Path, ...], folders()] = setting(
        [], "Folders under which worktrees may be; without any, callers with a key have none."
    )
    concurrent_workflows: Annotated[int, whole(1, 1000)] = setting(
        10, "Coding workflows that may be active at once, those that wait included."
    )
    review_rounds: Annotated[int, whole(1, 20)] = setting(
        3, "Times a reviewer looks at the work of one plan before it has failed."
    )
    cli_seconds: Annotated[float, seconds(1, 86400)] = setting(1800, "Longest work of a program (`cli:`).")
    environment: Annotated[tuple[str, ...], variables()] = setting(
        [], "Variables a program is given beside those it needs to start, like its API key."
    )


class TrackerSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_TRACKERS_"

    github_url: Annotated[str, http_url()] = setting(
        "https://api.github.com", "GitHub's API, or that of a server of your own."
    )
    github_repository: Annotated[str | None, repository()] = setting(
        None, "The repository meant by an issue that is only a number."
    )
    github_token: Annotated[SecretStr | None, secret()] = setting(
        None, "Token for GitHub; public issues need none.", aliases=("GITHUB_TOKEN",)
    )
    jira_url: Annotated[str | None, http_url()] = setting(
        None, "Where Jira is, like https://example.atlassian.net."
    )
    jira_user: Annotated[str, line()] = setting(
        "", "Whose token it is, in Jira's cloud; a server of your own needs none."
    )
    jira_token: Annotated[SecretStr | None, secret()] = setting(
        None, "Token for Jira.", aliases=("JIRA_API_TOKEN",)
    )
    call_seconds: Annotated[float, seconds(0.1, 300)] = setting(15, "Longest answer of a tracker.")
