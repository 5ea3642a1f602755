"""Puts the paragraphs of notes/*.md into the store of a running server; the server embeds them.

python load.py http://127.0.0.1:8124
"""

import asyncio
import sys
from pathlib import Path

from langgraph_sdk import get_client

HERE = Path(__file__).parent


async def main(url: str) -> None:
    client = get_client(url=url)
    count = 0
    for path in sorted((HERE / "notes").glob("*.md")):
        for number, text in enumerate(path.read_text("utf-8").split("\n\n"), 1):
            # The same key again replaces the paragraph: load as often as you like.
            await client.store.put_item(("notes",), f"{path.stem}:{number}", {"text": " ".join(text.split())})
            count += 1
    print(f"{count} paragraphs are in the store")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8124"))
