"""The method or the path of A2A that resembles one that does not exist, for the text of the error. Pure.

The answer has only names of the specification, never a part of the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

from .operations import OPERATIONS, Operation

_LONGEST = 100
"""Characters of a name that is compared. The time grows with its square."""
_LIKE = 0.7
"""Similarity of names, from 0 to 1, that makes one a misspelling of the other."""
_FORMER = {
    'tasks/send': 'SendMessage',
    'tasks/sendsubscribe': 'SendStreamingMessage',
    'settaskpushnotificationconfig': 'CreateTaskPushNotificationConfig',
}
"""Methods of A2A before 0.2, and of drafts of 1.0."""
_METHODS = _FORMER | {
    name.lower(): row.name for row in OPERATIONS.values() for name in (row.name, row.v0_3, row.fasta2a) if name
}
"""The operation of each method, of all versions, in lower case."""
_PATHS = {path.lower(): path for row in OPERATIONS.values() for _, path in row.http}
_TASK = re.compile(r'/tasks?/[^/:]+')
_CONFIG = re.compile(r'(/pushnotification[^/]*)/[^/]+')


def nearest_method(method: str, methods: Mapping[str, Operation]) -> str:
    """Return the method of a version that resembles the method of a request; empty for none.

    Args:
        method: The method of the request, perhaps of another version.
        methods: The operations by the version's method names.
    """
    operation = _nearest(method, _METHODS)
    return next((name for name, row in methods.items() if row.name == operation), '')


def nearest_path(path: str) -> str:
    """Return the path of HTTP+JSON that resembles the path of a request; empty for none."""
    if (operation := _nearest(path.rpartition('/')[2], _METHODS)) in OPERATIONS:
        return OPERATIONS[operation].http[0][1]
    shape = _CONFIG.sub(r'\1/{configid}', _TASK.sub('/tasks/{id}', path[:_LONGEST].lower(), count=1))
    return _nearest(shape, _PATHS)


def _nearest(word: str, names: Mapping[str, str]) -> str:
    matches = get_close_matches(word.strip().lower(), names, n=1, cutoff=_LIKE) if len(word) <= _LONGEST else []
    return names[matches[0]] if matches else ''
