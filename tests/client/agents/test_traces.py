"""One trace through a chain of agents: the spans of clients, servers, runs and models, and the baggage."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import aclosing, contextmanager
from decimal import Decimal
from typing import Any

import httpx2
import pytest
from fasta2a.schema import Message, Part
from inline_snapshot import snapshot
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from pydantic_ai_a2a import A2A, A2AClient, Results, serve, to_a2a
from pydantic_ai_a2a.errors import RemoteUnavailable, TaskNotCancelableError, TaskNotFoundError

from ...bounds import LIMIT
from ...spans import Spans, spans
from .sample_agents import calling_agent

__all__ = ('spans',)  # a fixture


def span_tree(spans: Sequence[ReadableSpan], parent: int | None = None, depth: int = 0) -> list[str]:
    """The spans as lines below their parents, in the order of their start: name, kind, tokens of output, cost."""
    lines: list[str] = []
    for span in spans:
        if (span.parent.span_id if span.parent else None) == parent:
            assert span.context is not None
            attributes = span.attributes or {}
            tokens, cost = (attributes.get(name) for name in ('gen_ai.usage.output_tokens', 'operation.cost'))
            words = [span.name, span.kind.name, tokens, cost and f'${cost}']
            lines.append('  ' * depth + ' '.join(str(word) for word in words if word))
            lines += span_tree(spans, span.context.span_id, depth + 1)
    return lines


@contextmanager
def instrumented() -> Generator[None]:
    Agent.instrument_all(InstrumentationSettings(include_content=False))
    try:
        yield
    finally:
        Agent.instrument_all(False)


def hello(message_id: str, **fields: Any) -> Any:
    return Message(message_id=message_id, role='user', parts=[Part(text='hello')], **fields)


def client_spans(spans: Spans) -> list[ReadableSpan]:
    return [span for span in spans.all() if span.kind is SpanKind.CLIENT]


def weather_agent(seen: list[object]) -> Agent[None, str]:
    """An agent that notes the baggage of its user, with a model that has a price."""

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        part = ToolCallPart('look') if len(messages) == 1 else TextPart('sunny')
        usage = RequestUsage(input_tokens=1000, output_tokens=20, cost=Decimal('0.01'))
        return ModelResponse(parts=[part], usage=usage)

    agent: Agent[None, str] = Agent(FunctionModel(model), name='weather')

    @agent.tool_plain
    def look() -> str:
        seen.append(baggage.get_baggage('team'))
        return 'sunny'

    return agent


async def test_agent_chain_is_single_trace_with_user_baggage(
    spans: Spans,
) -> None:
    seen: list[object] = []
    with instrumented(), serve(to_a2a(weather_agent(seen))) as inner:
        travel = calling_agent(name='travel', capabilities=[A2A(inner.url)])
        with serve(to_a2a(travel)) as outer:
            async with asyncio.timeout(LIMIT), A2AClient(outer.url) as client:
                with trace.get_tracer('test').start_as_current_span('user'):
                    token = attach(baggage.set_baggage('team', 'blue'))
                    await client.send('hello')
                    detach(token)
    assert seen == ['blue']
    assert span_tree(spans.all()) == snapshot(
        [
            'user INTERNAL',
            '  SendMessage CLIENT',
            '    SendMessage SERVER',
            '      a2a run CONSUMER',
            '        invoke_agent travel INTERNAL',
            '          chat function:model:stream CLIENT 5',
            '          execute_tool weather INTERNAL',
            '            SendStreamingMessage CLIENT',
            '              SendStreamingMessage SERVER',
            '                a2a run CONSUMER',
            '                  invoke_agent weather INTERNAL',
            '                    chat function:model: CLIENT 20 $0.01',
            '                    execute_tool look INTERNAL',
            '                    chat function:model: CLIENT 20 $0.01',
            '          chat function:model:stream CLIENT 6',
        ]
    )


async def test_each_client_call_has_span_with_attributes(spans: Spans) -> None:
    with serve(to_a2a(Agent(TestModel(custom_output_text='sunny'), name='weather'))) as server:
        async with asyncio.timeout(LIMIT), A2AClient(server.url) as client:
            first: Any = (await client.send(hello('the-first-message'))).outcome
            second = hello('the-second-message', reference_task_ids=[first['id']])
            *_, last = [update async for update in client.stream(second, context_id=first['context_id'])]
            await client.get(first['id'])
            _ = [task async for task in client.list(context_id=first['context_id'])]
            with pytest.raises(TaskNotCancelableError):
                await client.cancel(first['id'])
            with pytest.raises(TaskNotFoundError):
                await client.get('no-such-task')
    common = {
        'a2a.protocol.version': '1.0',
        'gen_ai.agent.name': 'weather',
        'server.address': '127.0.0.1',
        'server.port': int(server.url.rpartition(':')[2].strip('/')),
    }
    task, of_first = {'a2a.task.id': first['id']}, {'gen_ai.conversation.id': first['context_id']}
    completed = {'a2a.task.state': 'TASK_STATE_COMPLETED'}
    found = [(span.name, dict(span.attributes or {})) for span in client_spans(spans)]
    assert found == [
        (name, {'a2a.method.name': name, **common, **attributes})
        for name, attributes in [
            ('SendMessage', {'a2a.message.id': 'the-first-message', **task, **of_first, **completed}),
            (
                'SendStreamingMessage',
                {
                    'a2a.message.id': 'the-second-message',
                    'a2a.message.reference_task_ids': (first['id'],),
                    'a2a.task.id': last.task_id,
                    **of_first,
                    **completed,
                },
            ),
            ('GetTask', {**task, **of_first, **completed}),
            ('ListTasks', of_first),
            ('CancelTask', {**task, 'error.type': '-32002'}),
            ('GetTask', {'a2a.task.id': 'no-such-task', 'error.type': '-32001'}),
        ]
    ]


async def test_polling_client_has_get_task_spans(spans: Spans) -> None:
    app = to_a2a(Agent(TestModel(), name='weather'), results=Results(stream='off'))
    async with asyncio.timeout(LIMIT), A2AClient(app) as client:
        with trace.get_tracer('test').start_as_current_span('user'):
            updates = [update async for update in client.stream('hello')]
    assert updates[-1].state == 'completed'
    first, *looks = [line for line in span_tree(spans.all()) if line.endswith(' CLIENT')]
    assert (first, {*looks}) == ('  SendMessage CLIENT', {'  GetTask CLIENT'})


async def test_stream_span_is_not_current_and_ends_with_reader(
    spans: Spans,
) -> None:
    app = to_a2a(Agent(TestModel(custom_output_text='sunny'), name='weather'))
    async with asyncio.timeout(LIMIT), A2AClient(app) as client, aclosing(client.stream('hello')) as updates:
        async for _ in updates:
            assert not trace.get_current_span().get_span_context().is_valid
            break
    [span] = client_spans(spans)
    assert (span.name, span.status.status_code) == ('SendStreamingMessage', StatusCode.UNSET)


async def test_stream_to_unreachable_server_has_error_span(spans: Spans) -> None:
    with serve(to_a2a(Agent(TestModel(), name='weather'))) as server:
        async with asyncio.timeout(LIMIT), A2AClient(server.url) as client:
            card = await client.card()
    spans.clear()
    async with asyncio.timeout(LIMIT), A2AClient(card, timeout=0.3) as client:
        with pytest.raises(RemoteUnavailable):
            async for _ in client.stream('hello'):
                pass
    failed = client_spans(spans)
    assert failed
    assert {(span.name, (span.attributes or {}).get('error.type')) for span in failed} == {
        ('SendStreamingMessage', 'NotConnected')
    }


async def test_client_without_opentelemetry_sdk_has_no_spans() -> None:
    inside: list[bool] = []

    async def note(request: httpx2.Request) -> None:
        inside.append(trace.get_current_span().get_span_context().is_valid)

    with serve(to_a2a(Agent(TestModel(), name='weather'))) as server:
        async with httpx2.AsyncClient(event_hooks={'request': [note]}) as http:
            client = A2AClient(server.url, http_client=http)
            await client.send('hello')
            async for _ in client.stream('hello'):
                pass
    assert inside
    assert not any(inside)
