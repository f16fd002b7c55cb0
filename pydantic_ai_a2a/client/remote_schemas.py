"""The JSON Schemas on the card of a remote agent, as far as they can be used (§4.6).

Cards are foreign text.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from pydantic_ai import StructuredDict

from ..errors import CardRefused
from ..types.a2a_objects import AgentCard
from ..wire.extensions.card_schemas import CardSchemas
from ..wire.schemas.foreign_schemas import UnusableSchema, check_schema
from ..wire.schemas.inlined_schemas import inlined_schema


def input_schema(card: AgentCard, skill_id: str | None = None) -> dict[str, Any] | None:
    """Return the JSON Schema of the data for an agent, or for one of its skills; None for any message.

    Raises:
        CardRefused: The schema is no schema of an object, or cannot be used.
    """
    schema = CardSchemas.of(card).of_skill(skill_id)
    return None if schema is None else _checked(card, lambda: check_schema(schema, 'inputSchema'))


def output_schema(card: AgentCard) -> dict[str, Any] | None:
    """Return the JSON Schema of the data of an answer; None for an answer without data, or with data of any form.

    Raises:
        CardRefused: The schema cannot be used.
    """
    schema = CardSchemas.of(card).output
    return None if schema is None else _checked(card, lambda: check_schema(schema, 'outputSchema', of_object=False))


def output_type(card: AgentCard) -> type[dict[str, Any]]:
    """Return an output type of Pydantic AI for the answers of an agent.

    Raises:
        CardRefused: The card has no schema of an object, or one that Pydantic AI does not support.
    """
    schema = CardSchemas.of(card).output
    if schema is None:
        raise CardRefused(f'The agent card of {card["name"][:200]} declares no outputSchema.')
    return StructuredDict(_checked(card, lambda: inlined_schema(schema, 'outputSchema')))


def _checked(card: AgentCard, check: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return deepcopy(check())
    except UnusableSchema as error:
        name, fault = card['name'][:200], str(error)[:1_000]
        raise CardRefused(f'The agent card of {name} has a JSON Schema that cannot be used: {fault}.') from None
