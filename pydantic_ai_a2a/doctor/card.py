"""Examines the agent card: is there one, is it valid, and can its interfaces be called?"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Literal, cast

from fasta2a.schema import AgentCard

from ..client.cards import Interface, RemoteCards, choose
from ..client.connections import Connections
from ..errors import A2AError, CardRefused, RemoteError
from .finding import Finding

__all__ = ('examined_card', 'interfaces')

_KNOWN = (('JSONRPC', '1.0'), ('HTTP+JSON', '1.0'), ('JSONRPC', '0.3'))


async def examined_card(connections: Connections, url: str) -> AsyncGenerator[Finding | tuple[AgentCard, str], None]:
    """Yield the findings about the card, and at the end the card with its URL, if there is one."""
    cards = RemoteCards(connections, url)
    try:
        card, place = await cards.get()
    except (A2AError, RemoteError) as error:
        yield Finding(
            step='card',
            level='fault',
            text='There is no agent card that clients can use.',
            section='8.2',
            sent=f'GET {url}',
            came=str(error),
            advice='Serve the card as JSON at /.well-known/agent-card.json below the URL of the agent.',
        )
        return
    if place.endswith('agent.json'):
        yield Finding(
            step='card',
            level='warning',
            text='The card is only at the path of older versions of A2A.',
            section='8.2',
            sent=f'GET {place}',
            advice='Serve the card at /.well-known/agent-card.json too.',
        )
    else:
        yield Finding(step='card', level='ok', text=f'The card of {card["name"][:100]} is valid.', section='8.2')
    yield card, place


def interfaces(card: AgentCard, place: str) -> list[Interface | Finding]:
    """Return the interfaces that can be called, and a finding for each interface that cannot."""
    found: list[Interface | Finding] = []
    declared = card.get('supported_interfaces', ())
    for entry in declared:
        binding, version = entry['protocol_binding'], entry.get('protocol_version', '')[:3]
        name = f'{binding} {version}'
        if (binding, version) not in _KNOWN:
            found.append(
                Finding(step='interface', level='not checked', text=f'{name[:40]} is a binding that is not examined.')
            )
            continue
        try:
            found.append(
                choose(
                    cast('Any', {**card, 'supported_interfaces': [entry]}),
                    place,
                    binding=cast('Literal["JSONRPC"]', binding),
                    version=cast('Literal["1.0"]', version),
                    trusted_origins=(),
                )
            )
        except CardRefused as error:
            found.append(
                Finding(
                    step='interface',
                    level='fault',
                    text=f'The interface {name} has another origin than the card. Clients refuse to call it.',
                    section='8.2',
                    came=str(error),
                    advice='Set the public URL of the agent, such as url= of to_a2a.',
                )
            )
    if not declared:
        found.append(
            Finding(
                step='interface',
                level='fault',
                text='The card names no interface.',
                section='4.4.6',
                advice='List the URL, the binding and the version of each interface in supportedInterfaces.',
            )
        )
    return found
