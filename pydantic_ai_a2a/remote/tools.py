"""Tools of a remote agent: names, descriptions, parameters, and the parts of a call. Pure.

Names and descriptions on a card are foreign text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from fasta2a.schema import AgentCard, Part, Skill
from pydantic_ai.tools import ToolDefinition

__all__ = ('RemoteTool', 'remote_tools')

_MOST_TOOLS = 128
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 1_000
_MESSAGE: dict[str, Any] = {
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

    def parts(self, arguments: Mapping[str, Any]) -> list[Part]:
        """Return the parts of a message for a call."""
        return [Part(data=dict(arguments)) if self.typed else Part(text=arguments['message'])]


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
    for name, description, skill in _described(card, kind):
        unique = _unique(_name(name), tools)
        schema = _input_schema(card['skills'] if skill is None else [skill])
        definition = ToolDefinition(
            name=unique,
            description=description[:_LONGEST_DESCRIPTION] if include_descriptions and description else _NEUTRAL,
            parameters_json_schema=_MESSAGE if schema is None else schema if include_descriptions else _bare(schema),
        )
        tools[unique] = RemoteTool(definition, schema is not None, None if skill is None else skill['id'])
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
    """Return a name that every model provider takes."""
    return re.sub(r'[^a-zA-Z0-9_-]+', '_', text).strip('_-')[:_LONGEST_NAME] or 'remote_agent'


def _unique(name: str, others: Mapping[str, object]) -> str:
    number, unique = 1, name
    while unique in others:
        number += 1
        unique = f'{name[: _LONGEST_NAME - 4]}_{number}'
    return unique


def _input_schema(skills: list[Skill]) -> dict[str, Any] | None:
    """Return the JSON Schema of an object that all skills take; None if the skills take text."""
    schemas: list[Any] = [cast('dict[str, Any]', skill).get('inputSchema') for skill in skills]
    if not schemas or not isinstance(schemas[0], dict) or any(schema != schemas[0] for schema in schemas):
        return None
    schema = cast('dict[str, Any]', schemas[0])
    return schema if schema.get('type') == 'object' else None


def _bare(schema: Any) -> Any:
    """Return a JSON Schema without texts for readers."""
    if isinstance(schema, list):
        return [_bare(item) for item in cast('list[Any]', schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast('dict[str, Any]', schema)
    return {
        name: {key: _bare(member) for key, member in value.items()} if name in _NAMED else _bare(value)
        for name, value in fields.items()
        if name not in _TEXTS
    }
