"""What whoever runs the server can see: spans in the trace of the caller, its baggage, and log lines; no content."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import attach, detach
from opentelemetry.propagators.textmap import default_setter
from opentelemetry.trace import SpanKind, StatusCode
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Access, APIKeyAuth, Push, to_a2a
from pydantic_ai_a2a.telemetry.propagation import trace_headers

from ...agents import GatedAgent, scripted_model
from ...app_client import LIMIT, Client, RpcError, lifespan, message, state_of
from ...cases import each_case
from ...constants import with_constants
from ...dialects import only_in
from ...serving import each_backend, list_tasks, serving, wait_until_ended
from ...spans import (
    CALLER,
    OTHER_TRACE,
    OTHER_TRACEPARENT,
    TRACE,
    TRACEPARENT,
    Spans,
    context_of,
    is_child,
    spans,
    trace_of,
)
from ...webhooks import webhook
from ..promised_behaviours import covers

__all__ = ('spans',)  # a fixture


@covers('`traceparent`')
@pytest.mark.parametrize('method', ['SendMessage', 'SendStreamingMessage'])
async def test_operation_and_run_are_spans_in_trace_of_caller(method: str, spans: Spans) -> None:
    async with serving(Agent('test', name='joker'), headers={'traceparent': TRACEPARENT}) as client:
        if method == 'SendMessage':
            await client.send(sent := message())
        else:
            async with client.send_streaming(sent := message()) as stream:
                await stream.rest()
        [task] = await list_tasks(client)
    operation, run = spans.one(method), spans.one('a2a run')
    assert len(spans.all()) == 2
    assert (operation.kind, operation.parent and f'{operation.parent.span_id:016x}') == (SpanKind.SERVER, CALLER)
    assert run.kind == SpanKind.CONSUMER
    assert is_child(run, operation)
    assert trace_of(operation) == trace_of(run) == TRACE
    ids = {'a2a.task.id': task['id'], 'gen_ai.conversation.id': task['context_id']}
    assert operation.attributes == {
        'a2a.method.name': method,
        'a2a.protocol.version': '1.0' if client.dialect.version == '1.0' else '0.3',
        'a2a.message.id': sent['messageId'],
        'a2a.task.state': 'TASK_STATE_COMPLETED',
        'gen_ai.agent.name': 'joker',
        **ids,
    }
    assert run.attributes == ids


@covers('`traceparent`')
@only_in('1.0', 'how often older versions are told is not what this is about')
async def test_webhook_spans_are_in_trace_of_caller(spans: Spans) -> None:
    async with (
        webhook() as hook,
        serving(Agent('test'), push=Push(private_hosts=['127.0.0.1']), headers={'traceparent': TRACEPARENT}) as client,
    ):
        task = await client.send(taskPushNotificationConfig={'url': hook.url})
        received = await hook.got(3)
    told = spans.named('a2a push')
    assert [trace_of(span) for span in told] == [TRACE] * 3
    assert {span.kind for span in told} == {SpanKind.CLIENT}
    assert [each.headers['traceparent'] for each in received] == [
        f'00-{TRACE}-{context_of(span).span_id:016x}-01' for span in told
    ]
    assert [span.attributes for span in told] == [
        {'a2a.task.id': task['id'], 'a2a.delivery.id': each.id} for each in received
    ]


@covers('`traceparent`')
@only_in('1.0', 'how often older versions are told is not what this is about')
async def test_failed_webhook_delivery_is_failed_span(spans: Spans) -> None:
    async with (
        webhook(503, 200) as hook,
        serving(Agent('test'), push=with_constants(Push, private_hosts=['127.0.0.1'], backoff=0.01)) as client,
    ):
        await client.send(taskPushNotificationConfig={'url': hook.url})
        await hook.got(4)
    assert [span.status.status_code for span in spans.named('a2a push')] == [StatusCode.ERROR, *[StatusCode.UNSET] * 3]


@covers('`traceparent`')
async def test_tool_span_is_child_of_run_span(spans: Spans) -> None:
    agent = Agent('test')

    @agent.tool_plain
    async def look() -> str:
        with spans.tracer.start_as_current_span('tool'):
            return 'seen'

    async with serving(agent, headers={'traceparent': TRACEPARENT}) as client:
        await client.send()
    assert is_child(spans.one('tool'), spans.one('a2a run'))
    assert trace_of(spans.one('tool')) == TRACE


@covers('`traceparent`')
async def test_queued_run_is_in_trace_of_its_own_caller(spans: Spans) -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        first = Client(client.app, headers={'traceparent': TRACEPARENT})
        await first.send(message(contextId='c'), returnImmediately=True)
        second = Client(client.app, headers={'traceparent': OTHER_TRACEPARENT})
        queued = await second.send(message(contextId='c'), returnImmediately=True)
        async with second.subscribe(queued['id']) as stream:
            gates.open('hello')
            await stream.rest()
    sends, runs = spans.named('SendMessage'), spans.named('a2a run')
    assert [trace_of(span) for span in runs] == [TRACE, OTHER_TRACE]
    assert [is_child(run, send) for run, send in zip(runs, sends, strict=True)] == [True, True]


@covers('`traceparent`')
def test_run_resumed_in_new_event_loop_keeps_trace(spans: Spans) -> None:
    starts: list[asyncio.Event] = []

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        starts[-1].set()
        if len(starts) == 1:
            await asyncio.Event().wait()
        return ModelResponse(parts=[TextPart('done')])

    app = to_a2a(Agent(FunctionModel(answer)))

    async def begin() -> str:
        starts.append(asyncio.Event())
        task = await Client(app, headers={'traceparent': TRACEPARENT}).send(returnImmediately=True)
        async with asyncio.timeout(LIMIT):
            await starts[-1].wait()
        return task['id']

    async def go_on() -> None:
        starts.append(asyncio.Event())
        await wait_until_ended(Client(app), task_id)

    task_id = asyncio.run(begin())
    asyncio.run(go_on())
    _, run = spans.named('a2a run')
    assert is_child(run, spans.one('SendMessage'))
    assert trace_of(run) == TRACE


@covers('`traceparent`')
async def test_missing_or_invalid_traceparent_starts_new_trace(spans: Spans) -> None:
    async with serving(Agent('test')) as client:
        await client.send()
        await Client(client.app, headers={'traceparent': 'nonsense'}).send()
    sends, runs = spans.named('SendMessage'), spans.named('a2a run')
    assert [span.parent for span in sends] == [None, None]
    assert [is_child(run, send) for run, send in zip(runs, sends, strict=True)] == [True, True]
    assert len({trace_of(span) for span in sends}) == 2


@covers('`traceparent`')
async def test_web_framework_span_is_parent_of_operation(spans: Spans) -> None:
    async with serving(Agent('test'), headers={'traceparent': OTHER_TRACEPARENT}) as client:
        with spans.tracer.start_as_current_span('POST /'):
            await client.send()
    assert is_child(spans.one('SendMessage'), spans.one('POST /'))


async def test_each_operation_is_a_single_span(spans: Spans) -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        task = await client.send(returnImmediately=True)
        await gates.reached('hello')
        await client.get_task(task['id'])
        if client.dialect.has_lists:
            await client.call('ListTasks')
        async with client.subscribe(task['id']) as stream:
            await anext(stream)
            await client.call('CancelTask', {'id': task['id']})
            await stream.rest()
    names = ['SendMessage', 'a2a run', 'GetTask', 'SubscribeToTask', 'CancelTask']
    names += ['ListTasks'] * client.dialect.has_lists
    assert sorted(span.name for span in spans.all()) == sorted(names)
    of_task = [span for span in spans.all() if span.name != 'ListTasks']
    assert [dict(span.attributes or {}).get('a2a.task.id') for span in of_task] == [task['id']] * len(of_task)


async def test_spans_of_webhook_configs_and_resumed_streams_name_task(spans: Spans) -> None:
    gates = GatedAgent()
    async with webhook() as hook, serving(gates.agent, push=Push(private_hosts=['127.0.0.1'])) as client:
        task = await client.send(returnImmediately=True)
        config = await client.call('CreateTaskPushNotificationConfig', {'taskId': task['id'], 'url': hook.url})
        await client.call('ListTaskPushNotificationConfigs', {'taskId': task['id']})
        await client.call('DeleteTaskPushNotificationConfig', {'taskId': task['id'], 'id': config['id']})
        async with client.subscribe(task['id'], **{'Last-Event-ID': '1'}) as stream:
            gates.open('hello')
            await stream.rest()
    names = ['CreateTaskPushNotificationConfig', 'ListTaskPushNotificationConfigs', 'DeleteTaskPushNotificationConfig']
    named = [spans.one(name) for name in [*names, 'SubscribeToTask']]
    assert [dict(span.attributes or {})['a2a.task.id'] for span in named] == [task['id']] * 4


async def test_span_names_tenant_only_if_server_uses_tenants(spans: Spans) -> None:
    key = 'the-key-of-ann-1234'
    async with serving(Agent('test'), auth=APIKeyAuth({key: 'ann'}), access=Access(tenants=['acme'])) as client:
        await Client(client.app, path='/acme', headers={'X-API-Key': key}).send()
    async with serving(Agent('test')) as client:
        await client.call('SendMessage', {'message': message(), 'tenant': 'SECRET'})
    sends = [dict(span.attributes or {}) for span in spans.named('SendMessage')]
    assert [attributes.get('a2a.tenant') for attributes in sends] == ['acme', None]


async def test_repeated_message_has_no_second_run_span(spans: Spans) -> None:
    async with serving(Agent('test')) as client:
        sent = message()
        await client.send(sent)
        await client.send(sent)
    assert (len(spans.named('SendMessage')), len(spans.named('a2a run'))) == (2, 1)


async def test_refused_operation_is_failed_span_with_error_code(spans: Spans) -> None:
    async with serving(Agent('test', name='joker')) as client:
        with pytest.raises(RpcError):
            await client.get_task('SECRET')
    span = spans.one('GetTask')
    assert span.status.status_code is StatusCode.ERROR
    attributes = dict(span.attributes or {})
    del attributes['a2a.protocol.version']
    assert attributes == {'a2a.method.name': 'GetTask', 'gen_ai.agent.name': 'joker', 'error.type': '-32001'}
    assert 'SECRET' not in span.to_json()


async def test_spans_and_logs_contain_no_message_content(spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, 'pydantic_ai_a2a')
    agent = Agent(TestModel(custom_output_text='SECRET answer'), system_prompt='SECRET prompt')

    @agent.tool_plain
    async def look() -> str:
        return 'SECRET result'

    async with serving(agent) as client:
        task = await client.send(message('SECRET question', metadata={'SECRET': 'SECRET'}))
        async with client.send_streaming(message('SECRET question', contextId=task['contextId'])) as stream:
            await stream.rest()
    assert len(spans.all()) == 4
    assert 'SECRET' not in ''.join(span.to_json() for span in spans.all())
    assert 'SECRET' not in caplog.text


@covers('failed run')
async def test_failed_run_is_reported_in_span_log_and_status(spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent(scripted_model(ValueError('SECRET detail')))) as client:
        task = await client.send()
    assert state_of(task) == 'FAILED'
    said = task['status']['message']
    correlation_id = said['metadata']['correlationId']
    assert [part['text'] for part in said['parts']] == ['The agent failed with an internal error.']

    [record] = [record for record in caplog.records if record.name == 'pydantic_ai_a2a']
    assert record.levelno == logging.ERROR
    assert record.getMessage() == f'Task {task["id"]} failed (internal, correlation id {correlation_id}).'
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == 'SECRET detail'

    run = spans.one('a2a run')
    assert (run.status.status_code, dict(run.attributes or {})['error.type']) == (StatusCode.ERROR, 'ValueError')
    assert run.events == ()
    assert 'SECRET' not in run.to_json()


async def test_run_has_no_span_without_opentelemetry_sdk() -> None:
    inside: list[bool] = []

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        inside.append(trace.get_current_span().get_span_context().is_valid)
        return ModelResponse(parts=[TextPart('done')])

    async with serving(Agent(FunctionModel(answer)), headers={'traceparent': TRACEPARENT}) as client:
        await client.send()
    assert inside == [False]


# --- baggage, which reaches the tools of the run --------------------------------------------------------------------

Seen = list[dict[str, object]]


def agent_that_notes(seen: Seen, **options: Any) -> Agent[None, Any]:
    """An agent whose tool notes the baggage of the run."""
    agent = Agent(TestModel(), **options)

    @agent.tool_plain
    def note() -> str:
        seen.append(dict(baggage.get_all()))
        return 'noted'

    return agent


@covers('`traceparent`')
async def test_baggage_of_caller_reaches_tools(spans: Spans) -> None:
    seen: Seen = []
    async with serving(
        agent_that_notes(seen), headers={'traceparent': TRACEPARENT, 'baggage': 'team=blue,city=K%C3%B6ln'}
    ) as client:
        await client.send()
        async with client.send_streaming() as stream:
            await stream.rest()
        await Client(client.app).send()
    assert seen == [{'team': 'blue', 'city': 'Köln'}, {'team': 'blue', 'city': 'Köln'}, {}]


async def test_baggage_reaches_tools_without_traceparent(spans: Spans) -> None:
    seen: Seen = []
    async with serving(agent_that_notes(seen), headers={'baggage': 'team=blue'}) as client:
        await client.send()
    assert seen == [{'team': 'blue'}]


@each_backend('sqlite', 'postgres')
async def test_run_in_another_process_keeps_baggage_and_trace(backend: str, spans: Spans) -> None:
    seen: Seen = []
    there = to_a2a(agent_that_notes(seen, name='agent'), backend=backend)
    there.hosting.runs_tasks = False
    headers = {'traceparent': TRACEPARENT, 'tracestate': 'vendor=state', 'baggage': 'team=blue'}
    async with lifespan(there):
        task = await Client(there, headers=headers).send(returnImmediately=True)
    assert seen == []
    async with serving(agent_that_notes(seen, name='agent'), backend=backend) as client:
        await wait_until_ended(client, task['id'])
    assert seen == [{'team': 'blue'}]
    run, operation = spans.one('a2a run'), spans.one('SendMessage')
    assert is_child(run, operation)
    assert context_of(run).trace_state.get('vendor') == 'state'


@each_case(
    'sent, kept',
    [
        ('team=blue,;;=,no-value,=nameless', {'team': 'blue'}),
        ('\xff\xfe', {}),
        (','.join(f'key{n}={"x" * 80}' for n in range(100)), {}),
        (','.join(f'k{n}=v' for n in range(200)), {f'k{n}': 'v' for n in range(180)}),
    ],
    ids=['malformed', 'no ASCII', 'more than 8192 bytes', 'more than 180 entries'],
)
async def test_malformed_or_oversized_baggage_is_dropped(sent: str, kept: dict[str, str], spans: Spans) -> None:
    seen: Seen = []
    async with serving(agent_that_notes(seen), headers={'baggage': sent}) as client:
        await client.send()
    assert seen == [kept]


@pytest.fixture
def unbounded() -> Iterator[None]:
    """Older versions of OpenTelemetry write baggage of any length."""

    class Unbounded(W3CBaggagePropagator):
        def inject(self, carrier: Any, context: Any = None, setter: Any = default_setter) -> None:
            setter.set(carrier, 'baggage', baggage.get_baggage('whole', context))

    before = propagate.get_global_textmap()
    propagate.set_global_textmap(Unbounded())
    yield
    propagate.set_global_textmap(before)


@pytest.mark.usefixtures('unbounded')
def test_overlong_baggage_is_not_propagated() -> None:
    for length, headers in ((8192, {'baggage'}), (8193, set[str]())):
        token = attach(baggage.set_baggage('whole', 'x' * length))
        assert trace_headers().keys() == headers
        detach(token)


async def test_webhook_gets_traceparent_but_no_baggage(spans: Spans) -> None:
    headers = {'traceparent': TRACEPARENT, 'baggage': 'team=blue'}
    async with (
        webhook() as hook,
        serving(Agent('test'), push=Push(private_hosts=['127.0.0.1']), headers=headers) as client,
    ):
        await client.send(taskPushNotificationConfig={'url': hook.url})
        received = await hook.got(3)
    assert [('traceparent' in each.headers, 'baggage' in each.headers) for each in received] == [(True, False)] * 3
