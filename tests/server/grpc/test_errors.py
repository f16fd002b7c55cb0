"""Refused calls: status codes, and details as `google.rpc.Status` (§10.6)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
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
    TaskState,
)
from cryptography.fernet import Fernet
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from starlette.exceptions import HTTPException
from starlette.requests import Request

from pydantic_ai_a2a import Access, Approvals, BearerAuth, Caller, Credentials, Limits, Messages, Quotas, Rate, to_a2a

from ...behaviour.asking import Tools
from ...behaviour.refused import RAISED, SECRET
from .calls import Metadata, Refused, say, serving

AGENT = Agent(TestModel(custom_output_text='The answer.'))
TOKEN, OTHER = 'the-token-of-ann-1234', 'the-token-of-bob-1234'
AUTH = BearerAuth({TOKEN: Caller(id='ann', tenant='acme', scopes=frozenset({'send'})), OTHER: 'bob'})
ANN, BOB = [('authorization', f'Bearer {TOKEN}')], [('authorization', f'Bearer {OTHER}')]


def short(refused: Refused) -> tuple[str, str, str]:
    """The status, the text and the reason, after a check that all name the same call."""
    (info, *_) = refused.details
    assert info['@type'] == 'type.googleapis.com/google.rpc.ErrorInfo'
    assert info['domain'] == 'a2a-protocol.org'
    assert info['metadata']['correlationId'] == refused.trailing['x-correlation-id']
    return refused.code, refused.text, info['reason']


async def test_unstartable_agent_is_an_internal_error_without_retry_after() -> None:
    app = to_a2a(Agent('unknown:model', defer_model_check=True))
    async with serving(app) as agent:
        refused = await agent.refused('SendMessage', say())
    text = 'The agent cannot be started. The log of the server has the reason, with the correlation id of this error.'
    assert short(refused) == ('INTERNAL', text, 'INTERNAL_ERROR')
    assert 'retry-after' not in refused.trailing


@pytest.mark.parametrize(
    ('status', 'end'),
    [
        (401, ('UNAUTHENTICATED', 'Authentication is required.', 'UNAUTHENTICATED')),
        (403, ('PERMISSION_DENIED', 'The caller is not allowed to do this.', 'PERMISSION_DENIED')),
    ],
)
async def test_http_exception_in_auth_gives_its_grpc_status(status: int, end: tuple[str, ...]) -> None:
    def current_user(request: Request) -> Caller:
        raise HTTPException(status, 'detail', {'WWW-Authenticate': 'Bearer'})

    async with serving(to_a2a(AGENT, auth=current_user)) as agent:
        refused = await agent.refused('SendMessage', say())
    assert short(refused) == end
    assert refused.trailing.get('www-authenticate') == ('Bearer' if status == 401 else None)


async def test_every_error_has_its_status_and_reason() -> None:
    required: Any = {'uri': 'https://example.com/e', 'description': 'Needed.', 'required': True}
    async with serving(to_a2a(AGENT)) as agent, serving(to_a2a(AGENT, name='b', extensions=[required])) as strict:
        done = (await agent.call('SendMessage', say())).task
        refused = [
            await agent.refused('GetTask', GetTaskRequest(id='unknown')),
            await agent.refused('CancelTask', CancelTaskRequest(id=done.id)),
            await agent.refused('SubscribeToTask', SubscribeToTaskRequest(id=done.id)),
            await agent.refused('SendMessage', say(task_id=done.id)),
            await agent.refused(
                'CreateTaskPushNotificationConfig',
                TaskPushNotificationConfig(task_id=done.id, url='https://a.example/'),
            ),
            await agent.refused('GetExtendedAgentCard', GetExtendedAgentCardRequest()),
            await agent.refused('ListTasks', ListTasksRequest(), metadata=[('a2a-version', '0.3')]),
            await agent.refused('SendMessage', SendMessageRequest()),
            await strict.refused('SendMessage', say()),
        ]
    assert [(code, text[:60], reason) for code, text, reason in map(short, refused)] == snapshot(
        [
            ('NOT_FOUND', 'Task not found.', 'TASK_NOT_FOUND'),
            ('FAILED_PRECONDITION', 'Task cannot be canceled: it has already ended.', 'TASK_NOT_CANCELABLE'),
            (
                'FAILED_PRECONDITION',
                'The task is completed and has no more events: use GetTask.',
                'UNSUPPORTED_OPERATION',
            ),
            (
                'FAILED_PRECONDITION',
                'The task is completed and accepts no more messages: send a m',
                'UNSUPPORTED_OPERATION',
            ),
            ('FAILED_PRECONDITION', 'Push notifications are not supported.', 'PUSH_NOTIFICATION_NOT_SUPPORTED'),
            ('FAILED_PRECONDITION', 'This agent has no extended agent card.', 'UNSUPPORTED_OPERATION'),
            ('FAILED_PRECONDITION', "A2A version '0.3' is not supported; use 1.0.", 'VERSION_NOT_SUPPORTED'),
            ('INVALID_ARGUMENT', 'Invalid parameters: message: Field required', 'INVALID_PARAMS'),
            (
                'FAILED_PRECONDITION',
                'The agent requires an extension that the request does not de',
                'EXTENSION_SUPPORT_REQUIRED',
            ),
        ]
    )


async def test_missing_capability_is_reported_before_invalid_fields() -> None:
    inline = say()
    inline.configuration.task_push_notification_config.url = 'no URL'
    async with serving(to_a2a(AGENT)) as agent:
        refused = [
            await agent.refused('CreateTaskPushNotificationConfig', TaskPushNotificationConfig()),
            await agent.refused('SendMessage', inline),
        ]
    assert [short(one)[2] for one in refused] == ['PUSH_NOTIFICATION_NOT_SUPPORTED'] * 2


async def test_undeclared_media_type_is_refused() -> None:
    request = say()
    file = request.message.parts.add(raw=b'%PDF-1.7', filename='a.pdf')
    async with serving(to_a2a(AGENT, default_input_modes=['text/plain', 'application/x-protobuf'])) as agent:
        refused = await agent.refused('SendMessage', request)
        file.media_type = 'application/x-protobuf'
        assert (await agent.call('SendMessage', request)).task.status.state == TaskState.TASK_STATE_COMPLETED
    assert short(refused) == (
        'INVALID_ARGUMENT',
        'message.parts[1].raw: application/pdf is not supported. This agent takes text/plain, application/x-protobuf.',
        'CONTENT_TYPE_NOT_SUPPORTED',
    )


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


async def test_many_invalid_fields_are_truncated_in_the_details() -> None:
    request = say()
    for _ in range(500):
        request.message.parts.add()
    async with serving(to_a2a(AGENT)) as agent:
        refused = await agent.refused('SendMessage', request)
    assert refused.code == 'INVALID_ARGUMENT'
    fields = [violation['field'] for violation in refused.details[1]['fieldViolations']]
    assert fields == [f'message.parts[{n}]' for n in range(1, 1 + len(fields))]
    assert len(fields) == 12


@pytest.mark.parametrize('stream', [False, True])
async def test_missing_credentials_or_scope_is_refused_with_a_challenge(stream: bool) -> None:
    method = 'SendStreamingMessage' if stream else 'SendMessage'
    app = to_a2a(AGENT, auth=AUTH, access=Access(scopes={'SendMessage': 'send'}))
    async with serving(app) as agent:
        nobody = await agent.refused(method, say())
        unknown = await agent.refused(method, say(), metadata=[('authorization', 'Bearer nobody')])
        twice = await agent.refused(method, say(), metadata=[*ANN, *BOB])
        bob = await agent.refused(method, say(), metadata=BOB)
    assert [(*short(each), each.trailing['www-authenticate']) for each in (nobody, unknown, twice, bob)] == snapshot(
        [
            ('UNAUTHENTICATED', 'Authentication is required.', 'UNAUTHENTICATED', 'Bearer realm="a2a"'),
            (
                'UNAUTHENTICATED',
                'The credentials are not valid.',
                'UNAUTHENTICATED',
                'Bearer realm="a2a", error="invalid_token"',
            ),
            (
                'UNAUTHENTICATED',
                'The credentials are not valid.',
                'UNAUTHENTICATED',
                'Bearer realm="a2a", error="invalid_token"',
            ),
            (
                'PERMISSION_DENIED',
                'The operation needs credentials with the scope: send.',
                'PERMISSION_DENIED',
                'Bearer realm="a2a", error="insufficient_scope", scope="send"',
            ),
        ]
    )


async def test_caller_reaches_only_own_tasks_and_tenants() -> None:
    app = to_a2a(AGENT, auth=AUTH, access=Access(tenants=True))
    async with serving(app) as agent:
        task = (await agent.call('SendMessage', say(), metadata=ANN)).task
        same = await agent.call('GetTask', GetTaskRequest(id=task.id, tenant='acme'), metadata=ANN)
        foreign = await agent.refused('GetTask', GetTaskRequest(id=task.id), metadata=BOB)
        tenant = await agent.refused('GetTask', GetTaskRequest(id=task.id, tenant='other'), metadata=ANN)
    assert same == task
    assert short(foreign)[::2] == ('NOT_FOUND', 'TASK_NOT_FOUND')
    assert short(tenant) == (
        'INVALID_ARGUMENT',
        'Invalid parameters: tenant: is not a tenant of this caller',
        'INVALID_PARAMS',
    )


async def test_exhausted_rate_has_a_retry_after() -> None:
    quotas = Quotas(rates={'GetTask': Rate(1, timedelta(days=1))})
    async with serving(to_a2a(AGENT, limits=Limits(quotas=quotas))) as agent:
        await agent.refused('GetTask', GetTaskRequest(id='a'))
        refused = await agent.refused('GetTask', GetTaskRequest(id='a'))
    assert (refused.code, refused.details[0]['reason']) == ('RESOURCE_EXHAUSTED', 'RESOURCE_EXHAUSTED')
    assert re.fullmatch(r'\d+', refused.trailing['retry-after'])


@pytest.mark.parametrize('kind', [RuntimeError, SystemExit])
async def test_unexpected_exception_is_only_in_the_log(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(request: object) -> None:
        raise kind('nobody but the log may read this')

    async with serving(to_a2a(AGENT, auth=broken)) as agent:
        refused = await agent.refused('GetTask', GetTaskRequest(id='a'))
    assert short(refused) == ('INTERNAL', 'Internal error.', 'INTERNAL_ERROR')
    assert refused.trailing['x-correlation-id'] in caplog.text
    assert 'nobody but the log may read this' in caplog.text


async def test_refused_call_is_audited_with_its_address(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(to_a2a(AGENT, auth=AUTH)) as agent:
        refused = await agent.refused('GetTask', GetTaskRequest(id='a'), metadata=[('authorization', 'Bearer x')])
    (line,) = [json.loads(record.getMessage()) for record in caplog.records if record.name == 'pydantic_ai_a2a.audit']
    assert (line['event'], line['remote']) == ('authentication-failed', '127.0.0.1')
    assert line['correlation_id'] == refused.trailing['x-correlation-id']


# --- functions of the user that raise what is no `Exception`: the call is refused, and never stays open


def identify(request: Any) -> Caller:
    return Caller(id=request.headers.get('x-caller', 'ann'))


def options_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Return the options of an app that calls a function."""
    if name == 'auth':
        return {'auth': function}
    if name == 'reply':
        return {'auth': identify, 'messages': Messages(reply=function)}
    if name == 'approvers':
        return {'auth': identify, 'approvals': Approvals(approvers=function)}
    access: dict[str, Any] = {name: function}
    if name == 'credentials':
        access = {name: Credentials(exchange=function, keys=[Fernet.generate_key().decode()])}
    return {'auth': identify, 'access': Access(**access)}


@pytest.mark.parametrize('raised', RAISED)
@pytest.mark.parametrize('later', [False, True], ids=['function', 'async function'])
async def test_exit_in_an_operator_function_refuses_its_call(
    raised: str, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise RAISED[raised]()

    async def fail_later(*_: Any) -> Any:
        raise RAISED[raised]()

    async def refused(name: str, method: str, request: Any, metadata: Metadata = ()) -> None:
        caplog.clear()
        options = options_of(fail_later if later and name != 'owner' else fail, name)
        async with serving(to_a2a(Tools().agent, **options)) as agent:
            if name == 'approvers':
                request.id = (await agent.call('SendMessage', say('delete'))).task.id
            answer = await agent.refused(method, request, metadata=metadata)
        if name == 'credentials':
            assert short(answer)[0] == 'UNAVAILABLE'
        else:
            assert short(answer) == ('INTERNAL', 'Internal error.', 'INTERNAL_ERROR')
        assert SECRET not in str(answer)
        assert answer.trailing['x-correlation-id'] in caplog.text

    await refused('auth', 'SendMessage', say())
    await refused('owner', 'SendMessage', say())
    await refused('tenants', 'SendMessage', SendMessageRequest(message=say().message, tenant='acme'))
    await refused('extended_card', 'GetExtendedAgentCard', GetExtendedAgentCardRequest())
    await refused('credentials', 'SendMessage', say())
    await refused('reply', 'SendMessage', say())
    await refused('approvers', 'GetTask', GetTaskRequest(), [('x-caller', 'bob')])


async def test_auth_function_cancelling_its_call_refuses_the_call() -> None:
    async def leave(_: Any) -> Caller:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        raise AssertionError

    async with serving(to_a2a(Agent('test'), auth=leave)) as agent:
        assert short(await agent.refused('SendMessage', say()))[0] == 'INTERNAL'
