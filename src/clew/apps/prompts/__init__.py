"""System prompts: one text file per role."""

from functools import cache
from importlib.resources import files


@cache
def prompt(name: str) -> str:
    return (files(__name__) / f"{name}.md").read_text("utf-8").strip()
