"""Which protocol extensions a request activates (§4.6), by FastA2A's own rules. Knows the header, not what they do."""

from __future__ import annotations

from collections.abc import Sequence

from fasta2a.extensions import (
    A2A_EXTENSIONS_HEADER,
    format_extensions_header,
    missing_required_extensions,
    parse_extensions_header,
    select_activated_extensions,
)
from fasta2a.schema import AgentExtension

from ..errors import ExtensionSupportRequiredError

__all__ = ('Extensions',)


class Extensions:
    """The extensions that the agent card declares."""

    def __init__(self, declared: Sequence[AgentExtension]) -> None:
        self._declared = list(declared)

    def negotiate(self, requested: str | None) -> tuple[tuple[str, str], ...]:
        """The response headers that say which of the requested extensions are active.

        Raises:
            ExtensionSupportRequiredError: One that the agent requires is not among them.
        """
        if not self._declared:
            return ()
        active = select_activated_extensions(self._declared, parse_extensions_header(requested))
        missing = missing_required_extensions(self._declared, active)
        if missing:
            raise ExtensionSupportRequiredError(metadata={'requiredExtensions': ', '.join(missing)})
        return ((A2A_EXTENSIONS_HEADER, format_extensions_header(active)),) if active else ()
