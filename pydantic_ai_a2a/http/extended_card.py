"""The extended agent card (§3.1.11, §13.3): what a caller that is known may read of the agent. Knows no version."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import isawaitable
from typing import Any, cast

from fasta2a.schema import AgentCard
from starlette.types import Scope

from ..card import CardTemplate
from ..errors import ExtendedAgentCardNotConfiguredError
from ..settings import MakeCard
from ..types import Caller
from .card import base_url

__all__ = ('UNSHARED', 'ExtendedCard')

UNSHARED = ('Cache-Control', 'private, no-cache')
"""The header that keeps whoever is on the way from giving a caller's card to another one."""


class ExtendedCard:
    """The extended card of an app.

    Args:
        card: The card, but for its URL.
        url: The agent's URL; None takes the request's base URL.
        said: Makes it for each caller; or what every one of them reads besides the public card, whose lists it
            continues.

    Raises:
        ValueError: What it says besides would make no card.
    """

    def __init__(self, card: CardTemplate, url: str | None, said: MakeCard | Mapping[str, Any]) -> None:
        self._card = card
        self._url = url
        self._said = said
        if not callable(said):
            public = card.public(url or '')
            card.extended(public, _continued(public, said))

    async def render(self, caller: Caller, scope: Scope, tenant: str = '') -> bytes:
        """The card for a caller, as JSON; for the tenant that the request names, if it does.

        Raises:
            ExtendedAgentCardNotConfiguredError: The caller has none.
        """
        url = self._url or base_url(scope)
        public = self._card.public(url, tenant)
        if not callable(self._said):
            return self._card.extended(public, _continued(public, self._said))
        made = self._said(caller, self._card.public(url, tenant))
        said = await made if isawaitable(made) else made
        if said is None:
            raise ExtendedAgentCardNotConfiguredError
        return self._card.extended(public, said)


def _continued(public: AgentCard, said: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is said besides a card, with the card's own lists before it."""
    known = cast('Mapping[str, Any]', public)
    return {
        name: [*known[name], *value] if isinstance(value, list) and name in known else value
        for name, value in said.items()
    }
