"""What nobody is told: clients nothing of errors, prompts and tools, logs and spans no content and no credentials."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent, Tool
from pydantic_ai.exceptions import (
    ConcurrencyLimitExceeded,
    ContentFilterError,
    ModelAPIError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelTimeoutError,
    ModelUnavailableError,
    RunTimedOut,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

from pydantic_ai_a2a import APIKeyAuth, BearerAuth, Workers, errors, to_a2a
from pydantic_ai_a2a.server.conversion.failures import (
    CHANGED_AGENT,
    ENGINE_FAILED,
    EXPIRED_ATTEMPTS,
    SHUTDOWN,
    EngineFailure,
)
from pydantic_ai_a2a.server.store.ports import Pause, TaskReader
from pydantic_ai_a2a.types import Page, StoredTask, TaskQuery

from ...agents import scripted_model
from ...app_client import Client, lifespan, message, rpc
from ...constants import with_constants
from ...docs.blocks import ROOT, table
from ...serving import serving
from ...spans import Spans, spans
from ..refusals import error_of_answer, serving_without_runs

__all__ = ('spans',)  # a fixture
SECRET = 'SECRET'
"""In all that must not get out: what users and tools say, texts of errors, credentials."""
KEY = f'{SECRET}-key-of-ann-1234567890'
SENTENCES = {
    'storage': 'The store of the server failed.',
    'no-model': 'The agent has no model.',
    'download': 'Files were not downloaded in time.',
    'busy': 'The agent is busy; try again later.',
    'usage-limit': 'The task reached its usage limit.',
    'timeout': 'The task ran out of time.',
    'refused-content': 'The model refused the content.',
    'bad-output': 'The model gave no usable answer.',
    'provider-busy': 'The model provider is busy; try again later.',
    'provider-error': 'The model provider failed.',
    'engine': 'The engine that ran the task has ended the run.',
    'changed-agent': 'The agent was changed while the task was running.',
    'internal': 'The agent failed with an internal error.',
    'shutdown': 'The server shut down before the task was done.',
    'attempts': 'The task was started too many times and never ended.',
    'expired': 'The task waited too long.',
}
"""All that a client reads about a failure, by its class; `bad-input` has what a worker of the user's
own says, `refused-file` the names of the client's files, and `tool-conflict` the names of the client's tools."""
ERRORS: Sequence[tuple[str, BaseException]] = [
    ('storage', errors.StoreFailed(SECRET)),
    ('no-model', errors.NoModel(SECRET)),
    ('download', errors.DownloadTimedOut(SECRET)),
    ('busy', ConcurrencyLimitExceeded(SECRET)),
    ('usage-limit', UsageLimitExceeded(SECRET)),
    ('timeout', RunTimedOut(SECRET)),
    ('refused-content', ContentFilterError(SECRET, body=SECRET)),
    ('bad-output', UnexpectedModelBehavior(SECRET, body=SECRET)),
    ('engine', EngineFailure(*ENGINE_FAILED)),
    ('changed-agent', EngineFailure(*CHANGED_AGENT)),
    ('provider-busy', ModelRateLimitError(SECRET, SECRET)),
    ('provider-busy', ModelQuotaExceededError(SECRET, SECRET)),
    ('provider-busy', ModelOverloadedError(SECRET, SECRET)),
    ('provider-busy', ModelUnavailableError(SECRET, SECRET)),
    ('provider-busy', ModelTimeoutError(SECRET, SECRET)),
    ('provider-error', ModelAPIError(SECRET, SECRET)),
    ('provider-error', ModelHTTPError(500, SECRET, SECRET)),
    ('provider-error', ExceptionGroup(SECRET, [ValueError(SECRET), ModelAPIError(SECRET, SECRET)])),
    ('internal', ValueError(SECRET)),
]
CLIENT_ERRORS = [
    each
    for each in (getattr(errors, name) for name in errors.__all__)
    if isinstance(each, type) and issubclass(each, errors.A2AError)
]


def span_text(spans: Spans) -> str:
    """All that spans say."""
    ended = spans.all()
    assert ended
    return ''.join(span.to_json() for span in ended)


def log_text(caplog: pytest.LogCaptureFixture) -> str:
    """All that is logged, but for the tracebacks of what went wrong inside."""
    return '\n'.join(f'{each.getMessage()} {vars(each).get("audit")}' for each in caplog.records)


# --- failed runs ----------------------------------------------------------------------------------------------------


def test_documented_failure_kinds_are_all_tested() -> None:
    documented = {kind for kind, *_ in table(ROOT / 'docs' / 'errors.md', 'Kind')}
    others = {SHUTDOWN.kind, EXPIRED_ATTEMPTS.kind, 'expired'}
    own = {'bad-input', 'refused-file', 'tool-conflict'}
    assert documented - own == SENTENCES.keys() == {kind for kind, _ in ERRORS} | others
    assert SENTENCES[EXPIRED_ATTEMPTS.kind] == EXPIRED_ATTEMPTS.sentence


@pytest.mark.parametrize(('kind', 'error'), ERRORS, ids=[type(error).__name__ for _, error in ERRORS])
async def test_failed_run_shows_fixed_sentence_and_correlation_id(
    kind: str, error: BaseException, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, 'pydantic_ai_a2a')

    workers = with_constants(Workers, retries=1, backoff=0.001)
    async with serving(
        Agent(scripted_model(error)),
        auth=BearerAuth({KEY: 'ann'}),
        workers=workers,
        headers={'Authorization': f'Bearer {KEY}'},
    ) as client:
        sent = await client.send('a question')
        answers = [sent, await client.get_task(sent['id'])]
    said = sent['status']['message']
    assert [part['text'] for part in said['parts']] == [SENTENCES[kind]]
    assert said['metadata'].keys() == {'failure', 'correlationId'}
    assert said['metadata']['correlationId'] in log_text(caplog)
    assert SECRET not in json.dumps(answers) + span_text(spans) + log_text(caplog)
    assert KEY not in caplog.text


async def test_task_ended_by_shutdown_says_server_shut_down() -> None:
    held = asyncio.Event()

    async def hold(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        held.set()
        await asyncio.Event().wait()
        raise AssertionError('it is never set')

    app = to_a2a(Agent(FunctionModel(hold)), workers=Workers(drain_grace=0.001))
    async with lifespan(app):
        await Client(app).send(returnImmediately=True)
        await held.wait()
    [task] = await app.list_tasks()
    assert [part.get('text') for part in task['status'].get('message', {}).get('parts', ())] == [SENTENCES['shutdown']]


# --- refusals -------------------------------------------------------------------------------------------------------


class RaisingReader(TaskReader):
    """A store whose every read raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def load(self, task_id: str, owner: str | None, **options: Any) -> StoredTask | None:
        raise self.error from ValueError(SECRET)

    async def list(self, query: TaskQuery) -> Page:
        raise self.error from ValueError(SECRET)

    async def pause(self, task_id: str, owner: str) -> Pause | None:
        raise self.error from ValueError(SECRET)

    async def unread(self, task_id: str, after: int) -> Sequence[tuple[int, bytes, bytes | None]]:
        raise self.error from ValueError(SECRET)


async def test_a2a_error_shows_only_its_own_sentence(
    subtests: pytest.Subtests, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Agent('test'), auth=APIKeyAuth({KEY: 'ann'}), headers={'X-API-Key': KEY}) as client:
        for error in CLIENT_ERRORS:
            with subtests.test(error.__name__):
                caplog.clear()
                spans.clear()
                client.a2a_app.backend.reader = RaisingReader(error())
                answer = await client.post(rpc('GetTask', {'id': SECRET}))
                assert error_of_answer(answer, status=answer.status).message.rstrip('.') == error().message.rstrip('.')
                assert SECRET not in str(answer) + span_text(spans)
                # The log tells the operator why the agent cannot be entered, as it does for internal errors.
                assert (SECRET in caplog.text) is (error in (errors.AgentUnavailable, errors.AgentUnusable))


async def test_store_exception_is_internal_error_with_correlation_id(
    spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Agent('test'), auth=APIKeyAuth({KEY: 'ann'}), headers={'X-API-Key': KEY}) as client:
        client.a2a_app.backend.reader = RaisingReader(OSError(SECRET))
        for operation in ('GetTask', 'SubscribeToTask'):
            answer = await client.post(rpc(operation, {'id': SECRET}))
            assert error_of_answer(answer, status=answer.status).message.rstrip('.') == 'Internal error'
            assert answer.headers['x-correlation-id'] in log_text(caplog)
            assert SECRET not in str(answer) + span_text(spans) + log_text(caplog)
    assert KEY not in caplog.text


BAD: list[tuple[str, Any]] = [
    ('SendMessage', {'message': {'messageId': SECRET}}),
    ('SendMessage', {'message': message(parts=[{'url': f'ftp://{SECRET}'}])}),
    ('SendMessage', {'message': message(parts=[{'url': f'https://{SECRET}:{SECRET}@example.com'}])}),
    ('SendMessage', {'message': message(parts=[{'raw': f'{SECRET}!'}])}),
    ('SendMessage', {'message': message(SECRET, taskId=SECRET)}),
    ('SendMessage', {'message': message(SECRET, role=SECRET)}),
    ('SendMessage', {'message': message(SECRET), 'configuration': {'acceptedOutputModes': [f'{SECRET}/{SECRET}']}}),
    ('GetTask', {'id': SECRET}),
    ('CancelTask', {'id': SECRET}),
]


@pytest.mark.parametrize(('operation', 'params'), BAD)
async def test_refusal_does_not_repeat_request_content(
    operation: str, params: Any, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, 'pydantic_ai_a2a')
    async with serving_without_runs() as client:
        answer = await client.post(rpc(operation, params), {'Authorization': f'Bearer {KEY}', 'Cookie': f'key={KEY}'})
        error_of_answer(answer, status=answer.status)
    everything = ''.join(span.to_json() for span in spans.all()) + caplog.text
    assert SECRET not in str(answer) + everything


# --- what agents do -------------------------------------------------------------------------------------------------


async def think(
    messages: list[ModelMessage], _: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart]]:
    """A model that thinks, calls a tool, and then answers."""
    yield {0: DeltaThinkingPart(content=f'{SECRET} thought', signature=SECRET)}
    if len(messages) > 1:
        yield 'an answer'
    else:
        yield {1: DeltaToolCall(name=f'look_{SECRET}', json_args=f'{{"where": "{SECRET}"}}', tool_call_id=SECRET)}


async def test_prompts_thoughts_and_tools_are_not_exposed(spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, 'pydantic_ai_a2a')

    def look(where: str) -> str:
        return f'{SECRET} {where}'

    model, tool = FunctionModel(stream_function=think, model_name=SECRET), Tool(look, name=f'look_{SECRET}')
    agent = Agent(
        model, name='agent', system_prompt=f'{SECRET} prompt', instructions=f'{SECRET} instructions', tools=[tool]
    )
    async with serving(agent) as client:
        async with client.live.send_streaming('a question') as stream:
            events = await stream.rest()
        answers = [event.data for event in events]
        answers.append(await client.get_task(events[0].result['task']['id']))
        card = await client.get('/.well-known/agent-card.json')
    assert 'an answer' in json.dumps(answers)
    assert SECRET not in json.dumps(answers) + str(card) + span_text(spans) + caplog.text
