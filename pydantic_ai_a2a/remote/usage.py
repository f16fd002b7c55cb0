"""Usage of remote tasks, from the run metadata extension. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from fasta2a.schema import Task
from pydantic_ai.usage import RunUsage

from ..protocol.fields import RUN_METADATA_URI

__all__ = ('difference', 'totals')


def totals(task: Task) -> dict[str, int]:
    """Return the usage of all runs of a task, by the names of the extension; empty if unknown."""
    data = task.get('metadata', {}).get(RUN_METADATA_URI)
    usage = cast('dict[str, Any]', data).get('usage') if isinstance(data, dict) else None
    counts = cast('dict[str, Any]', usage) if isinstance(usage, dict) else {}
    return {name: count for name, count in counts.items() if type(count) is int and count >= 0}


def difference(used: Mapping[str, int], before: Mapping[str, int]) -> RunUsage:
    """Return the usage since an earlier state of the same task."""
    usage = RunUsage()
    for name, count in used.items():
        field = re.sub('[A-Z]', lambda letter: f'_{letter[0].lower()}', name)
        if isinstance(getattr(usage, field, None), int):
            setattr(usage, field, max(0, count - before.get(name, 0)))
    return usage
