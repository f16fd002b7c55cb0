"""Page tokens: where the next page of a list begins, for whom and for which filter. Pure."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

from pydantic_core import from_json, to_json

from ..errors import InvalidParamsError
from ..protocol.fields import MAX_ID
from ..types import TaskQuery

__all__ = ('page_token', 'read_token')


def _filter_mark(query: TaskQuery) -> str:
    """Binds a page token to the owner and the filter it was made for."""
    return sha256(to_json([query.owner, query.context_id, query.state, query.since])).hexdigest()[:16]


def page_token(before: tuple[int, str], query: TaskQuery) -> str:
    """A token that `read_token` takes for this owner and filter only."""
    return urlsafe_b64encode(to_json([*before, _filter_mark(query)])).decode()


def read_token(token: str, query: TaskQuery) -> tuple[int, str]:
    """Before which task the page begins (status time, id).

    Raises:
        InvalidParamsError: The token is none that this list with this filter has given.
    """
    try:
        status_at, task_id, mark = from_json(urlsafe_b64decode(token.encode()))
        if (
            mark == _filter_mark(query)
            and type(status_at) is int
            and 0 <= status_at < 2**63
            and isinstance(task_id, str)
            and len(task_id) <= MAX_ID
            and '\0' not in task_id
        ):
            return status_at, task_id
    except (ValueError, TypeError):
        pass  # no token of ours: refused below like one of another list
    raise InvalidParamsError.of('pageToken', 'is not a token that this list with these filters has given')
