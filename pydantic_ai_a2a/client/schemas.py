"""The JSON Schemas on the card of a remote agent, as far as they can be used (§4.6). Cards are foreign text."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any, TypeAlias

from fasta2a.schema import AgentCard, Message
from pydantic import TypeAdapter
from pydantic_ai import StructuredDict

from ..card import CardSchemas
from ..conversion.schemas import CLIENT_SCHEMA_URI, UnusableSchema, check_schema, inlined_schema, with_client_schema
from ..errors import CardRefused, UnsupportedOperationError
from .cards import extensions_of

__all__ = ('OutputSchema', 'input_schema', 'output_schema', 'output_type', 'takes_schemas', 'wanting', 'warn')

OutputSchema: TypeAlias = type[Any] | Mapping[str, Any]
"""The form of an answer: a type that Pydantic has a schema for, or a JSON Schema."""

logger = logging.getLogger('pydantic_ai_a2a')


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


def takes_schemas(card: AgentCard) -> bool:
    """Return True if a message to an agent may have a JSON Schema for its answer."""
    return CLIENT_SCHEMA_URI in extensions_of(card)


def wanting(card: AgentCard, message: Message, output: OutputSchema) -> Message:
    """Return a message that wants an answer by a schema.

    Raises:
        UnsupportedOperationError: The card does not declare the extension.
    """
    if not takes_schemas(card):
        raise UnsupportedOperationError(
            f'The agent {card["name"][:200]} takes no JSON Schemas of clients: its card does not declare {CLIENT_SCHEMA_URI}.'
        )
    schema = output if isinstance(output, Mapping) else TypeAdapter[Any](output).json_schema()
    return with_client_schema(message, schema)


def _checked(card: AgentCard, check: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return deepcopy(check())
    except UnusableSchema as error:
        name, fault = card['name'][:200], str(error)[:1_000]
        raise CardRefused(f'The agent card of {name} has a JSON Schema that cannot be used: {fault}.') from None


@lru_cache(maxsize=1_000)
def warn(error: str) -> None:
    """Log that a schema is ignored. Each fault is logged once."""
    logger.warning('%s The schema is ignored.', error)
