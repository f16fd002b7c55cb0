"""Page tokens, which name the start of the next page of a list.

A token is valid only for its own list.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Any

from pydantic_core import from_json, to_json

from ...errors import InvalidParamsError
from ...types.task_queries import TaskQuery
from .request_fields import MAX_ID


def task_token(before: tuple[int, str], query: TaskQuery) -> str:
    """Return the token of a page of tasks, valid for this owner and filter only."""
    return _token(*before, _filter(query))


def task_before(token: str, query: TaskQuery) -> tuple[int, str]:
    """Return the (status time, id) before which a page begins.

    Raises:
        InvalidParamsError: The token does not belong to this list with this filter.
    """
    match _values(token):
        case [int(status_at), str(task_id), name] if (
            name == _filter(query)
            and type(status_at) is int
            and 0 <= status_at < 2**63
            and len(task_id) <= MAX_ID
            and '\0' not in task_id
        ):
            return status_at, task_id
        case _:
            raise InvalidParamsError.of(
                'pageToken',
                'is not a page token of this list with these filters: send the nextPageToken of a page',
            )


def _filter(query: TaskQuery) -> str:
    return sha256(to_json([query.owner, query.context_id, query.state, query.since])).hexdigest()[:16]


def config_token(config_id: str, task_id: str) -> str:
    """Return the token of a page of a task's webhooks."""
    return _token(config_id, task_id)


def config_after(token: str, task_id: str) -> str:
    """Return the id of the webhook after which a page begins.

    Raises:
        InvalidParamsError: The token does not belong to this task's list.
    """
    match _values(token):
        case [str(config_id), name] if name == task_id:
            return config_id
        case _:
            raise InvalidParamsError.of(
                'pageToken', 'is not a page token of this list: send the nextPageToken of a page'
            )


def _token(*values: object) -> str:
    return urlsafe_b64encode(to_json(values)).decode()


def _values(token: str) -> Any:
    try:
        return from_json(urlsafe_b64decode(token.encode()))
    except ValueError:
        return None
