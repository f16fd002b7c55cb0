"""The steps about the agent card: its place, its content, and the URLs of its interfaces."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import httpx2

from ...errors import A2AError, CardRefused, RemoteError, RemoteUnavailable
from ...public_hosts import is_local
from ...tls_problems import tls_problem
from ...types.a2a_objects import AgentCard, AgentInterface
from ..cards import WELL_KNOWN
from ..interfaces import Interface, choose, spoken
from ..remote_urls import shown_url
from .findings import Finding

_MOST_INTERFACES = 20


def no_card(url: str, error: A2AError | RemoteError) -> Finding:
    """Return the finding about an agent that does not answer, or that has no usable card."""
    fault = Finding(
        step='card',
        level='fault',
        text='There is no agent card that clients can use.',
        section='8.2',
        sent=f'GET {shown_url(url)}',
        came=str(error),
        advice='Serve the card as JSON at /.well-known/agent-card.json below the URL of the agent.',
    )
    if not isinstance(error, RemoteUnavailable):
        return fault
    advice = '' if tls_problem(error) else 'Check the URL, and that the server runs and can be reached from here.'
    return replace(fault, text='No agent answers at the URL.', section='', advice=advice)


def about_card(card: AgentCard, place: str) -> Iterator[Finding]:
    """Yield the findings about a card at a place."""
    text, sent = f'The card of {card["name"][:100]} is valid.', f'GET {shown_url(place)}'
    valid = Finding(step='card', level='ok', text=text, section='8.2', sent=sent)
    yield valid
    if place.endswith(WELL_KNOWN[1]):
        yield replace(
            valid,
            level='warning',
            text='The card is only at the path of older versions of A2A.',
            advice='Serve the card at /.well-known/agent-card.json too.',
        )


def interfaces(card: AgentCard, place: str, trusted_origins: Collection[str] = ()) -> list[Interface | Finding]:
    """Return the interfaces to call, and a finding for each interface without a usable URL or binding."""
    entries = card.get('supported_interfaces', [])
    found = [_interface(card, entry, place, trusted_origins) for entry in entries[:_MOST_INTERFACES]]
    if more := len(entries) - len(found):
        text = f'The card names {more} more interfaces, which are not examined.'
        found.append(Finding(step='interface', level='not checked', text=text, section='4.4.6'))
    if any(isinstance(interface, Interface) or interface.level != 'not checked' for interface in found):
        return found
    advice = 'List the URL, the binding and the version of each interface in supportedInterfaces.'
    text = 'The card names no interface that clients can call.' if found else 'The card names no interface.'
    return [*found, Finding(step='interface', level='fault', text=text, section='4.4.6', advice=advice)]


def _interface(
    card: AgentCard, entry: AgentInterface, place: str, trusted_origins: Collection[str]
) -> Interface | Finding:
    name = f'{entry["protocol_binding"]} {entry.get("protocol_version", "")[:3]}'
    if spoken(entry, place) is None:
        return Finding(step='interface', level='not checked', text=f'{name[:40]} is a binding that is not examined.')
    alone: AgentCard = {**card, 'supported_interfaces': [entry]}
    fault = Finding(
        step='interface',
        level='fault',
        text=f'The interface {name} has another origin than the card. Clients refuse to call the interface.',
        section='8.2',
        sent=f'GET {shown_url(place)}',
        advice='Set the public URL of the agent, such as url= of to_a2a.',
    )
    try:
        chosen = choose(alone, place, trusted_origins=trusted_origins)
    except CardRefused as error:
        return replace(fault, came=str(error))
    if chosen.binding == 'GRPC':
        return Finding(step='interface', level='hint', text=f'{name} can be called, and is not examined.')
    if chosen.url != entry['url'] and not is_local(httpx2.URL(place).host):
        text = f'The interface {name} has an address that only the machine of the agent can reach.'
        return replace(fault, text=text, came=shown_url(entry['url']))
    return chosen
