"""What all drivers in Python have in common: they ask each server both ways, and print what its user is shown.

A driver runs in its client's environment, with pairs of a server's name and its URL as arguments. It prints a line of
JSON for each way of asking each server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable

Ask = Callable[[str], Awaitable[dict[str, str]]]
"""Asks the agent at a URL. `answer` is the answer as the framework gives it, `live` all that was shown on the way."""


def drive(**ways: Ask) -> None:
    """Ask every server that the command line names in every way."""

    async def main() -> None:
        for pair in sys.argv[1:]:
            server, _, url = pair.partition('=')
            for way, ask in ways.items():
                try:
                    async with asyncio.timeout(60):
                        seen = await ask(url)
                except Exception as error:
                    traceback.print_exc()
                    seen = {'error': f'{type(error).__name__}: {error}'}
                print('SEEN', json.dumps({'server': server, 'way': way, **seen}), flush=True)

    asyncio.run(main())
