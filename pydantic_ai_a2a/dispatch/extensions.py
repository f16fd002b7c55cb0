"""The protocol extensions that a request activates (§4.6), by FastA2A's own rules."""

from __future__ import annotations

from collections.abc import Sequence

from fasta2a.extensions import (
    format_extensions_header,
    missing_required_extensions,
    parse_extensions_header,
    select_activated_extensions,
)
from fasta2a.schema import AgentExtension

from ..errors import ExtensionSupportRequiredError

__all__ = ('Extensions', 'echo')


class Extensions:
    """The extensions that the agent card declares."""

    def __init__(self, declared: Sequence[AgentExtension]) -> None:
        self.declared = list(declared)
        self.required = any(extension.get('required') for extension in declared)
        """True if a request needs to declare extensions."""

    def activate(self, requested: str | None, *, name: str, enforce: bool) -> list[str]:
        """Return the requested extensions that are active.

        Args:
            requested: Value of the request's header.
            name: The header's name.
            enforce: True if the request must declare the extensions that the agent requires.

        Raises:
            ExtensionSupportRequiredError: The request does not declare an extension that the agent requires.
        """
        active = select_activated_extensions(self.declared, parse_extensions_header(requested))
        missing = missing_required_extensions(self.declared, active)
        if missing and enforce:
            raise ExtensionSupportRequiredError(
                f'The agent requires an extension that the request does not declare in {name}.',
                metadata={'requiredExtensions': ', '.join(missing)},
                headers=dict(echo(active, name)),
            )
        return active


def echo(active: list[str], name: str) -> tuple[tuple[str, str], ...]:
    """Return the response headers that name the active extensions."""
    return ((name, format_extensions_header(active)),) if active else ()
