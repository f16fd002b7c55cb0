"""The extended agent card (§3.1.11, §13.3): more about the agent, for callers with credentials."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import isawaitable
from typing import Any, cast

from ...errors import ExtendedAgentCardNotConfiguredError
from ...settings.access import MakeCard
from ...types.a2a_objects import AgentCard
from ...types.callers import Caller
from ..card.template import CardTemplate


class ExtendedCard:
    """The extended card of an app.

    Args:
        card: The public card, without its URL.
        url: The agent's URL; None takes the request's base URL.
        more: Fields that all callers read besides the public card, with lists that continue the lists of the public
            card; or a function that makes the card of a caller.

    Raises:
        ValueError: The card with these fields is not valid.
    """

    def __init__(self, card: CardTemplate, url: str | None, more: MakeCard | Mapping[str, Any]) -> None:
        self._card = card
        self._url = url
        self._more = more
        if not callable(more):
            public = card.public(url or '')
            card.extended(public, _continued(public, more))

    async def render(self, caller: Caller, base_url: str, tenant: str, version: str) -> bytes:
        """Return the card of a caller as JSON.

        Args:
            caller: The caller.
            base_url: The URL of the app in the request.
            tenant: The tenant that the request names; empty if the request names none.
            version: The protocol version of the request.

        Raises:
            ExtendedAgentCardNotConfiguredError: The caller has no extended card.
        """
        url = self._url or base_url
        public = self._card.public(url, tenant)
        if not callable(self._more):
            return self._card.extended(public, _continued(public, self._more), version)
        made = self._more(caller, self._card.public(url, tenant))
        card = await made if isawaitable(made) else made
        if card is None:
            raise ExtendedAgentCardNotConfiguredError
        return self._card.extended(public, card, version)


def _continued(public: AgentCard, more: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields with the lists of the public card before theirs."""
    fields = cast('Mapping[str, Any]', public)
    return {
        name: [*fields[name], *value] if isinstance(value, list) and name in fields else value
        for name, value in more.items()
    }
