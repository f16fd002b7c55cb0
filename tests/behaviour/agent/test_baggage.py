"""W3C baggage of a caller, from its request to the tools of the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, propagate
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import attach, detach
from opentelemetry.propagators.textmap import default_setter
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Push, to_a2a
from pydantic_ai_a2a.telemetry import trace_headers

from ...client import Client, lifespan
from ...spans import TRACEPARENT, Spans, context_of, is_child, spans
from ...tables import each_case
from ...webhooks import webhook
from ..rows import covers
from ..stage import ended, serving

__all__ = ('spans',)  # a fixture

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
async def test_the_baggage_of_a_caller_reaches_the_tools_of_the_run(spans: Spans) -> None:
    seen: Seen = []
    app = to_a2a(agent_that_notes(seen))
    async with lifespan(app):
        client = Client(app, headers={'traceparent': TRACEPARENT, 'baggage': 'team=blue,city=K%C3%B6ln'})
        await client.send()
        async with client.send_streaming() as stream:
            await stream.rest()
        await Client(app).send()
    assert seen == [{'team': 'blue', 'city': 'Köln'}, {'team': 'blue', 'city': 'Köln'}, {}]


async def test_baggage_needs_no_trace_of_the_caller(spans: Spans) -> None:
    seen: Seen = []
    app = to_a2a(agent_that_notes(seen))
    async with lifespan(app):
        await Client(app, headers={'baggage': 'team=blue'}).send()
    assert seen == [{'team': 'blue'}]


@pytest.fixture(params=['file', 'postgres'])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == 'postgres':
        return request.getfixturevalue('postgres_url')
    return f'sqlite:///{tmp_path}/agent.db?synchronous=normal'


async def test_a_run_in_another_process_has_the_baggage_and_the_whole_trace_of_its_caller(
    url: str, spans: Spans
) -> None:
    seen: Seen = []
    there = to_a2a(agent_that_notes(seen, name='agent'), backend=url)
    there.hosting.runs_tasks = False
    headers = {'traceparent': TRACEPARENT, 'tracestate': 'vendor=state', 'baggage': 'team=blue'}
    async with lifespan(there):
        task = await Client(there, headers=headers).send(returnImmediately=True)
    assert seen == []
    async with serving(agent_that_notes(seen, name='agent'), backend=url) as client:
        await ended(client, task['id'])
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
async def test_malformed_baggage_and_baggage_above_the_limits_is_left_out(
    sent: str, kept: dict[str, str], spans: Spans
) -> None:
    seen: Seen = []
    app = to_a2a(agent_that_notes(seen))
    async with lifespan(app):
        await Client(app, headers={'baggage': sent}).send()
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
def test_baggage_that_is_too_long_is_neither_stored_nor_sent() -> None:
    for length, headers in ((8192, {'baggage'}), (8193, set[str]())):
        token = attach(baggage.set_baggage('whole', 'x' * length))
        assert trace_headers().keys() == headers
        detach(token)


async def test_a_webhook_gets_the_trace_and_no_baggage(spans: Spans) -> None:
    app = to_a2a(Agent('test'), push=Push(private_hosts=['127.0.0.1']))
    async with webhook() as hook, lifespan(app):
        headers = {'traceparent': TRACEPARENT, 'baggage': 'team=blue'}
        await Client(app, headers=headers).send(taskPushNotificationConfig={'url': hook.url})
        received = await hook.got(3)
    assert [('traceparent' in each.headers, 'baggage' in each.headers) for each in received] == [(True, False)] * 3
