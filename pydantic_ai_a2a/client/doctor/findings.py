"""Findings: the results of the steps of an examination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from .interface_probe import HttpAnswer

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


@dataclass(frozen=True)
class ExaminationStep:
    """A step of the examination of an interface."""

    name: str
    section: str
    answer: HttpAnswer

    def ok(self, text: str) -> Finding:
        """Return the finding of a step without a fault."""
        return self.found('ok', text)

    def fault(self, text: str, advice: str) -> Finding:
        """Return the finding of a fault."""
        return self.found('fault', text, advice)

    def found(self, level: Level, text: str, advice: str = '') -> Finding:
        """Return a finding with the request and the answer of the step."""
        sent, came = self.answer.sent, self.answer.came
        return Finding(
            step=self.name, level=level, text=text, section=self.section, sent=sent, came=came, advice=advice
        )
