"""The definitions of tools for a remote agent: names, descriptions, parameters, and the parts of a call.

Names and descriptions on a card are foreign text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

from pydantic_ai.tools import ToolDefinition

from ...errors import CardRefused
from ...types.a2a_objects import AgentCard, Part, Skill
from ...wire.extensions.card_schemas import CardSchemas
from ...wire.schemas.foreign_schemas import warn_ignored
from ..message_content import digest_id
from ..remote_schemas import input_schema, output_schema

_MOST_TOOLS = 128
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 1_000
_MESSAGE_SCHEMA: dict[str, Any] = {
    'type': 'object',
    'properties': {'message': {'type': 'string', 'description': 'Message for the agent.'}},
    'required': ['message'],
    'additionalProperties': False,
}
_NEUTRAL = 'Send a message to another agent, and return the answer of the agent.'
_TEXTS = frozenset({'title', 'description', 'examples', 'default', '$comment'})
_NAMED = frozenset({'properties', '$defs'})
"""Keywords of a JSON Schema whose members have names of the schema's author."""


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A tool that sends a message to a remote agent."""

    definition: ToolDefinition
    typed: bool
    """True if the arguments are sent as data, False if the only argument is a text."""
    skill_id: str | None
    """Skill that is called; None for the agent as a whole."""
    names_skill: bool = False
    """True if a text names the skill beside the data: the data has the form of the skill, and not of the agent."""
    output: dict[str, Any] | None = None
    """JSON Schema of the data of an answer; None for any answer."""

    def parts(self, arguments: Mapping[str, Any]) -> list[Part]:
        """Return the parts of a message for a call."""
        if not self.typed:
            return [Part(text=arguments['message'])]
        names = [Part(text=f'Skill: {self.skill_id}')] if self.names_skill else []
        return [*names, Part(data=dict(arguments))]


def remote_tools(
    card: AgentCard, kind: Literal['agent', 'skills'], *, include_descriptions: bool
) -> dict[str, RemoteTool]:
    """Return the tools of an agent card, by name.

    Args:
        card: The card.
        kind: `'agent'` for one tool, `'skills'` for one for each skill.
        include_descriptions: False to leave out the texts of the card.
    """
    tools: dict[str, RemoteTool] = {}
    output = _usable(card, output_schema)
    declared = CardSchemas.of(card).skills
    of_agent = _usable(card, input_schema)
    for name, description, skill in _described(card, kind):
        unique = _unique(_name(name), tools)
        skill_id = None if skill is None else skill['id']
        schema = _usable(card, partial(input_schema, skill_id=skill_id)) if skill_id in declared else of_agent
        is_data = card['default_output_modes'] == ['application/json']
        definition = ToolDefinition(
            name=unique,
            description=description[:_LONGEST_DESCRIPTION] if include_descriptions and description else _NEUTRAL,
            parameters_json_schema=_MESSAGE_SCHEMA
            if schema is None
            else schema
            if include_descriptions
            else bare(schema),
            return_schema=None if output is None or not is_data else output if include_descriptions else bare(output),
        )
        tools[unique] = RemoteTool(definition, schema is not None, skill_id, skill_id in declared, output)
    return tools


def _described(card: AgentCard, kind: Literal['agent', 'skills']) -> Iterator[tuple[str, str, Skill | None]]:
    """Yield name, description and skill of each tool."""
    skills = card['skills'][:_MOST_TOOLS]
    if kind == 'skills':
        yield from ((skill['id'], skill.get('description', ''), skill) for skill in skills)
        return
    lines = [f'- {skill["name"]}: {skill.get("description", "")}'[:200] for skill in skills[:10]]
    yield card['name'], '\n'.join([card.get('description', ''), *lines]), None


def _name(text: str) -> str:
    """Return a name that every model provider takes. Without ASCII letters, a digest tells names apart."""
    name = re.sub(r'[^a-zA-Z0-9_-]+', '_', text).strip('_-')[:_LONGEST_NAME]
    if re.search('[a-zA-Z]', name) or text.isascii():
        return name or 'remote_agent'
    return f'remote_agent_{digest_id(text)[:8]}'


def _unique(name: str, others: Mapping[str, object]) -> str:
    number, unique = 1, name
    while unique in others:
        number += 1
        unique = f'{name[: _LONGEST_NAME - 4]}_{number}'
    return unique


def _usable(card: AgentCard, read: Callable[[AgentCard], dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return a schema of a card; None without a schema, and for a schema that cannot be used, which is logged."""
    try:
        return read(card)
    except CardRefused as error:
        warn_ignored(str(error))
        return None


def bare(schema: Any) -> Any:
    """Return a JSON Schema without texts for readers."""
    if isinstance(schema, list):
        return [bare(item) for item in cast('list[Any]', schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast('dict[str, Any]', schema)
    return {
        name: {key: bare(member) for key, member in value.items()} if name in _NAMED else bare(value)
        for name, value in fields.items()
        if name not in _TEXTS
    }
