"""Refused calls: status codes, and details as `google.rpc.Status` (§10.6)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from a2a.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from google.protobuf.message import Message as AnyMessage
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from starlette.exceptions import HTTPException

from pydantic_ai_a2a import Access, BearerAuth, Caller, Limits, Messages, Quotas, Rate, to_a2a
from pydantic_ai_a2a.server.auth import request_info

from ...behaviour.refusals import BASE_EXCEPTIONS, SECRET
from .grpc_client import Metadata, Refused, send_request, serving

AGENT = Agent(TestModel(custom_output_text='The answer.'))
TOKEN, OTHER = 'the-token-of-ann-1234', 'the-token-of-bob-1234'
AUTH = BearerAuth({TOKEN: Caller(id='ann', tenant='acme', scopes=frozenset({'list'})), OTHER: 'bob'})
ANN, BOB = (('authorization', f'Bearer {TOKEN}'),), (('authorization', f'Bearer {OTHER}'),)


def code_text_reason(refused: Refused) -> tuple[str, str, str]:
    """The status, the text and the reason, after a check that all name the same call."""
    (info, *_) = refused.details
    assert info['@type'] == 'type.googleapis.com/google.rpc.ErrorInfo'
    assert info['domain'] == 'a2a-protocol.org'
    assert info['metadata']['correlationId'] == refused.trailing['x-correlation-id']
    return refused.code, refused.text, info['reason']


@dataclass(frozen=True)
class Row:
    """A call that every binding refuses, and the end of the call over gRPC."""

    method: str
    request: Callable[[str], AnyMessage]
    """Makes the request, with the id of an ended task of Ann."""
    end: tuple[str, str]
    """Code and reason."""
    metadata: Metadata = ANN
    trailing: Mapping[str, str] = field(default_factory=dict[str, str])
    """A pattern for each further value of the trailing metadata."""


WEBHOOK = TaskPushNotificationConfig(url='no URL')  # a missing capability comes before invalid fields
WITH_WEBHOOK = send_request()
WITH_WEBHOOK.configuration.task_push_notification_config.CopyFrom(WEBHOOK)
PDF = send_request()
PDF.message.parts.add(raw=b'%PDF-1.7', filename='a.pdf')
NOT_FOUND = ('NOT_FOUND', 'TASK_NOT_FOUND')
UNSUPPORTED = ('FAILED_PRECONDITION', 'UNSUPPORTED_OPERATION')
NO_PUSH = ('FAILED_PRECONDITION', 'PUSH_NOTIFICATION_NOT_SUPPORTED')
OLD = ('FAILED_PRECONDITION', 'VERSION_NOT_SUPPORTED')
INVALID = ('INVALID_ARGUMENT', 'INVALID_PARAMS')
FORBIDDEN = ('PERMISSION_DENIED', 'PERMISSION_DENIED')
EXHAUSTED = ('RESOURCE_EXHAUSTED', 'RESOURCE_EXHAUSTED')
UNAUTHENTICATED = ('UNAUTHENTICATED', 'UNAUTHENTICATED')
NO_TOKEN = {'www-authenticate': 'Bearer realm="a2a"'}
WRONG_TOKEN = {'www-authenticate': 'Bearer realm="a2a", error="invalid_token"'}
NO_SCOPE = {'www-authenticate': 'Bearer realm="a2a", error="insufficient_scope", scope="list"'}

REFUSED: dict[str, Row] = {
    'unknown task': Row('GetTask', lambda _: GetTaskRequest(id='unknown'), NOT_FOUND),
    'task of another owner': Row('GetTask', lambda task: GetTaskRequest(id=task), NOT_FOUND, BOB),
    'cancel of an ended task': Row(
        'CancelTask', lambda task: CancelTaskRequest(id=task), ('FAILED_PRECONDITION', 'TASK_NOT_CANCELABLE')
    ),
    'stream of an ended task': Row('SubscribeToTask', lambda task: SubscribeToTaskRequest(id=task), UNSUPPORTED),
    'message to an ended task': Row('SendMessage', lambda task: send_request(task_id=task), UNSUPPORTED),
    'webhook': Row('CreateTaskPushNotificationConfig', lambda _: WEBHOOK, NO_PUSH),
    'message with a webhook': Row('SendMessage', lambda _: WITH_WEBHOOK, NO_PUSH),
    'extended card': Row('GetExtendedAgentCard', lambda _: GetExtendedAgentCardRequest(), UNSUPPORTED),
    'version 0.3': Row('GetTask', lambda _: GetTaskRequest(id='a'), OLD, [*ANN, ('a2a-version', '0.3')]),
    'no message': Row('SendMessage', lambda _: SendMessageRequest(), INVALID),
    'undeclared media type': Row('SendMessage', lambda _: PDF, ('INVALID_ARGUMENT', 'CONTENT_TYPE_NOT_SUPPORTED')),
    'tenant of other callers': Row('GetTask', lambda _: GetTaskRequest(id='a', tenant='other'), INVALID),
    'no credentials': Row('SendMessage', lambda _: send_request(), UNAUTHENTICATED, (), NO_TOKEN),
    'stream without credentials': Row('SendStreamingMessage', lambda _: send_request(), UNAUTHENTICATED, (), NO_TOKEN),
    'unknown credentials': Row(
        'SendMessage', lambda _: send_request(), UNAUTHENTICATED, [('authorization', 'Bearer x')], WRONG_TOKEN
    ),
    'two credentials': Row('SendMessage', lambda _: send_request(), UNAUTHENTICATED, [*ANN, *BOB], WRONG_TOKEN),
    'missing scope': Row('ListTasks', lambda _: ListTasksRequest(), FORBIDDEN, BOB, NO_SCOPE),
    'exhausted rate': Row('ListTasks', lambda _: ListTasksRequest(), EXHAUSTED, ANN, {'retry-after': r'\d+'}),
}


async def test_refusal_has_status_code_and_reason(subtests: pytest.Subtests) -> None:
    app = to_a2a(
        AGENT,
        auth=AUTH,
        access=Access(scopes={'ListTasks': 'list'}, tenants=True),
        default_input_modes=['text/plain'],
        limits=Limits(quotas=Quotas(rates={'ListTasks': Rate(1, timedelta(days=1))})),
    )
    async with serving(app) as agent:
        ended = (await agent.call('SendMessage', send_request(), metadata=ANN)).task
        assert await agent.call('GetTask', GetTaskRequest(id=ended.id, tenant='acme'), metadata=ANN) == ended
        await agent.call('ListTasks', ListTasksRequest(), metadata=ANN)
        for name, row in REFUSED.items():
            with subtests.test(name):
                refused = await agent.refused(row.method, row.request(ended.id), metadata=row.metadata)
                code, _, reason = code_text_reason(refused)
                assert (code, reason) == row.end
                more = {name: value for name, value in refused.trailing.items() if name != 'x-correlation-id'}
                assert more.keys() == row.trailing.keys()
                assert all(re.fullmatch(row.trailing[name], value) for name, value in more.items())
        assert len(await app.list_tasks(caller=Caller(id='ann', tenant='acme'))) == 1
        assert await app.list_tasks(caller=Caller(id='bob')) == []


async def test_missing_required_extension_has_its_status_and_reason() -> None:
    required: Any = {'uri': 'https://example.com/e', 'description': 'Needed.', 'required': True}
    async with serving(to_a2a(AGENT, extensions=[required])) as agent:
        refused = await agent.refused('SendMessage', send_request())
    assert code_text_reason(refused)[::2] == ('FAILED_PRECONDITION', 'EXTENSION_SUPPORT_REQUIRED')


async def test_invalid_fields_are_listed_in_the_details() -> None:
    async with serving(to_a2a(AGENT)) as agent:
        refused = await agent.refused('ListTasks', ListTasksRequest(page_size=500, history_length=-1))
    assert refused.details[1:] == snapshot(
        [
            {
                '@type': 'type.googleapis.com/google.rpc.BadRequest',
                'fieldViolations': [
                    {'field': 'pageSize', 'description': 'Input should be less than or equal to 100'},
                    {'field': 'historyLength', 'description': 'Input should be greater than or equal to 0'},
                ],
            }
        ]
    )


async def test_many_invalid_fields_are_truncated_in_details() -> None:
    request = send_request()
    for _ in range(500):
        request.message.parts.add()
    async with serving(to_a2a(AGENT)) as agent:
        refused = await agent.refused('SendMessage', request)
    assert refused.code == 'INVALID_ARGUMENT'
    fields = [violation['field'] for violation in refused.details[1]['fieldViolations']]
    assert fields == [f'message.parts[{n}]' for n in range(1, 1 + len(fields))]
    assert len(fields) == 12


async def test_long_text_of_error_is_cut() -> None:
    scopes = {f'a-scope-with-a-long-name-{n:03}' for n in range(50)}
    async with serving(to_a2a(AGENT, auth=AUTH, access=Access(scopes={'SendMessage': scopes}))) as agent:
        refused = await agent.refused('SendMessage', send_request(), metadata=BOB)
    assert (refused.code, len(refused.text)) == ('PERMISSION_DENIED', 1_000)


async def test_refused_call_is_audited_with_its_address(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(to_a2a(AGENT, auth=AUTH)) as agent:
        refused = await agent.refused('GetTask', GetTaskRequest(id='a'), metadata=[('authorization', 'Bearer x')])
    (line,) = [json.loads(record.getMessage()) for record in caplog.records if record.name == 'pydantic_ai_a2a.audit']
    assert (line['event'], line['remote']) == ('authentication-failed', '127.0.0.1')
    assert line['correlation_id'] == refused.trailing['x-correlation-id']


async def test_audit_log_has_ipv6_address_of_client(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(to_a2a(AGENT, auth=AUTH), host='::1') as agent:
        await agent.refused('GetTask', GetTaskRequest(id='a'), metadata=[('authorization', 'Bearer x')])
    (line,) = [json.loads(record.getMessage()) for record in caplog.records if record.name == 'pydantic_ai_a2a.audit']
    assert line['remote'] == '::1'


# --- faults of the server and of the user's functions: the call is refused, and never stays open

INTERNAL = ('INTERNAL', 'Internal error.', 'INTERNAL_ERROR')
NOT_STARTED = (
    'The agent cannot be started. The log of the server has the reason, with the correlation id of this error.'
)


async def test_unstartable_agent_is_internal_error_without_retry_after() -> None:
    async with serving(to_a2a(Agent('unknown:model', defer_model_check=True))) as agent:
        refused = await agent.refused('SendMessage', send_request())
    assert code_text_reason(refused) == ('INTERNAL', NOT_STARTED, 'INTERNAL_ERROR')
    assert 'retry-after' not in refused.trailing


@pytest.mark.parametrize(
    ('status', 'end', 'challenge'),
    [
        (401, ('UNAUTHENTICATED', 'Authentication is required.', 'UNAUTHENTICATED'), 'Bearer'),
        (403, ('PERMISSION_DENIED', 'The caller is not allowed to do this.', 'PERMISSION_DENIED'), None),
    ],
)
async def test_http_exception_in_auth_gives_its_grpc_status(
    status: int, end: tuple[str, ...], challenge: str | None
) -> None:
    def current_user(_: Any) -> Caller:
        raise HTTPException(status, 'detail', {'WWW-Authenticate': 'Bearer'})

    async with serving(to_a2a(AGENT, auth=current_user)) as agent:
        refused = await agent.refused('SendMessage', send_request())
    assert code_text_reason(refused) == end
    assert refused.trailing.get('www-authenticate') == challenge


@pytest.mark.parametrize('option', ['auth', 'reply'])
@pytest.mark.parametrize('raised', [*BASE_EXCEPTIONS, 'error'])
async def test_exit_in_operator_function_refuses_its_call(
    raised: str, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Any) -> Any:
        raise BASE_EXCEPTIONS[raised]() if raised in BASE_EXCEPTIONS else RuntimeError(SECRET)

    options: dict[str, Any] = {'auth': fail} if option == 'auth' else {'messages': Messages(reply=fail)}
    async with serving(to_a2a(AGENT, **options)) as agent:
        refused = await agent.refused('SendMessage', send_request())
    assert code_text_reason(refused) == INTERNAL
    assert SECRET not in str(refused)
    assert refused.trailing['x-correlation-id'] in caplog.text
    assert SECRET in caplog.text


async def test_auth_function_cancelling_its_call_refuses_call() -> None:
    async def leave(_: Any) -> Caller:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        raise AssertionError

    async with serving(to_a2a(AGENT, auth=leave)) as agent:
        assert code_text_reason(await agent.refused('SendMessage', send_request())) == INTERNAL


async def test_hanging_auth_function_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_info, 'FUNCTION_TIME', 0.01)

    async def endless(_: Any) -> Caller:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(to_a2a(AGENT, auth=endless)) as agent:
        refused = await agent.refused('SendMessage', send_request())
    assert (refused.code, refused.trailing['retry-after']) == ('UNAVAILABLE', '1')
