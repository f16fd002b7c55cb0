"""The official client of A2A 1.0 against real servers."""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode
from collections.abc import Awaitable, Generator

import pytest
from a2a.client import ClientCallContext
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.helpers import (
    get_data_parts,
    get_message_text,
    new_data_part,
    new_raw_part,
    new_text_part,
)
from a2a.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Role,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from a2a.utils import errors
from google.protobuf.json_format import MessageToDict
from inline_snapshot import snapshot

from pydantic_ai_a2a.wire.extensions import own_extensions, pending_calls_extension
from pydantic_ai_a2a.wire.extensions.own_extensions import RUN_METADATA_URI

from ..behaviour.promised_behaviours import covers
from .auth_apps import TOKEN
from .official import (
    BINDINGS,
    DEPLOYMENTS,
    OFFICIAL,
    Deployment,
    collect,
    current_binding,
    deploy,
    event_summary,
    official_client,
    send,
    serving_process,
    state_of,
    task_of,
    text_of,
    text_request,
    using_binding,
)

PNG = b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==')
ONE_PROCESS, TWO_PROCESSES = DEPLOYMENTS
DEPLOYED = {'JSONRPC': TWO_PROCESSES, 'HTTP+JSON': ONE_PROCESS, 'GRPC': ONE_PROCESS}
"""Where the clients of a binding find their agent. No binding knows which process runs the tasks."""


@pytest.fixture(scope='module', params=BINDINGS, autouse=True)
def binding(request: pytest.FixtureRequest) -> Generator[str]:
    """What the clients speak; each has servers of its own."""
    with using_binding(request.param):
        yield request.param


@pytest.fixture(scope='module')
def server(binding: str, request: pytest.FixtureRequest) -> Generator[Deployment]:
    with deploy('tests.e2e.apps:app', DEPLOYED[binding], lambda: request.getfixturevalue('postgres')) as running:
        yield running


@pytest.fixture(scope='module')
def mirror(binding: str, request: pytest.FixtureRequest) -> Generator[Deployment]:
    with deploy('tests.e2e.apps:mirror', DEPLOYED[binding], lambda: request.getfixturevalue('postgres')) as running:
        yield running


@covers(OFFICIAL)
async def test_card_lists_interfaces_and_capabilities(server: Deployment) -> None:
    async with official_client(server.url) as client:
        card = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
    over_grpc = current_binding() == 'GRPC'
    (*over_http, older) = (('JSONRPC', '1.0'), ('HTTP+JSON', '1.0'), ('JSONRPC', '0.3'))
    declared: list[tuple[str, str]] = []
    for interface in map(MessageToDict, card.supported_interfaces):
        if interface['protocolBinding'] == 'GRPC':
            assert re.fullmatch(r'127\.0\.0\.1:\d+', interface.pop('url'))
        else:
            assert interface.pop('url') == server.url
        declared.append((interface['protocolBinding'], interface['protocolVersion']))
    assert declared == [*over_http, *([('GRPC', '1.0')] if over_grpc else ()), older]
    assert MessageToDict(card.capabilities) == {
        'streaming': True,
        'pushNotifications': False,
        'extensions': [
            *(
                own_extensions.RUN_METADATA,
                own_extensions.LIVE_TEXT,
                pending_calls_extension.PENDING_CALLS,
                own_extensions.REPLAY,
            ),
            *([own_extensions.EVENT_IDS] if over_grpc else ()),
        ],
        'extendedAgentCard': False,
    }
    assert (card.name, card.description, card.version) == ('Puppet', 'Does what it is told.', '1.0.0')
    assert [skill.id for skill in card.skills] == ['puppet']


@covers(OFFICIAL)
async def test_blocking_send_returns_completed_task(server: Deployment) -> None:
    async with official_client(server.url, streaming=False) as client:
        task = await task_of(client.send_message(text_request('say hello to everybody')))
        same = await client.get_task(GetTaskRequest(id=task.id))
        without_history = await client.get_task(GetTaskRequest(id=task.id, history_length=0))
    assert (state_of(task), text_of(task)) == ('TASK_STATE_COMPLETED', 'hello to everybody ')
    assert [(message.role, get_message_text(message)) for message in task.history] == [
        (Role.ROLE_USER, 'say hello to everybody'),
        (Role.ROLE_AGENT, 'hello to everybody '),
    ]
    assert same == task
    assert (len(without_history.history), text_of(without_history)) == (0, text_of(task))


@covers(OFFICIAL)
async def test_answer_text_is_streamed_in_pieces(server: Deployment) -> None:
    async with official_client(server.url) as client:
        events = await collect(client.send_message(text_request('say hello to everybody')))
    assert event_summary(events) == snapshot(
        [
            'task SUBMITTED',
            'WORKING',
            "'hello '",
            "'to ' append",
            "'everybody ' append",
            "'' append last_chunk",
            'COMPLETED',
        ]
    )


@covers(OFFICIAL, 'text between tool calls')
async def test_text_beside_tool_call_becomes_status_message(server: Deployment) -> None:
    await server.gates.open('open')
    async with official_client(server.url) as client:
        events = await collect(client.send_message(text_request('use open')))
        task = await client.get_task(GetTaskRequest(id=events[0].task.id))
    assert event_summary(events) == snapshot(
        [
            'task SUBMITTED',
            'WORKING',
            "'I use a tool.'",
            "WORKING 'I use a tool.'",
            "'The tool is done.'",
            "'' append last_chunk",
            'COMPLETED',
        ]
    )
    assert text_of(task) == 'The tool is done.'


@covers(OFFICIAL)
async def test_conversation_continues_in_its_context(server: Deployment) -> None:
    async with official_client(server.url, streaming=False) as client:
        first = await task_of(client.send_message(text_request('say one')))
        second = await task_of(client.send_message(text_request('recall', context_id=first.context_id)))
        elsewhere = await task_of(client.send_message(text_request('recall')))
    assert (second.context_id, second.id != first.id) == (first.context_id, True)
    assert text_of(second) == 'Before, you said: say one.'
    assert text_of(elsewhere) == 'Before, you said: .'


@covers(OFFICIAL)
async def test_list_tasks_is_paged(server: Deployment) -> None:
    async with official_client(server.url, streaming=False) as client:
        first = await task_of(client.send_message(text_request('say one')))
        context_id = first.context_id
        rest = [await task_of(client.send_message(text_request('say more', context_id=context_id))) for _ in range(2)]
        newest = await client.list_tasks(ListTasksRequest(context_id=context_id, page_size=2))
        oldest = await client.list_tasks(
            ListTasksRequest(
                context_id=context_id, page_size=2, page_token=newest.next_page_token, include_artifacts=True
            )
        )
    assert [task.id for task in newest.tasks] == [rest[1].id, rest[0].id]
    assert (newest.total_size, newest.page_size, [len(task.artifacts) for task in newest.tasks]) == (3, 2, [0, 0])
    assert list(oldest.tasks) == [first]
    assert oldest.next_page_token == ''


@covers(OFFICIAL)
async def test_return_immediately_gives_submitted_task(server: Deployment) -> None:
    gates = server.gates
    async with official_client(server.url, streaming=False, polling=True) as client:
        task = await task_of(client.send_message(text_request('wait poll')))
        await gates.reached('poll')
        running = await client.get_task(GetTaskRequest(id=task.id))
    async with official_client(server.url) as streaming:
        subscription = streaming.subscribe(SubscribeToTaskRequest(id=task.id))
        events = [await anext(subscription)]
        await gates.open('poll')
        events += await collect(subscription)
    assert (state_of(task), state_of(running)) == ('TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING')
    assert event_summary(events)[-1] == 'COMPLETED'


@covers(OFFICIAL, 'cancel a running task')
@pytest.mark.parametrize('command', ['use', 'wait'], ids=['in a tool', 'in the model'])
async def test_cancel_returns_after_run_has_stopped(server: Deployment, command: str) -> None:
    gates, gate = server.gates, f'cancel-{command}'
    async with official_client(server.url) as client, asyncio.TaskGroup() as both:
        stream = client.send_message(text_request(f'{command} {gate}'))
        task_id = (await anext(stream)).task.id
        rest = both.create_task(collect(stream))
        await gates.reached(gate)
        canceled = await client.cancel_task(CancelTaskRequest(id=task_id))
        assert await gates.stopped(gate)
    assert state_of(canceled) == 'TASK_STATE_CANCELED'
    assert event_summary(rest.result())[-1] == 'CANCELED'


@covers(OFFICIAL, 'resubscribe in mid-run')
async def test_subscriber_gets_snapshot_then_remaining_events(server: Deployment) -> None:
    gates = server.gates
    async with official_client(server.url) as client, official_client(server.url) as late, asyncio.TaskGroup() as both:
        stream = client.send_message(text_request('wait subscribe'))
        seen = [await anext(stream) for _ in range(3)]
        subscription = late.subscribe(SubscribeToTaskRequest(id=seen[0].task.id))
        snapshot_of_task = (await anext(subscription)).task
        following = both.create_task(collect(subscription))
        rest = both.create_task(collect(stream))
        await gates.open('subscribe')
    assert event_summary(seen) == ['task SUBMITTED', 'WORKING', "'Before the gate, '"]
    assert (state_of(snapshot_of_task), text_of(snapshot_of_task)) == ('TASK_STATE_WORKING', 'Before the gate, ')
    assert event_summary(rest.result()) == snapshot(["'and after.' append", "'' append last_chunk", 'COMPLETED'])
    assert following.result() == rest.result()


@covers(OFFICIAL)
async def test_two_clients_are_served_concurrently(server: Deployment) -> None:
    gates = server.gates
    async with (
        official_client(server.url, streaming=False) as plain,
        official_client(server.url) as streaming,
        asyncio.TaskGroup() as both,
    ):
        sent = both.create_task(task_of(plain.send_message(text_request('use left'))))
        streamed = both.create_task(collect(streaming.send_message(text_request('use right'))))
        for gate in ('left', 'right'):
            await gates.reached(gate)
        for gate in ('right', 'left'):
            await gates.open(gate)
    assert text_of(sent.result()) == 'The tool is done.'
    assert event_summary(streamed.result())[-1] == 'COMPLETED'
    assert sent.result().context_id != streamed.result()[0].task.context_id


@covers(OFFICIAL, 'failed run')
async def test_failed_task_has_safe_reason_and_correlation_id(server: Deployment) -> None:
    async with official_client(server.url, streaming=False) as client:
        task = await task_of(client.send_message(text_request('explode')))
    correlation_id = MessageToDict(task.status.message.metadata)['correlationId']
    assert (state_of(task), get_message_text(task.status.message)) == (
        'TASK_STATE_FAILED',
        'The agent failed with an internal error.',
    )
    server.wait_for(rf'correlation id {correlation_id}(.*\n)+.*nobody but the log may read this')


@covers(OFFICIAL)
@pytest.mark.parametrize('streaming', [False, True])
async def test_files_are_sent_and_received(mirror: Deployment, streaming: bool) -> None:
    parts = [new_text_part('both'), new_raw_part(PNG, filename='dot.png'), new_raw_part(b'a,b\n', 'text/csv', 'a.csv')]
    async with official_client(mirror.url, streaming=streaming) as client:
        answers = await collect(client.send_message(send(*parts)))
        task_id = answers[0].task.id
        task = await client.get_task(GetTaskRequest(id=task_id))
    ((text, *files),) = [artifact.parts for artifact in task.artifacts]
    assert text.text == 'Here are 2 files.'
    assert [(file.raw, file.media_type, file.filename) for file in files] == [
        (PNG, 'image/png', 'dot.png'),
        (b'a,b\n', 'text/csv', 'a.csv'),
    ]


@covers(OFFICIAL)
@pytest.mark.parametrize('streaming', [False, True])
async def test_data_parts_are_sent_and_received(mirror: Deployment, streaming: bool) -> None:
    data = {'name': 'Zoë', 'sizes': [1, 2.5, None], 'nested': {'yes': True}}
    async with official_client(mirror.url, streaming=streaming) as client:
        answers = await collect(client.send_message(send(new_data_part(data), new_raw_part(PNG, filename='dot.png'))))
        task = await client.get_task(GetTaskRequest(id=answers[0].task.id))
    ((part,),) = [artifact.parts for artifact in task.artifacts]
    assert get_data_parts([part]) == [{'result': {'data': data, 'files': ['dot.png: image/png']}}]
    assert MessageToDict(part.metadata) == snapshot(
        {
            'python_type': 'Seen',
            'json_schema': {
                'description': 'What the mirror got.',
                'type': 'object',
                'title': 'Seen',
                'properties': {
                    'files': {'items': {'type': 'string'}, 'type': 'array', 'title': 'Files'},
                    'data': {'additionalProperties': True, 'type': 'object', 'title': 'Data'},
                },
                'required': ['data', 'files'],
            },
        }
    )
    assert part.media_type == 'application/json'


@covers(OFFICIAL)
async def test_each_error_raises_matching_client_exception(server: Deployment) -> None:
    async with official_client(server.url) as client:
        done = (await collect(client.send_message(text_request('say done'))))[0].task
        calls: dict[str, Awaitable[object]] = {
            'get unknown': client.get_task(GetTaskRequest(id='unknown')),
            'cancel unknown': client.cancel_task(CancelTaskRequest(id='unknown')),
            'subscribe unknown': collect(client.subscribe(SubscribeToTaskRequest(id='unknown'))),
            'continue unknown': collect(client.send_message(text_request('say it', task_id='unknown'))),
            'cancel done': client.cancel_task(CancelTaskRequest(id=done.id)),
            'subscribe done': collect(client.subscribe(SubscribeToTaskRequest(id=done.id))),
            'continue done': collect(client.send_message(text_request('say it', task_id=done.id))),
            'other context': collect(client.send_message(text_request('say it', task_id=done.id, context_id='other'))),
            'no parts': collect(client.send_message(send())),
            'bytes of no type': collect(client.send_message(send(new_raw_part(b'\xfe\xff\x00\x01')))),
            'push': client.create_task_push_notification_config(
                TaskPushNotificationConfig(task_id=done.id, url='https://example.com/')
            ),
            'version': client.get_task(
                GetTaskRequest(id=done.id), context=ClientCallContext(service_parameters={'A2A-Version': '9.9'})
            ),
        }
        refused = dict(zip(calls, await asyncio.gather(*calls.values(), return_exceptions=True), strict=True))
    assert {call: type(error) for call, error in refused.items()} == {
        'get unknown': errors.TaskNotFoundError,
        'cancel unknown': errors.TaskNotFoundError,
        'subscribe unknown': errors.TaskNotFoundError,
        'continue unknown': errors.TaskNotFoundError,
        'cancel done': errors.TaskNotCancelableError,
        'subscribe done': errors.UnsupportedOperationError,
        'continue done': errors.UnsupportedOperationError,
        'other context': errors.InvalidParamsError,
        'no parts': errors.InvalidParamsError,
        'bytes of no type': errors.ContentTypeNotSupportedError,
        'push': errors.PushNotificationNotSupportedError,
        # Over gRPC, the client also names its own version.
        'version': errors.InvalidRequestError if current_binding() == 'GRPC' else errors.VersionNotSupportedError,
    }


# --- extended cards, tenants, the run metadata, and answers that are messages


async def test_client_fetches_extended_agent_card() -> None:
    context = ClientCallContext(service_parameters={'authorization': f'Bearer {TOKEN}'})
    with serving_process('tests.e2e.auth_apps:extended') as server:
        async with official_client(server.url) as client:
            card = await client.get_extended_agent_card(GetExtendedAgentCardRequest(), context=context)
    assert card.description == 'More.'


async def test_client_reaches_only_tenant_of_its_card() -> None:
    with serving_process('tests.e2e.auth_apps:tenants') as server:
        async with (
            official_client(f'{server.url}acme/', streaming=False) as acme,
            official_client(f'{server.url}umbrella/', streaming=False) as umbrella,
            official_client(server.url, streaming=False) as plain,
        ):
            task = await task_of(acme.send_message(text_request('hello')))
            assert await acme.get_task(GetTaskRequest(id=task.id)) == task
            assert (await acme.list_tasks(ListTasksRequest())).total_size == 1
            for other in (umbrella, plain):
                with pytest.raises(errors.TaskNotFoundError):
                    await other.get_task(GetTaskRequest(id=task.id))
                assert (await other.list_tasks(ListTasksRequest())).total_size == 0


async def test_client_reads_direct_message_reply() -> None:
    with serving_process('tests.e2e.auth_apps:messages') as server:
        for streaming in (False, True):
            async with official_client(server.url, streaming=streaming) as client:
                [answer] = await collect(client.send_message(text_request('hello')))
                assert (await client.list_tasks(ListTasksRequest())).total_size == 0
            assert (answer.message.role, answer.message.parts[0].text) == (Role.ROLE_AGENT, 'success (no tool calls)')
            assert answer.message.context_id
            assert not answer.message.task_id


async def test_client_activates_run_metadata_extension(server: Deployment) -> None:
    async with official_client(server.url, streaming=False) as client:
        parameters = ServiceParametersFactory.create([with_a2a_extensions([RUN_METADATA_URI])])
        context = ClientCallContext(service_parameters=parameters)
        task = await task_of(client.send_message(text_request('say hello'), context=context))
        seen = await client.get_task(GetTaskRequest(id=task.id))
    assert MessageToDict(seen.metadata)[RUN_METADATA_URI]['usage']['requests'] == 1.0
