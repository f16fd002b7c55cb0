"""The usage of remote tasks, from the run metadata extension. Pure.

A remote agent may make its usage up. So the usage is a detail of the run's own usage, which no limit and no budget
counts: the server of the remote agent has budgets for its own callers.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic.alias_generators import to_camel

from ...json_values import as_object
from ...reported_numbers import count_of
from ...types.a2a_objects import Task
from ...wire.extensions.own_extensions import RUN_METADATA_URI
from ...wire.extensions.run_metadata import USAGE_COUNTS

_DETAILS = {to_camel(name): f'remote_{name}' for name in USAGE_COUNTS}
"""The names of the counts in the details of a run's usage, by their names in the extension."""


def totals(task: Task) -> dict[str, int]:
    """Return the usage of all runs of a task, by the names of the extension; empty if unknown."""
    counts = as_object(as_object(task.get('metadata', {}).get(RUN_METADATA_URI)).get('usage'))
    return {name: count_of(counts[name]) for name in _DETAILS if name in counts}


def difference(used: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Return the usage since an earlier state of the same task, as details of a run's usage."""
    rests = {_DETAILS[name]: count - before.get(name, 0) for name, count in used.items()}
    return {name: rest for name, rest in rests.items() if rest > 0}
