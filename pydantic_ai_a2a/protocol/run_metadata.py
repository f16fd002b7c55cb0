"""The run metadata extension: what a run used, as its task's metadata says it. Pure; knows neither runs nor models.

It is data only: whoever does not activate it misses nothing (§4.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fasta2a.schema import AgentExtension
from pydantic.alias_generators import to_camel
from pydantic_core import from_json, to_json

__all__ = ('EXTENSION', 'URI', 'is_asked', 'task_metadata')

URI = 'https://pypi.org/project/pydantic-ai-a2a/#run-metadata-v1'
"""Names the extension, and its data in metadata. Another meaning of the data gets another URI."""

EXTENSION = AgentExtension(
    uri=URI, description='A task that it is activated for has its run id, model and usage in its metadata.'
)
"""Its declaration on agent cards."""

_COUNTS = ('requests', 'tool_calls', 'input_tokens', 'output_tokens', 'cache_read_tokens', 'cache_write_tokens')
"""What is told of what runs use; never what it cost."""
_URI = URI.encode()


def is_asked(request: bytes) -> bool:
    """Whether the message that a run answers has activated the extension.

    Args:
        request: What is kept of its request, as a JSON object.
    """
    return _URI in request and URI in from_json(request).get('extensions', ())


def task_metadata(before: bytes | None, *, run_id: str, usage: Any, messages: Iterable[Any]) -> bytes:
    """A task's metadata after a run, as a JSON object.

    Args:
        before: What it was; the usage of runs before is added to.
        run_id: Names the run.
        usage: What it used, a `RunUsage`; None if nobody knows.
        messages: Its new model messages; the last response names the model.
    """
    metadata: dict[str, Any] = {} if before is None else from_json(before)
    known: Mapping[str, int] = metadata.get(URI, {}).get('usage', {})
    told: dict[str, Any] = {'runId': run_id}
    if models := [each.model_name for each in messages if each.kind == 'response' and each.model_name]:
        told['model'] = models[-1]
    if usage is not None:
        told['usage'] = {name: known.get(name, 0) + count for name, count in _counts(usage)}
    elif known:
        told['usage'] = known
    return to_json({**metadata, URI: told})


def _counts(usage: Any) -> list[tuple[str, int]]:
    return [(to_camel(name), getattr(usage, name)) for name in _COUNTS]
