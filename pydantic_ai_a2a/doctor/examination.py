"""The steps of an examination, in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..client.cards import Interface
from ..client.connections import Connections
from .calls import examined_calls
from .card import examined_card, interfaces
from .finding import Finding
from .probe import Probe

__all__ = ('examine',)


async def examine(url: str, connections: Connections) -> AsyncGenerator[Finding, None]:
    """Examine an agent. The agent gets harmless text only, and running tasks are canceled.

    Args:
        url: URL of the agent or of its card.
        connections: Connections with the credentials of the caller, closed at the end.
    """
    try:
        async with aclosing(examined_card(connections, url)) as steps:
            async for step in steps:
                if isinstance(step, Finding):
                    yield step
                    continue
                card, place = step
                for interface in interfaces(card, place):
                    if isinstance(interface, Interface):
                        async with aclosing(examined_calls(Probe(interface, connections), card)) as findings:
                            async for finding in findings:
                                yield finding
                    else:
                        yield interface
    finally:
        await connections.close()
