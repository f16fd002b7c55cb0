"""The command `card`: shows the card of a remote agent."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from ..types.a2a_objects import AgentCard, agent_card_ta
from .async_commands import awaited
from .remote_agent import INDENT, Remote, agent_options
from .terminal import echo, echo_json


@click.command()
@agent_options
@click.option('--json', 'is_json', is_flag=True, help='Write the card as JSON.')
@awaited
async def card(*, remote: Remote, is_json: bool) -> int:
    """Show the card of an agent.

    URL is the agent or its card.
    """
    async with remote.cards() as (_, cards):
        agent_card, _ = await cards.get()
    if is_json:
        echo_json(json.dumps(agent_card_ta.dump_python(agent_card, mode='json', by_alias=True)))
    else:
        for name, text in _card_lines(agent_card):
            echo(f'{name:{INDENT}}{text}'.rstrip())
    return 0


def _card_lines(agent_card: AgentCard) -> Iterator[tuple[str, str]]:
    yield 'Name', f'{agent_card["name"]} {agent_card.get("version", "")}'
    yield 'Description', ' '.join(agent_card.get('description', '').split())
    for entry in agent_card.get('supported_interfaces', ()):
        yield 'Interface', f'{entry["url"]} ({entry["protocol_binding"]} {entry.get("protocol_version", "")})'
    capabilities = agent_card['capabilities']
    yield 'Streaming', 'yes' if capabilities.get('streaming') else 'no'
    yield 'Webhooks', 'yes' if capabilities.get('push_notifications') else 'no'
    yield 'Sign-in', ', '.join(agent_card.get('security_schemes', ())) or 'none declared'
    if signatures := agent_card.get('signatures'):
        yield 'Signatures', f'{len(signatures)}, not verified'
    yield 'Input', ', '.join(agent_card.get('default_input_modes', ()))
    yield 'Output', ', '.join(agent_card.get('default_output_modes', ()))
    for skill in agent_card.get('skills', ()):
        yield 'Skill', f'{skill["name"]}: {" ".join(skill["description"].split())}'
    for extension in capabilities.get('extensions', ()):
        yield 'Extension', extension['uri']
