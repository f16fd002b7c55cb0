"""The playground of an app: whether the app has the page, and the addresses of the pages of a server."""

from __future__ import annotations

import logging

from ..card import CardSettings
from ..http.playground.page import Playground
from ..settings import Limits

__all__ = ('check_docs_url', 'playground')

logger = logging.getLogger('pydantic_ai_a2a')


def check_docs_url(path: str | None) -> None:
    """Refuse a path that no request can have.

    Raises:
        ValueError: The path does not begin with a slash.
    """
    if path is not None and not path.startswith('/'):
        raise ValueError(f'docs_url takes a path that begins with a slash, such as /docs, not {path!r}.')


def playground(path: str | None, card: CardSettings, limits: Limits, *, anonymous: bool) -> Playground | None:
    """Return the playground of an app; None without a path, or if the app does not serve what the page calls."""
    if path is None:
        return None
    if '1.0' not in card.versions or not card.http_json:
        logger.info('There is no playground at %s: the agent does not serve A2A 1.0 over HTTP+JSON.', path)
        return None
    return Playground(path, limits, anonymous=anonymous)
