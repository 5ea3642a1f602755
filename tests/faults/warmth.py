"""Opens the product once: whoever is forked from who has imported this finds made what a first opening makes."""

import asyncio
import tempfile
import threading
from pathlib import Path

from clew.config import load_settings
from clew.server.app import open_app


async def _open_once() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_app(load_settings({"CLEW_DATABASE_URL": "memory://"}, cwd=Path(folder))):
            pass


asyncio.run(_open_once())
for thread in threading.enumerate():
    # The watch of the event loop is told to stop and not waited for.
    if thread is not threading.main_thread():
        thread.join(30)
# A thread is not there any more in what is forked, and whatever it held is held for ever.
assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
