"""The examination of a remote agent, step by step: its card, and each interface."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from uuid import uuid4

from ...errors import A2AError, RemoteError
from ...types.a2a_objects import AgentCard
from ...types.operation_params import GetParams
from ..cards import RemoteCards
from ..http_connections import HttpConnections
from ..interfaces import Interface
from .card_steps import about_card, interfaces, no_card
from .findings import Finding
from .interface_probe import Probe
from .message_steps import messages
from .refusal_steps import bad_params, error_answers, security, served


async def examine(
    url: str, connections: HttpConnections, trusted_origins: Collection[str] = ()
) -> AsyncGenerator[Finding, None]:
    """Examine an agent. The agent gets harmless text only, and running tasks are canceled.

    Args:
        url: URL of the agent or of its card.
        connections: Connections with the credentials of the caller, closed at the end.
        trusted_origins: Origins besides the card's that may get requests and credentials.
    """
    try:
        try:
            card, place = await RemoteCards(connections, url).get(patient=False)
        except (A2AError, RemoteError) as error:
            yield no_card(url, error)
            return
        for finding in about_card(card, place):
            yield finding
        for interface in interfaces(card, place, trusted_origins):
            if isinstance(interface, Interface):
                async with aclosing(examined_calls(Probe(interface, connections), card)) as findings:
                    async for finding in findings:
                        yield finding
            else:
                yield interface
    finally:
        await connections.close()


async def examined_calls(probe: Probe, card: AgentCard) -> AsyncGenerator[Finding, None]:
    """Yield the findings about an interface."""
    unknown = await probe.ask('GetTask', GetParams(id=uuid4().hex))
    answered = served(probe, unknown)
    yield answered
    if answered.level == 'fault':
        return
    yield await security(probe, card, unknown)
    if unknown.status in (401, 403):
        yield Finding(step='calls', level='not checked', text='The agent asks for credentials.', section='7.4')
        return
    for finding in error_answers(probe, unknown):
        yield finding
    async for finding in bad_params(probe):
        yield finding
    async for finding in messages(probe, card):
        yield finding
