"""Tasks, events and JSON for snapshots, with the same values in each run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from ..client.results import RemoteResult
from ..types.a2a_objects import Message, Task
from ..wire.protocol.stored_values import json_of

_ID = r'[0-9a-f]{32}|[0-9a-f]{16}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
_TIME = r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)'
_CHANGING = re.compile(rf'(?<![0-9a-f])(?:(?P<id>{_ID})|(?P<time>{_TIME}))(?![0-9a-f])')
"""Generated ids and times, in any text."""


def dump(value: RemoteResult | Task | Message | Any) -> Any:
    """Return a result, a task, a message or JSON for a snapshot, with the same values in each run.

    Generated ids become `<id 1>`, `<id 2>` and so on, in the order of the value. Times become `<time>`. Ids that the
    test has chosen stay.

    Args:
        value: A result, a task or a message, which becomes JSON of A2A 1.0, or JSON of a recording.
    """
    return _Names().replaced(_json(value.outcome if isinstance(value, RemoteResult) else value))


def _json(value: Any) -> Any:
    names = cast('Mapping[str, Any]', value).keys() if isinstance(value, Mapping) else frozenset[str]()
    is_typed = {'id', 'context_id', 'status'} <= names or {'message_id', 'role', 'parts'} <= names
    return json_of(cast('Task | Message', value)) if is_typed else cast('Any', value)


class _Names:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def replaced(self, value: Any) -> Any:
        """Return JSON with other ids and times."""
        match value:
            case str():
                return _CHANGING.sub(self._name, value)
            case dict():
                items = cast('dict[str, Any]', value).items()
                return {self.replaced(key): self.replaced(member) for key, member in items}
            case list():
                return [self.replaced(member) for member in cast('list[Any]', value)]
            case _:
                return value

    def _name(self, match: re.Match[str]) -> str:
        return '<time>' if match['time'] else self._names.setdefault(match[0], f'<id {len(self._names) + 1}>')
