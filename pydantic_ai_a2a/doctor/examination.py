"""The steps of an examination, in their order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from ..client.cards import Interface
from ..client.connections import Auth, Connections
from .calls import examined_calls
from .card import examined_card, interfaces
from .finding import Finding
from .probe import Probe

__all__ = ('examine',)


async def examine(
    url: str, *, headers: Mapping[str, str], auth: Auth | None, patience: float
) -> AsyncGenerator[Finding, None]:
    """Examine an agent. The agent gets harmless text only, and tasks that go on are canceled.

    Args:
        url: URL of the agent or of its card.
        headers: Headers of every request.
        auth: Authentication of every request.
        patience: Seconds of silence after which a step fails.

    Raises:
        ValueError: A header has characters that HTTP does not allow.
    """
    connections = Connections(headers=headers, auth=auth, client=None, timeout=patience)
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
