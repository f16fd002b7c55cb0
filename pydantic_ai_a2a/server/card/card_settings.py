"""What a user sets of the card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from ...types.a2a_objects import AgentExtension, AgentProvider, SecurityRequirement, SecurityScheme, Skill
from ...types.frozen_values import frozen


@frozen
class CardSettings:
    """The user's settings of the card. They take precedence over the agent's facts."""

    name: str | None = None
    description: str | None = None
    version: str = '1.0.0'
    """The agent's own version."""
    provider: AgentProvider | None = None
    skills: Sequence[Skill] = ()
    """Skills of the agent; if empty, the card has one skill: the agent as a whole."""
    extensions: Sequence[AgentExtension] = ()
    streaming: bool = True
    """True if clients may stream."""
    push_notifications: bool = False
    """True if clients may register webhooks."""
    security_schemes: Mapping[str, SecurityScheme] = field(default_factory=dict[str, SecurityScheme])
    security_requirements: Sequence[SecurityRequirement] = ()
    """Alternatives, as in FastA2A: each maps names of `security_schemes` to the scopes needed."""
    http_json: bool = True
    """True if the HTTP+JSON binding is served besides JSON-RPC."""
    versions: Sequence[str] = ('1.0', '0.3')
    """Protocol versions that the card declares."""
    extended: bool = False
    """True if authenticated callers can get an extended card."""
