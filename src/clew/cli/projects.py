"""`clew new` and `clew completion`: a project to begin with, and completion scripts of shells."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from typer import completion

from clew.cli.output import say, say_json
from clew.domain.errors import Invalid

SHELLS = ("bash", "zsh", "fish")
# Through it a shell asks the command for completions; its name follows from that of the command.
VARIABLE = "_CLEW_COMPLETE"
# Files that a package cannot carry under their own names.
_NAMES = {"gitignore": ".gitignore", "env.example": ".env.example", "agent.py.txt": "agent.py"}


def create_project(folder: Path, *, as_json: bool) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise Invalid(f"{folder} exists and is not empty")
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for template in sorted(_templates(), key=lambda one: one.name):
            path = folder / _NAMES.get(template.name, template.name)
            text = template.read_text("utf-8").replace("{{name}}", folder.absolute().name)
            path.write_text(text, "utf-8")
            written.append(path)
    except OSError as exc:
        raise Invalid(f"cannot write {folder}: {exc.strerror}") from exc
    if as_json:
        say_json({"path": str(folder), "files": [path.name for path in written]})
        return
    say(f"{folder} has {', '.join(path.name for path in written)}.")
    say(f"Next: cd {folder} && clew run refund --input '{{\"amount\": 42}}'")
    say("      clew serve, then open the address it prints")


def _templates() -> list[Traversable]:
    return [one for one in files("clew.cli").joinpath("template").iterdir() if one.is_file()]


def show_completion(shell: str) -> None:
    if shell not in SHELLS:
        raise Invalid(f"SHELL: expected one of {', '.join(SHELLS)}")
    script = completion.get_completion_script  # type: ignore[attr-defined]  # it is not exported
    print(script(prog_name="clew", complete_var=VARIABLE, shell=shell))
