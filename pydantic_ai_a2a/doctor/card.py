"""Examines the agent card: the place, the content, and the URLs of the interfaces."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

from fasta2a.schema import AgentCard, AgentInterface

from ..client.cards import WELL_KNOWN, Interface, RemoteCards, choose
from ..client.connections import Connections
from ..client.urls import shown
from ..errors import A2AError, CardRefused, RemoteError
from .finding import Finding

__all__ = ('examined_card', 'interfaces')

_KNOWN = (('JSONRPC', '1.0'), ('HTTP+JSON', '1.0'), ('JSONRPC', '0.3'))


async def examined_card(connections: Connections, url: str) -> AsyncGenerator[Finding | tuple[AgentCard, str], None]:
    """Yield the findings about the card, and at the end a valid card with the URL of the card."""
    cards = RemoteCards(connections, url)
    try:
        card, place = await cards.get()
    except (A2AError, RemoteError) as error:
        yield Finding(
            step='card',
            level='fault',
            text='There is no agent card that clients can use.',
            section='8.2',
            sent=f'GET {shown(url)}',
            came=str(error),
            advice='Serve the card as JSON at /.well-known/agent-card.json below the URL of the agent.',
        )
        return
    valid = Finding(
        step='card',
        level='ok',
        text=f'The card of {card["name"][:100]} is valid.',
        section='8.2',
        sent=f'GET {shown(place)}',
    )
    yield valid
    if place.endswith(WELL_KNOWN[1]):
        yield replace(
            valid,
            level='warning',
            text='The card is only at the path of older versions of A2A.',
            advice='Serve the card at /.well-known/agent-card.json too.',
        )
    yield card, place


def interfaces(card: AgentCard, place: str) -> list[Interface | Finding]:
    """Return the interfaces to call, and a finding for each interface without a usable URL or binding."""
    if entries := card.get('supported_interfaces'):
        return [_interface(card, entry, place) for entry in entries]
    advice = 'List the URL, the binding and the version of each interface in supportedInterfaces.'
    return [
        Finding(step='interface', level='fault', text='The card names no interface.', section='4.4.6', advice=advice)
    ]


def _interface(card: AgentCard, entry: AgentInterface, place: str) -> Interface | Finding:
    binding, version = entry['protocol_binding'], entry.get('protocol_version', '')[:3]
    name = f'{binding} {version}'
    if (binding, version) not in _KNOWN:
        return Finding(step='interface', level='not checked', text=f'{name[:40]} is a binding that is not examined.')
    alone: AgentCard = {**card, 'supported_interfaces': [entry]}
    fault = Finding(
        step='interface',
        level='fault',
        text=f'The interface {name} has another origin than the card. Clients refuse to call the interface.',
        section='8.2',
        sent=f'GET {shown(place)}',
        advice='Set the public URL of the agent, such as url= of to_a2a.',
    )
    try:
        chosen = choose(alone, place, binding=binding, version=version, trusted_origins=())
    except CardRefused as error:
        return replace(fault, came=str(error))
    if chosen.url != entry['url']:
        text = f'The interface {name} has an address that only the machine of the agent can reach.'
        return replace(fault, text=text, came=shown(entry['url']))
    return chosen
