"""Forms of a streamed answer: in which pieces text comes, how a stream ends, and data that comes as text as well."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from pydantic_ai_a2a import InputRequired, Messages, Progress, Results, to_a2a
from pydantic_ai_a2a.server.service import dispatch
from pydantic_ai_a2a.settings import TextStream
from pydantic_ai_a2a.wire.extensions.own_extensions import LIVE_TEXT_URI

from ...agents import call_output_tool, scripted_model
from ...app_client import LIMIT, LIVE, Client, Event, RpcError, lifespan, message, texts
from ...cases import each_case
from ...dialects import in_no_version
from ...serving import each_backend, list_tasks, serving, wait_until_ended
from .test_stream_text import agent_with_responses, updates_seen

SUNNY = (['It ', 'is ', 'sunny.'], False)
NEVER_FLUSHED = LIMIT
"""Seconds that no test waits for."""


async def events_of(agent: Agent[Any, Any], **settings: Any) -> tuple[list[Event], dict[str, Any]]:
    """The events of a stream, and the task after it."""
    async with serving(agent, results=Results(**settings)) as client, client.send_streaming() as stream:
        events = await stream.rest()
        return events, await client.get_task(events[0].result['task']['id'])


PIECES = [('replace', 'Look: ', None), ('replace', 'It ', None), ('append', 'is ', None), ('append', 'sunny.', None)]
NOTE, MARK, WHOLE = ('WORKING', 'Look: '), ('append', '', 'last'), ('replace', 'It is sunny.', 'last')
FORMS: dict[str, tuple[TextStream, bool, dict[str, str] | None, list[Any]]] = {
    'by default': ('on-request', False, None, [WHOLE]),
    'by default, with notes': ('on-request', True, None, [NOTE, WHOLE]),
    'for who asks': ('on-request', False, LIVE, [PIECES[0], NOTE, *PIECES[1:], MARK]),
    'pieces and a mark for all': ('mark', False, None, [*PIECES, MARK]),
    'pieces and the whole text for all': ('replace', False, None, [*PIECES, WHOLE]),
    'for who asks where all get pieces': ('replace', False, LIVE, [PIECES[0], NOTE, *PIECES[1:], MARK]),
    'never pieces': ('whole', False, LIVE, [WHOLE]),
}


@each_case('form, notes, headers, expected', FORMS.values(), ids=FORMS)
async def test_stream_setting_and_extension_decide_text_form(
    form: TextStream, notes: bool, headers: dict[str, str] | None, expected: list[Any]
) -> None:
    results = Results(stream=form, interval=0, progress=Progress(notes=notes))
    agent = agent_with_responses((['Look: '], True), SUNNY)
    async with serving(agent, results=results) as client:
        reader = Client(client.app, headers=headers)
        async with reader.send_streaming() as stream:
            events = await stream.rest()
        task = await client.get_task(events[0].result['task']['id'])
    assert updates_seen(events) == [('WORKING',), *expected, ('COMPLETED',)]
    assert texts(task) == ['It is sunny.']
    assert [each['parts'][0]['text'] for each in task['history']] == ['hello', 'Look: ', 'It is sunny.']


@each_case(('form', 'lines'), [('on-request', 1), ('mark', 0), ('whole', 0)])
async def test_first_stream_without_live_text_is_logged(
    caplog: pytest.LogCaptureFixture, form: TextStream, lines: int
) -> None:
    dispatch.note_whole_text.cache_clear()
    caplog.set_level('INFO', 'uvicorn.error')
    caplog.clear()
    logged: list[int] = []
    async with serving(agent_with_responses(SUNNY), results=Results(stream=form)) as client:
        for headers in (LIVE, None, None):
            async with Client(client.app, headers=headers).send_streaming() as stream:
                await stream.rest()
            logged.append(sum(LIVE_TEXT_URI in text and 'docs/clients.md' in text for text in caplog.messages))
    assert logged == [0, lines, lines]


async def test_each_subscriber_chooses_pieces_or_whole_text() -> None:
    writer = HalfwayAgent()
    async with serving(writer.agent, results=Results(interval=0)) as client:
        live = Client(client.app, headers=LIVE)
        async with live.send_streaming() as sender:
            task_id = (await anext(sender)).result['task']['id']
            await writer.begun.wait()
            async with client.subscribe(task_id) as late, live.subscribe(task_id) as asked:
                snapshots = [(await anext(reader)).result['task'] for reader in (late, asked)]
                half = await client.get_task(task_id)
                writer.go_on.set()
                plain, pieces, all_pieces = [await reader.rest() for reader in (late, asked, sender)]
        async with client.subscribe(task_id, Last_Event_ID='1') as resumed:
            again = await resumed.rest()
    assert [texts(task) for task in (*snapshots, half)] == [[], ['It '], ['It ']]
    assert updates_seen(plain) == [WHOLE, ('COMPLETED',)]
    assert updates_seen(pieces) == [('append', 'is sunny.', None), MARK, ('COMPLETED',)]
    assert updates_seen(all_pieces) == [('WORKING',), ('replace', 'It ', None), *updates_seen(pieces)]
    assert updates_seen(again) == [WHOLE, ('COMPLETED',)]
    assert [event.id for event in again] == [4, 5]


class HalfwayAgent:
    """An agent that writes half of its answer, and the rest when it is told to go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.streamed: list[bool] = []
        """Whether each request to the model was streamed."""
        self.agent = Agent(FunctionModel(self._whole, stream_function=self._stream), name='writer')

    async def _whole(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.streamed.append(False)
        self.begun.set()
        await self.go_on.wait()
        return ModelResponse(parts=[TextPart('It is sunny.')])

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        self.streamed.append(True)
        yield 'It '
        self.begun.set()
        await self.go_on.wait()
        yield 'is sunny.'


LATER = [('append', 'is sunny.', None), MARK, ('COMPLETED',)]
"""What a reader of live text gets who comes after the first piece."""


async def subscribe_halfway(writer: HalfwayAgent, client: Client, task_id: str) -> tuple[list[str], list[Any]]:
    """The text in the snapshot of a reader who comes while the model writes, and what follows."""
    await writer.begun.wait()
    async with client.live.subscribe(task_id) as reader:
        before = texts((await anext(reader)).result['task'])
        writer.go_on.set()
        return before, updates_seen(await reader.rest())


@pytest.mark.parametrize(
    ('live', 'at_once', 'streams'),
    [(True, True, True), (True, False, False), (False, True, False)],
    ids=['live text', 'live text, blocking', 'plain'],
)
async def test_later_reader_gets_pieces_of_nonblocking_live_text_message(
    live: bool, at_once: bool, streams: bool
) -> None:
    writer = HalfwayAgent()
    async with serving(writer.agent, results=Results(interval=0)) as client:
        sender = client.live if live else client
        sending = asyncio.create_task(sender.send(returnImmediately=at_once))
        await writer.begun.wait()
        [listed] = await list_tasks(client)
        before, after = await subscribe_halfway(writer, client, listed['id'])
        await sending
    assert writer.streamed == [streams]
    assert (before, after) == ((['It '], LATER) if streams else ([], [WHOLE, ('COMPLETED',)]))


async def test_continuing_message_decides_streaming_of_its_run() -> None:
    streamed: list[bool] = []

    async def whole(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        streamed.append(False)
        return asking(messages)

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        streamed.append(True)
        for part in asking(messages).parts:
            yield part.content if isinstance(part, TextPart) else {0: DeltaToolCall('ask', '{}')}

    def asking(messages: list[ModelMessage]) -> ModelResponse:
        return ModelResponse(parts=[TextPart('done') if len(messages) > 6 else ToolCallPart('ask', {})])

    agent = Agent(FunctionModel(whole, stream_function=stream))

    @agent.tool_plain
    def ask() -> str:
        raise InputRequired('Go on?')

    async with serving(agent) as client:
        task_id, backend = (await client.send())['id'], client.a2a_app.backend
        for sender in (client.live, client, client.live):
            before = await backend.reader.load(task_id, None)
            assert before is not None
            await sender.send(message('yes', taskId=task_id), returnImmediately=True)
            await backend.events.wait(task_id, before.header.last_event)
    assert streamed == [False, True, False, True]


async def test_steering_message_may_request_live_text() -> None:
    looking, found, streamed = asyncio.Event(), asyncio.Event(), list[bool]()

    async def whole(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        streamed.append(False)
        return ModelResponse(parts=[ToolCallPart('look', {})])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        streamed.append(True)
        yield 'sunny'

    async def look() -> str:
        looking.set()
        await found.wait()
        return 'sun'

    agent = Agent(FunctionModel(whole, stream_function=stream), tools=[look])
    async with serving(agent, messages=Messages(while_working='steer')) as client:
        task = await client.send(returnImmediately=True)
        await looking.wait()
        await client.live.send(message('And?', taskId=task['id']), returnImmediately=True)
        found.set()
        assert texts(await wait_until_ended(client, task['id'])) == ['sunny']
    assert streamed == [False, True]


@in_no_version('where tasks are kept is below what versions differ in')
@each_backend('sqlite', 'postgres')
async def test_worker_in_second_app_streams_requested_live_text(backend: str) -> None:
    writer, results = HalfwayAgent(), Results(interval=0)
    server, worker = (to_a2a(writer.agent, backend=backend, results=results) for _ in range(2))
    server.hosting.runs_tasks = False
    async with lifespan(server), asyncio.timeout(LIMIT):
        client = Client(server)
        task = await client.live.send(returnImmediately=True)
        async with lifespan(worker):
            seen = await subscribe_halfway(writer, client, task['id'])
    assert (writer.streamed, *seen) == ([True], ['It '], LATER)


async def test_disabled_streaming_is_declared_and_refused() -> None:
    async with serving(agent_with_responses(SUNNY), results=Results(stream='off')) as client:
        card = (await client.get('/.well-known/agent-card.json')).json
        assert not card['capabilities'].get('streaming')
        task = await client.send()
        for method, params in (
            ('SendStreamingMessage', {'message': message()}),
            ('SubscribeToTask', {'id': task['id']}),
        ):
            with pytest.raises(RpcError, match='This agent does not stream') as refused:
                await client.call(method, params)
            assert refused.value.code == -32004


@pytest.mark.parametrize(('form', 'declared'), [('on-request', True), ('mark', True), ('whole', False), ('off', False)])
async def test_card_declares_live_text_if_stream_setting_permits(form: TextStream, declared: bool) -> None:
    card = (await Client(to_a2a(Agent('test'), results=Results(stream=form))).get('/.well-known/agent-card.json')).json
    uris = [extension['uri'] for extension in card['capabilities']['extensions']]
    assert (LIVE['A2A-Extensions'] in uris) == declared


@pytest.mark.parametrize('form', ['on-request', 'replace', 'mark', 'whole'])
async def test_streamed_and_unstreamed_text_are_stored_alike(form: TextStream) -> None:
    _, streamed = await events_of(agent_with_responses(SUNNY), stream=form)
    async with serving(agent_with_responses(SUNNY), results=Results(stream=form)) as client:
        sent = await client.send()
    ours, theirs = (task['artifacts'][0] for task in (streamed, sent))
    assert ours.pop('artifactId') == f'{streamed["id"]}.1.result'
    assert theirs.pop('artifactId') == f'{sent["id"]}.1.result'
    assert ours == theirs


async def read(first: list[str], *rest: list[str], **settings: Any) -> list[Any]:
    """What a client sees of a model that writes its next pieces once the client has read a piece of those before."""
    go_on = [asyncio.Event() for _ in rest]

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for piece in first:
            yield piece
        for gate, pieces in zip(go_on, rest, strict=True):
            await gate.wait()
            for piece in pieces:
                yield piece

    agent = Agent(FunctionModel(stream_function=stream))
    results = Results(stream='replace', **settings)
    async with serving(agent, results=results) as client, client.send_streaming() as reader:
        events: list[Event] = []
        for gate in go_on:
            events.append(await anext(reader))
            while 'artifactUpdate' not in events[-1].result:
                events.append(await anext(reader))
            gate.set()
        return updates_seen([*events, *await reader.rest()])


async def test_first_piece_is_immediate_and_rest_buffered() -> None:
    assert await read(['It '], ['is ', 'sunny ', 'in Rome.'], interval=NEVER_FLUSHED) == snapshot(
        [
            ('WORKING',),
            ('replace', 'It ', None),
            ('append', 'is sunny in Rome.', None),
            ('replace', 'It is sunny in Rome.', 'last'),
            ('COMPLETED',),
        ]
    )


async def test_buffered_text_is_sent_at_size_limit() -> None:
    more = 'very ' * 100
    assert await read(['It '], ['is ', more], ['sunny.'], interval=NEVER_FLUSHED) == [
        ('WORKING',),
        ('replace', 'It ', None),
        ('append', f'is {more}', None),
        ('append', 'sunny.', None),
        ('replace', f'It is {more}sunny.', 'last'),
        ('COMPLETED',),
    ]


async def test_buffered_text_is_sent_after_interval() -> None:
    seen = await read(['It '], ['is ', 'sunny '], ['in Rome.'], interval=0.01)  # waits for a piece between two rounds
    pieces = [update[1] for update in seen[1:-1] if update[2] is None]
    assert (pieces[0], ''.join(pieces)) == ('It ', 'It is sunny in Rome.')


async def test_buffered_text_is_sent_before_progress_note() -> None:
    notes = Progress(notes=True)
    agent = agent_with_responses((['Let me ', 'look.'], True), SUNNY)
    events, _ = await events_of(agent, stream='replace', interval=NEVER_FLUSHED, progress=notes)
    assert updates_seen(events) == snapshot(
        [
            ('WORKING',),
            ('replace', 'Let me ', None),
            ('append', 'look.', None),
            ('WORKING', 'Let me look.'),
            ('replace', 'It is sunny.', None),
            ('replace', 'It is sunny.', 'last'),
            ('COMPLETED',),
        ]
    )


@pytest.mark.parametrize('interval', [0, NEVER_FLUSHED])
async def test_canceled_task_keeps_buffered_text(interval: float) -> None:
    written = asyncio.Event()

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for piece in ('It ', 'is '):
            yield piece
        written.set()
        await asyncio.Event().wait()

    agent = Agent(FunctionModel(stream_function=stream))
    results = Results(stream='replace', interval=interval)
    async with serving(agent, results=results) as client, client.send_streaming() as reader:
        task = (await anext(reader)).result['task']
        await written.wait()
        await client.call('CancelTask', {'id': task['id']})
        await reader.rest()
        assert texts(await client.get_task(task['id'])) == ['It is ']


class Weather(BaseModel):
    city: str
    degrees: int


reporter = Agent(scripted_model(call_output_tool(city='Rome', degrees=21)), output_type=Weather)
DATA = {'result': {'city': 'Rome', 'degrees': 21}}
JSON = '{"city":"Rome","degrees":21}'


@pytest.mark.parametrize(
    ('results', 'modes', 'contents'),
    [
        (Results(), [], [DATA]),
        (Results(data_as_text=True), [], [DATA, JSON]),
        (Results(data_as_text=True), ['application/json'], [DATA]),
        (Results(data_as_text=True), ['text/plain'], [JSON]),
        (Results(data_as_text=True), ['*/*'], [DATA, JSON]),
    ],
)
async def test_data_as_text_adds_json_text_part(results: Results, modes: list[str], contents: list[Any]) -> None:
    async with serving(reporter, results=results) as client:
        task = await client.send(acceptedOutputModes=modes)
    parts = task['artifacts'][0]['parts']
    assert [part['data'] if 'data' in part else part['text'] for part in parts] == contents
    assert len(task['history']) == 1


@pytest.mark.parametrize(
    ('output_type', 'modes'), [(Weather, ['text/plain', 'application/json']), (str, ['text/plain'])]
)
async def test_data_as_text_adds_text_output_mode(output_type: Any, modes: list[str]) -> None:
    app = to_a2a(Agent('test', output_type=output_type), results=Results(data_as_text=True))
    card = (await Client(app).get('/.well-known/agent-card.json')).json
    assert card['defaultOutputModes'] == modes


@pytest.mark.parametrize(
    ('settings', 'problem'),
    [
        (
            {'stream': 'marks'},
            "Results(): stream takes 'on-request', 'mark', 'replace', 'whole' or 'off', not the string 'marks'."
            " Did you mean 'mark'?",
        ),
        ({'interval': -1}, 'Results.interval must be 0 or more, not -1.0.'),
    ],
)
def test_invalid_results_settings_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=f'^{re.escape(problem)}$'):
        Results(**settings)
