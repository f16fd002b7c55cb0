"""What all drivers in Python have in common: they ask each server both ways, and print what its user is shown.

A driver runs in its client's environment, with pairs of a server's name and its URL as arguments. It prints a line of
JSON for each way of asking each server.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

CARD = '/.well-known/agent-card.json'
EXTENSIONS = os.environ['EXTENSIONS']
"""The extensions that the client is to activate, or an empty text."""

Ask = Callable[[str], Awaitable[dict[str, Any]]]
"""Asks the agent at a URL. `answer` is the answer as the framework gives it, `live` the pieces shown on the way."""


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
                line = json.dumps({'server': server, 'way': way, **seen})
                # Frameworks print too, also from threads, and replace sys.stdout: one write to the real one is a line.
                sys.__stdout__.write(f'\nSEEN {line}\n')
                sys.__stdout__.flush()

    asyncio.run(main())
