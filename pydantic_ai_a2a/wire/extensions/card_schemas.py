"""The JSON Schemas of the input and the output of an agent, as an extension of its card (§4.6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ...json_values import as_object
from ...types.a2a_objects import AgentCard, AgentExtension, Skill

SCHEMAS_URI = 'https://pypi.org/project/pydantic-ai-a2a/#json-schemas-v1'
"""Name of the extension. Parameters with another meaning get another URI."""

_INPUT, _OUTPUT, _SKILLS = 'inputSchema', 'outputSchema', 'skills'


@dataclass(frozen=True, kw_only=True)
class CardSchemas:
    """The schemas on a card. A schema of a remote agent is unchecked."""

    input: Any = None
    """JSON Schema of the data that begins a task; None for any message."""
    output: Any = None
    """JSON Schema of the data of an answer; None if the answer has no data, or data of any form."""
    skills: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON Schemas of the data for single skills, by the id of the skill."""

    @classmethod
    def of(cls, card: AgentCard) -> CardSchemas:
        """Read the schemas on a card."""
        for extension in card['capabilities'].get('extensions', ()):
            if extension.get('uri') == SCHEMAS_URI:
                return cls._read(extension.get('params', {}))
        return cls()

    @classmethod
    def _read(cls, params: Mapping[str, Any]) -> CardSchemas:
        skills: Mapping[str, Any] = as_object(params.get(_SKILLS))
        inputs = {name: as_object(schemas).get(_INPUT) for name, schemas in skills.items()}
        return cls(
            input=params.get(_INPUT),
            output=params.get(_OUTPUT),
            skills={name: schema for name, schema in inputs.items() if schema is not None},
        )

    def of_skill(self, skill_id: str | None) -> Any:
        """Return the schema of the data for a skill; for None and for skills without a schema, the agent's."""
        return self.skills.get(skill_id or '', self.input)

    def declared(self) -> list[AgentExtension]:
        """Return the declaration of the extension; nothing if there are no schemas."""
        params: dict[str, Any] = {
            _INPUT: self.input,
            _OUTPUT: self.output,
            _SKILLS: {name: {_INPUT: schema} for name, schema in self.skills.items()},
        }
        params = {name: value for name, value in params.items() if value}
        description = 'JSON Schemas of the data that begins a task, and of the data of an answer.'
        return [AgentExtension(uri=SCHEMAS_URI, description=description, params=params)] if params else []


def with_skills(card: AgentCard, skills: Iterable[Skill]) -> AgentCard:
    """Return a card with the schemas that its skills have as `inputSchema`, in the extension.

    The data that begins a task always has the form of the agent's schema, if the agent has one.
    """
    schemas = CardSchemas.of(card)
    own = {
        skill['id']: cast('Mapping[str, Any]', skill).get(_INPUT, schemas.skills.get(skill['id'])) for skill in skills
    }
    own = {name: schema for name, schema in own.items() if schema is not None}
    if schemas.input is not None or own == schemas.skills:
        return card
    capabilities = card['capabilities']
    others = [extension for extension in capabilities.get('extensions', ()) if extension.get('uri') != SCHEMAS_URI]
    declared = replace(schemas, skills=own).declared()
    return {**card, 'capabilities': {**capabilities, 'extensions': [*others, *declared]}}
