from __future__ import annotations

from typing import Any

from inline_snapshot import snapshot
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
from pydantic_ai.usage import RunUsage
from pydantic_core import from_json, to_json

from pydantic_ai_a2a.protocol.fields import RUN_METADATA_URI, is_asked, task_metadata

USAGE = RunUsage(requests=2, input_tokens=7, output_tokens=3, cache_read_tokens=1)


def told(before: dict[str, Any] | None, usage: RunUsage | None, *models: str | None) -> dict[str, Any]:
    messages = [ModelRequest(parts=[]), *(ModelResponse(parts=[TextPart('a')], model_name=name) for name in models)]
    body = None if before is None else to_json(before)
    return from_json(task_metadata(body, run_id='r', usage=usage, messages=messages))


def test_metadata_of_others_stays() -> None:
    assert told({'own': 1}, None, 'm', None) == {'own': 1, RUN_METADATA_URI: {'runId': 'r', 'model': 'm'}}


def test_usage_is_added_to_that_of_runs_before() -> None:
    assert told(told(None, USAGE), USAGE, 'm') == snapshot(
        {
            'https://pypi.org/project/pydantic-ai-a2a/#run-metadata-v1': {
                'runId': 'r',
                'model': 'm',
                'usage': {
                    'requests': 4,
                    'toolCalls': 0,
                    'inputTokens': 14,
                    'outputTokens': 6,
                    'cacheReadTokens': 2,
                    'cacheWriteTokens': 0,
                },
            }
        }
    )


def test_a_run_whose_usage_nobody_knows_leaves_that_of_runs_before() -> None:
    before = told(None, USAGE, 'm')
    assert told(before, None) == {RUN_METADATA_URI: {'runId': 'r', 'usage': before[RUN_METADATA_URI]['usage']}}


def test_a_request_asks_for_it_by_its_extensions_only() -> None:
    assert is_asked(to_json({'extensions': [RUN_METADATA_URI]}))
    assert not is_asked(to_json({'metadata': {'about': RUN_METADATA_URI}}))
    assert not is_asked(to_json({'extensions': [f'{RUN_METADATA_URI}.1']}))
    assert not is_asked(b'{}')
