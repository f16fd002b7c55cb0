"""The operations over gRPC, with the messages of the official SDK."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.signing import create_signature_verifier
from google.protobuf.json_format import MessageToDict
from opentelemetry import baggage
from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Access, BearerAuth, Messages, Push, Results, to_a2a
from pydantic_ai_a2a.wire.protobuf.method_messages import methods
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS

from ...agents import GatedAgent
from ...app_client import Client
from ...constants import with_constants
from ...spans import TRACE, TRACEPARENT, Spans, spans, trace_of
from ...wire.signing.signing_keys import private_pem, public_pem
from .grpc_client import event_id, send_request, serving, text_of

__all__ = ('spans',)  # a fixture

AGENT = Agent(TestModel(custom_output_text='The answer.'))
TOKEN = 'the-token-of-ann-1234'
ANN = [('authorization', f'Bearer {TOKEN}')]


def test_service_has_every_operation_with_its_streaming_kind() -> None:
    assert {name: method.server_streaming for name, method in methods().items()} == {
        name: operation.stream for name, operation in OPERATIONS.items()
    }


async def test_send_get_list_and_stream_return_same_task() -> None:
    request = send_request(context_id='c1')
    async with serving(to_a2a(AGENT)) as agent:
        task = (await agent.call('SendMessage', request)).task
        same = await agent.call('GetTask', GetTaskRequest(id=task.id))
        listed = await agent.call('ListTasks', ListTasksRequest(context_id='c1', include_artifacts=True))
        repeated = await agent.stream('SendStreamingMessage', request).rest()
    assert (TaskState.Name(task.status.state), text_of(task)) == ('TASK_STATE_COMPLETED', 'The answer.')
    assert same == task
    assert [event.task.id for event in repeated] == [task.id]
    assert (list(listed.tasks), listed.total_size, listed.page_size) == ([task], 1, 50)


async def test_task_has_time_of_its_status() -> None:
    app = to_a2a(AGENT)
    async with serving(app) as agent:
        task = (await agent.call('SendMessage', send_request())).task
        known = await app.get_task(task.id)
    assert task.status.timestamp.ToDatetime(UTC) == datetime.fromisoformat(known['status'].get('timestamp', ''))


async def test_cancel_task_returns_the_canceled_task() -> None:
    gates = GatedAgent()
    async with serving(to_a2a(gates.agent)) as agent:
        stream = agent.stream('SendStreamingMessage', send_request('wait'))
        task_id = (await stream.next()).task.id
        await gates.reached('wait')
        canceled = await agent.call('CancelTask', CancelTaskRequest(id=task_id, metadata={'why': 'late'}))
    assert TaskState.Name(canceled.status.state) == 'TASK_STATE_CANCELED'


async def test_trace_context_and_baggage_reach_spans_and_run(spans: Spans) -> None:
    seen: list[object] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(baggage.get_baggage('team'))
        return ModelResponse(parts=[TextPart('done')])

    app = to_a2a(Agent(FunctionModel(answer)))
    metadata = [('traceparent', TRACEPARENT), ('baggage', 'team=blue')]
    async with serving(app) as agent:
        task = (await agent.call('SendMessage', send_request(), metadata=metadata)).task
        answers = agent.stream('SendStreamingMessage', send_request(), metadata=metadata)
        await answers.rest()
    assert seen == ['blue', 'blue']
    for span in (spans.one('SendMessage'), spans.one('SendStreamingMessage')):
        assert trace_of(span) == TRACE
        attributes = dict(span.attributes or {})
        assert attributes['a2a.task.state'] == 'TASK_STATE_COMPLETED'
        assert attributes['a2a.protocol.version'] == '1.0'
    assert dict(spans.one('SendMessage').attributes or {})['a2a.task.id'] == task.id


async def test_webhook_can_be_created_read_listed_and_deleted() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ['93.184.216.34']

    gates = GatedAgent()
    async with serving(to_a2a(gates.agent, push=with_constants(Push, resolve=resolve, tries=1))) as agent:
        task = (await agent.stream('SendStreamingMessage', send_request('wait')).next()).task
        config = TaskPushNotificationConfig(task_id=task.id, url='https://example.com/hook', token='t')
        created = await agent.call('CreateTaskPushNotificationConfig', config)
        one = GetTaskPushNotificationConfigRequest(task_id=task.id, id=created.id)
        read = await agent.call('GetTaskPushNotificationConfig', one)
        every = ListTaskPushNotificationConfigsRequest(task_id=task.id)
        listed = await agent.call('ListTaskPushNotificationConfigs', every)
        gone = DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=created.id)
        deleted = await agent.call('DeleteTaskPushNotificationConfig', gone)
        gates.open('wait')
        rest = await agent.call('ListTaskPushNotificationConfigs', every)
    assert (created.task_id, created.url, bool(created.id)) == (task.id, 'https://example.com/hook', True)
    assert (read, list(listed.configs)) == (created, [created])
    assert (type(deleted).__name__, list(rest.configs)) == ('Empty', [])


@pytest.mark.parametrize('url', [None, 'https://agent.example.com/a/'])
async def test_extended_card_lists_reachable_interfaces(url: str | None) -> None:
    more = {'description': 'For callers with credentials.'}
    app = to_a2a(AGENT, url=url, auth=BearerAuth({TOKEN: 'ann'}), access=Access(extended_card=more))
    async with serving(app, url='grpc.example.com:443') as agent:
        card = await agent.call('GetExtendedAgentCard', GetExtendedAgentCardRequest(), metadata=ANN)
    interfaces = [MessageToDict(interface) for interface in card.supported_interfaces]
    over_grpc = {'url': 'grpc.example.com:443', 'protocolBinding': 'GRPC', 'protocolVersion': '1.0'}
    over_http = [
        {'url': url, 'protocolBinding': binding, 'protocolVersion': version}
        for binding, version in (('JSONRPC', '1.0'), ('HTTP+JSON', '1.0'), ('JSONRPC', '0.3'))
    ]
    assert card.description == 'For callers with credentials.'
    assert interfaces == ([over_grpc] if url is None else [*over_http[:2], over_grpc, over_http[2]])
    assert [*card.security_schemes] == ['bearer']


class Joke(BaseModel):
    """An answer with limits in its schema."""

    text: str = Field(max_length=1_000)
    stars: float = Field(default=2.5, ge=1, le=5)


async def test_signed_cards_list_grpc_only_while_served() -> None:
    app = to_a2a(
        Agent(TestModel(), output_type=Joke),
        url='https://agent.example.com/',
        auth=BearerAuth({TOKEN: 'ann'}),
        access=Access(signing=[private_pem()], extended_card={'description': 'For callers with credentials.'}),
    )

    async def over_http() -> AgentCard:
        return parse_agent_card((await Client(app).get('/.well-known/agent-card.json')).json)

    before = await over_http()
    async with serving(app) as agent:
        extended = await agent.call('GetExtendedAgentCard', GetExtendedAgentCardRequest(), metadata=ANN)
        public = await over_http()
    after = await over_http()
    verify = create_signature_verifier(lambda kid, _: public_pem(), ['ES256'])
    for card in (before, extended, public, after):
        verify(card)
    bindings = [[interface.protocol_binding for interface in card.supported_interfaces] for card in (extended, after)]
    assert bindings == [['JSONRPC', 'HTTP+JSON', 'GRPC', 'JSONRPC'], ['JSONRPC', 'HTTP+JSON', 'JSONRPC']]
    assert after.supported_interfaces == before.supported_interfaces
    assert extended.supported_interfaces == public.supported_interfaces
    assert extended.description == 'For callers with credentials.'


async def test_direct_message_reply_is_returned() -> None:
    async with serving(to_a2a(AGENT, messages=Messages(reply='message'))) as agent:
        answer = await agent.call('SendMessage', send_request())
        events = await agent.stream('SendStreamingMessage', send_request()).rest()
    assert [part.text for part in answer.message.parts] == ['The answer.']
    assert [[part.text for part in event.message.parts] for event in events] == [['The answer.']]


async def test_subscriber_resumes_after_last_event_id() -> None:
    gates = GatedAgent()
    app = to_a2a(gates.agent, results=Results(stream='mark', interval=0))
    async with serving(app) as agent:
        stream = agent.stream('SendStreamingMessage', send_request('wait'))
        first = await stream.next()
        seen = [first, await stream.next()]
        await gates.reached('wait')
        request = SubscribeToTaskRequest(id=first.task.id)
        again = agent.stream('SubscribeToTask', request, metadata=[('last-event-id', str(event_id(first)))])
        resumed = [await again.next()]
        gates.open('wait')
        seen += await stream.rest()
        resumed += await again.rest()
    assert [event_id(event) for event in seen] == [*range(len(seen))]
    assert resumed == seen[1:]


async def test_response_metadata_has_correlation_id_and_active_extensions() -> None:
    extension: Any = {'uri': 'https://example.com/e', 'description': 'An extension.'}
    async with serving(to_a2a(AGENT, extensions=[extension])) as agent:
        call = agent.start(
            'SendMessage', send_request(), metadata=[('a2a-extensions', 'https://example.com/e, https://x.y/z')]
        )
        headers = dict([*await call.initial_metadata()])
        await call
        plain = agent.start('SendMessage', send_request())
        others = dict([*await plain.initial_metadata()])
        await plain
    assert headers['a2a-extensions'] == 'https://example.com/e'
    assert len(headers['x-correlation-id']) == 16
    assert others.keys() == {'x-correlation-id'}
