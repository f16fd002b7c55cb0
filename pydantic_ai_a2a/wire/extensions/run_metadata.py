"""The data of the run metadata extension: model and usage of a run, in the metadata of its task.

The extension is data only, and optional for clients (§4.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic.alias_generators import to_camel
from pydantic_core import from_json, to_json

from ...reported_numbers import count_of
from .own_extensions import RUN_METADATA_URI

USAGE_COUNTS = ('requests', 'tool_calls', 'input_tokens', 'output_tokens', 'cache_read_tokens', 'cache_write_tokens')
"""The published counts of a run's usage; the cost is never published."""
_URI = RUN_METADATA_URI.encode()


def asks_run_metadata(request: bytes) -> bool:
    """Return True if the message of a run has activated the extension.

    Args:
        request: The stored part of the message's request, as a JSON object.
    """
    return _URI in request and RUN_METADATA_URI in from_json(request).get('extensions', ())


def task_metadata(before: bytes | None, *, run_id: str, usage: Any, messages: Iterable[Any]) -> bytes:
    """Return a task's metadata after a run, as a JSON object.

    Args:
        before: The metadata before the run, whose usage is added to.
        run_id: Id of the run.
        usage: Usage of the run, a `RunUsage`; None if unknown.
        messages: New model messages of the run; the last response names the model.
    """
    metadata: dict[str, Any] = {} if before is None else from_json(before)
    before_run: Mapping[str, int] = metadata.get(RUN_METADATA_URI, {}).get('usage', {})
    data: dict[str, Any] = {'runId': run_id}
    if models := [message.model_name for message in messages if message.kind == 'response' and message.model_name]:
        data['model'] = models[-1]
    if usage is not None:
        counts = {to_camel(name): count_of(getattr(usage, name)) for name in USAGE_COUNTS}
        data['usage'] = {name: count_of(before_run.get(name, 0) + count) for name, count in counts.items()}
    elif before_run:
        data['usage'] = before_run
    return to_json({**metadata, RUN_METADATA_URI: data})
