"""A program that writes a transcript, and notes how it was started.

    python replay.py TRANSCRIPT NOTE [options of the program]

A transcript has the lines of one run of Claude Code, Codex CLI or Gemini CLI, in the form that each documents.
"""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    transcript, note, *options = sys.argv[1:]
    with Path(note).open("a") as file:
        file.write(json.dumps({"options": options, "prompt": sys.stdin.read()}) + "\n")
    sys.stdout.write(Path(transcript).read_text())
    # A session that it does not have.
    sys.exit(1 if "unknown" in options else 0)
