"""Tasks and events for snapshots."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from fasta2a.schema import Task

from ...protocol.wire import task_json

__all__ = ('dump',)

_ID = r'[0-9a-f]{32}|[0-9a-f]{16}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
_TIME = r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)'
_CHANGING = re.compile(rf'(?<![0-9a-f])(?:(?P<id>{_ID})|(?P<time>{_TIME}))(?![0-9a-f])')
"""Generated ids and times, in any text."""


def dump(value: Task | Any) -> Any:
    """Return a task or JSON for a snapshot, with the same values in each run.

    Generated ids become `<id 1>`, `<id 2>` and so on, in the order of the value. Times become `<time>`. Ids that the
    test has chosen stay.

    Args:
        value: A task, or JSON of a recording.
    """
    return _Names().replaced(task_json(cast('Task', value)) if _is_task(value) else value)


def _is_task(value: object) -> bool:
    return isinstance(value, Mapping) and {'id', 'context_id', 'status'} <= cast('Mapping[str, Any]', value).keys()


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
