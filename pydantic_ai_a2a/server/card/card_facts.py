"""The facts about an agent that its card is filled in with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ...types.frozen_values import frozen
from ...wire.extensions.card_schemas import CardSchemas


@frozen
class CardFacts:
    """Facts about the agent, without its instructions or system prompts. `app.assembly` collects them."""

    name: str | None
    description: str | None
    input_modes: Sequence[str]
    """Accepted media types."""
    output_modes: Sequence[str]
    """Returned media types."""
    schemas: CardSchemas = field(default_factory=CardSchemas)
    """JSON Schemas of the input and the output."""
