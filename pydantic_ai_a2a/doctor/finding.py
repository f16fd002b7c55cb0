"""The result of a step of an examination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ('Finding', 'Level')

Level: TypeAlias = Literal['ok', 'hint', 'warning', 'fault', 'not checked']
"""`ok`; `hint`, allowed but worth to know; `warning`, some clients will fail; `fault`, against the specification."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of a step."""

    step: str
    level: Level
    text: str
    """The result in words."""
    section: str = ''
    """Section of the A2A specification."""
    sent: str = ''
    """The request."""
    came: str = ''
    """The answer."""
    advice: str = ''
    """The necessary change; empty for a good result."""
