"""A remote agent as an agent of this process: text, typed output, conversations, approvals, questions, errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from pydantic_ai import (
    Agent,
    BinaryContent,
    BinaryImage,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessage,
    ModelResponse,
    ModelRetry,
    TextPart,
    ToolApproved,
    ToolCallPart,
    ToolDenied,
)
from pydantic_ai.exceptions import ModelAPIError, UserError
from pydantic_ai.messages import (
    CachePoint,
    FilePart,
    ImageUrl,
    ModelRequest,
    StructuredContent,
    TextContent,
    UploadedFile,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.output import ToolOutput
from pydantic_ai.profiles import ModelProfile
from starlette.applications import Starlette
from typing_extensions import Unpack

from pydantic_ai_a2a import (
    A2AClient,
    A2AModel,
    A2AToolset,
    BearerAuth,
    InputRequired,
    RemoteAgent,
    TrustedKeys,
    Update,
    to_a2a,
)
from pydantic_ai_a2a.client.message_content import Content
from pydantic_ai_a2a.client.send_options import SendOptions
from pydantic_ai_a2a.errors import RemoteUnavailable

from ...agents import scripted_model, user_prompts
from ...app_client import lifespan
from ...bounds import LIMIT
from ...cases import each_case
from ...wire.signing.signing_keys import private_pem
from ..canned_agent import (
    CannedAgent,
    agent_message,
    artifact_update,
    error_response,
    status_update,
    stream_response,
    task_in_state,
)
from ..servers import ANSWER, SERVERS, ServerKind, WaitingAgent
from .canned_tasks import DONE, task_with
from .sample_agents import calling_agent


class Weather(BaseModel):
    city: str
    celsius: int


class Storm(BaseModel):
    city: str
    celsius: int
    wind: int


WEATHER: dict[str, Any] = {'city': 'a', 'celsius': 3}
STORM: dict[str, Any] = {'city': 'a', 'celsius': 3, 'wind': 4}


def echo(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse([TextPart(' | '.join(user_prompts(messages)))])


async def echo_stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    for word in ' | '.join(user_prompts(messages)).split(' '):
        yield f'{word} '


def history_agent() -> Agent[None, str]:
    return Agent(FunctionModel(echo, stream_function=echo_stream), name='echo')


@pytest.mark.parametrize('peer', [pytest.param(peer, id=name) for name, peer in SERVERS.items()])
async def test_run_and_stream_return_text_of_each_server(peer: ServerKind) -> None:
    async with asyncio.timeout(LIMIT):
        client = A2AClient(peer.app(WaitingAgent()), timeout=LIMIT, **peer.options)
        async with RemoteAgent(client) as remote:
            assert (await remote.run('hello')).output == ANSWER
            async with remote.run_stream('hello') as run:
                texts = [text async for text in run.stream_text(debounce_by=None)]
            assert texts[-1] == ANSWER
            assert all(ANSWER.startswith(text) for text in texts)


async def test_message_history_continues_conversation_in_new_remote_agent() -> None:
    app = to_a2a(history_agent())
    async with asyncio.timeout(LIMIT), A2AClient(app):
        first = await RemoteAgent(app).run('one')
        second = await RemoteAgent(app).run('two', message_history=first.all_messages())
        async with RemoteAgent(app).run_stream('three', message_history=second.all_messages()) as run:
            third = await run.get_output()
        assert third.strip() == 'one | two | three'
        fresh = await RemoteAgent(app).run('four')
        assert fresh.output.strip() == 'four'
    details = second.response.provider_details
    assert details is not None
    assert first.response.provider_details is not None
    assert details['contextId'] == first.response.provider_details['contextId']
    assert details['state'] == 'completed'


async def test_credentials_are_accepted_unless_target_is_client() -> None:
    app = to_a2a(Agent('test', name='safe'), auth=BearerAuth({'a-token-of-ann-1234': 'ann'}))
    async with asyncio.timeout(LIMIT), lifespan(app):
        by_token = RemoteAgent(app, auth='a-token-of-ann-1234', timeout=LIMIT)
        by_header = RemoteAgent(app, headers={'Authorization': 'Bearer a-token-of-ann-1234'})
        for agent in (by_token, by_header):
            run = await agent.run('Hello')
            assert run.output == 'success (no tool calls)'
        with pytest.raises(ModelAPIError, match='Authentication is required'):
            await RemoteAgent(app).run('Hello')
    others: dict[str, Any] = {'headers': {}, 'auth': 'x', 'timeout': 3, 'card_keys': TrustedKeys(keys=[private_pem()])}
    for option, value in others.items():
        with pytest.raises(TypeError, match=f'RemoteAgent takes {option} for a target that is no A2AClient'):
            RemoteAgent(A2AClient(app), **{option: value})


async def test_history_of_local_model_is_sent_as_text() -> None:
    local = await Agent(TestModel(custom_output_text='I am local.')).run('hello')
    remote = RemoteAgent(history_agent())
    result = await remote.run('go on', message_history=local.all_messages())
    assert 'hello' in result.output
    assert 'An assistant has answered: I am local.' in result.output
    assert 'go on' in result.output


def typed_agent(output_type: Any, args: dict[str, Any], tool: str = '') -> Agent[None, Any]:
    """An agent that calls its output tool with these arguments."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        [name] = [output.name for output in info.output_tools if output.name.endswith(tool)]
        return ModelResponse([ToolCallPart(name, args)])

    return Agent(FunctionModel(model), output_type=output_type, name='typed')


@pytest.mark.parametrize('streamed', [False, True])
@pytest.mark.parametrize(
    ('inner', 'outer', 'output'),
    [
        (typed_agent(Weather, {'city': 'a', 'celsius': 3}), Weather, Weather(city='a', celsius=3)),
        (
            typed_agent(list[Weather], {'response': [{'city': 'a', 'celsius': 3}]}),
            list[Weather],
            [Weather(city='a', celsius=3)],
        ),
        (typed_agent(int, {'response': 7}), int, 7),
        (typed_agent([Weather, Storm], STORM, 'Storm'), [Weather, Storm], Storm(**STORM)),
        (typed_agent([Weather, Storm], STORM, 'Storm'), [Storm, str], Storm(**STORM)),
        (typed_agent([Weather, Storm], STORM, 'Storm'), ToolOutput(Storm), Storm(**STORM)),
        (typed_agent(Weather, {'city': 'a', 'celsius': 3}), str, '{"city":"a","celsius":3}'),
        (history_agent(), [Storm, str], 'go'),
    ],
    ids=['model', 'list', 'int', 'union', 'model-or-text', 'tool', 'data-as-text', 'text'],
)
async def test_run_and_stream_return_requested_output_type(inner: Any, outer: Any, output: Any, streamed: bool) -> None:
    found = await _output(RemoteAgent(inner, outer), streamed)
    assert (found.strip() if isinstance(found, str) else found) == output


async def _output(remote: RemoteAgent[Any], streamed: bool) -> Any:
    if not streamed:
        return (await remote.run('go')).output
    async with remote.run_stream('go') as run:
        outputs = [output async for output in run.stream_output(debounce_by=None)]
    return outputs[-1]


async def test_invalid_json_text_is_retried_until_output_type_fits() -> None:
    prompts: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompts.append(user_prompts(messages)[-1])
        text = '{"city": "Paris"}' if len(prompts) == 1 else '{"city": "Paris", "celsius": 21}'
        return ModelResponse([TextPart(text)])

    remote = RemoteAgent(Agent(FunctionModel(answer), name='writer'), Weather)
    assert (await remote.run('weather?')).output == Weather(city='Paris', celsius=21)
    assert 'celsius' in prompts[0]
    assert 'Field required' in prompts[1]


async def test_text_replaced_by_server_is_not_in_output() -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield 'Let me look. '
            yield {0: DeltaToolCall('look', '{}', tool_call_id='c1')}
        else:
            yield 'It '
            yield 'rains.'

    agent = Agent(FunctionModel(stream_function=stream), name='looker')

    @agent.tool_plain
    def look() -> str:
        return 'rain'

    remote = RemoteAgent(agent)
    async with remote.run_stream_events('go') as events:
        collected = [event async for event in events]
    result: Any = collected[-1]
    assert result.result.output == 'It rains.'
    async with remote.run_stream('go') as run:
        assert await run.get_output() == 'It rains.'
    assert (await remote.run('go')).output == 'It rains.'


def agent_with_approval_and_question() -> Agent[None, Any]:
    """An agent that deletes a file after an approval, asks a question, and reports the results."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returns = [part for message in messages for part in message.parts if part.part_kind == 'tool-return']
        if not returns:
            return ModelResponse(
                [
                    ToolCallPart('delete', {'path': 'a'}, 'c1'),
                    ToolCallPart('ask', {'question': 'Sure?'}, 'c2'),
                ]
            )
        return ModelResponse([TextPart(' / '.join(str(part.content) for part in returns))])

    agent = Agent(FunctionModel(model), name='keeper')

    @agent.tool_plain(requires_approval=True)
    def delete(path: str) -> str:
        return f'{path} is deleted'

    @agent.tool_plain
    def ask(question: str) -> str:
        raise InputRequired(question)

    return agent


@pytest.mark.parametrize(
    ('approval', 'answer', 'output'),
    [
        (True, 'yes', 'a is deleted / yes'),
        (ToolApproved(override_args={'tool': 'delete', 'args': {'path': 'b'}}), 'yes', 'b is deleted / yes'),
        (ToolDenied('Not today.'), 'no', 'Not today. / no'),
        (ToolDenied(), {'sure': True}, "The tool call was denied. / {'sure': True}"),
        (True, ModelRetry('Ask otherwise.'), 'a is deleted / Ask otherwise.'),
    ],
)
async def test_approvals_and_questions_become_deferred_calls(approval: Any, answer: Any, output: str) -> None:
    app = to_a2a(agent_with_approval_and_question())
    remote = RemoteAgent(app, [str, DeferredToolRequests])
    async with asyncio.timeout(LIMIT), A2AClient(app):
        waiting = await remote.run('tidy up')
        requests = waiting.output
        assert isinstance(requests, DeferredToolRequests)
        [delete] = requests.approvals
        [ask] = requests.calls
        assert delete.tool_name == 'remote_approval'
        assert delete.args_as_dict() == {
            'tool': 'delete',
            'args': {'path': 'a'},
            'text': 'May I call delete {"path":"a"}?',
        }
        assert ask.tool_name == 'remote_question'
        assert ask.args_as_dict()['text'] == 'Sure?'
        with pytest.raises(UserError):
            await remote.run('yes', message_history=waiting.all_messages())
        results = DeferredToolResults(approvals={delete.tool_call_id: approval}, calls={ask.tool_call_id: answer})
        done = await RemoteAgent(app).run(message_history=waiting.all_messages(), deferred_tool_results=results)
        assert output in done.output


async def test_next_prompt_answers_question_of_agent() -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(user_prompts(messages)) == 1:
            [tool] = info.output_tools
            return ModelResponse([ToolCallPart(tool.name, {'question': 'What kind?'})])
        return ModelResponse([TextPart(' and '.join(user_prompts(messages)))])

    app = to_a2a(Agent(FunctionModel(model), output_type=[str, InputRequired], name='pizzeria'))
    async with asyncio.timeout(LIMIT), A2AClient(app):
        remote = RemoteAgent(app)
        asked = await remote.run('a pizza')
        assert asked.output == 'What kind?'
        done = await remote.run('salami', message_history=asked.all_messages())
        assert done.output == 'a pizza and salami'
        first, second = asked.response.provider_details, done.response.provider_details
        assert first is not None
        assert second is not None
        assert first['taskId'] == second['taskId']


async def test_question_in_typed_run_is_deferred_call() -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        name = 'InputRequired' if len(user_prompts(messages)) == 1 else 'Weather'
        [tool] = [tool.name for tool in info.output_tools if tool.name.endswith(name)]
        return ModelResponse([ToolCallPart(tool, {'question': 'Where?'} if name == 'InputRequired' else WEATHER)])

    app = to_a2a(Agent(FunctionModel(model), output_type=[Weather, InputRequired], name='forecaster'))
    async with asyncio.timeout(LIMIT), A2AClient(app):
        remote = RemoteAgent(app, [Weather, DeferredToolRequests])
        for answer in ('in Paris', {'city': 'Paris'}):
            asked = await remote.run('weather')
            assert isinstance(asked.output, DeferredToolRequests)
            [call] = asked.output.calls
            assert call.args_as_dict()['text'] == 'Where?'
            with pytest.raises(UserError, match='waits for answers'):
                await remote.run(
                    'a prompt',
                    message_history=asked.all_messages(),
                    deferred_tool_results=DeferredToolResults(calls={call.tool_call_id: answer}),
                )
            results = DeferredToolResults(calls={call.tool_call_id: answer})
            done = await remote.run(message_history=asked.all_messages(), deferred_tool_results=results)
            assert done.output == Weather(**WEATHER)


class WatchedClient(A2AClient):
    """A client that says when its caller has taken the first event of a task."""

    def __init__(self, app: Starlette) -> None:
        super().__init__(app)
        self.taken = asyncio.Event()

    async def stream(
        self, content: Content, *, output_type: Any = None, **options: Unpack[SendOptions]
    ) -> AsyncGenerator[Update, None]:
        async with aclosing(super().stream(content, **options)) as updates:
            async for update in updates:
                yield update
                self.taken.set()


async def test_canceled_run_of_remote_agent_cancels_its_task() -> None:
    talker = WaitingAgent()
    app = to_a2a(talker.agent)
    async with asyncio.timeout(LIMIT), A2AClient(app) as client:
        for start in (_run, _run_stream):
            talker.reached.clear()
            watched = WatchedClient(app)
            run = asyncio.create_task(start(RemoteAgent(watched)))
            await talker.reached.wait()
            await watched.taken.wait()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
        states = [task.state async for task in client.list()]
    assert states == ['canceled', 'canceled']


async def _run(remote: RemoteAgent[str]) -> str:
    return (await remote.run('wait')).output


async def _run_stream(remote: RemoteAgent[str]) -> str:
    async with remote.run_stream('wait') as run:
        return await run.get_output()


async def test_stream_canceled_early_cancels_remote_task() -> None:
    talker = WaitingAgent()
    app = to_a2a(talker.agent)
    async with asyncio.timeout(LIMIT), A2AClient(app) as client:
        async with RemoteAgent(app).run_stream('wait') as run:
            async for text in run.stream_text(debounce_by=None):
                assert ANSWER.startswith(text)
                await run.cancel()
                break
        [listed] = [listed async for listed in client.list()]
    assert listed.state == 'canceled'


async def test_failed_task_is_model_error_without_internal_text() -> None:
    with pytest.raises(ModelAPIError, match=r'The remote task .* is failed.*') as caught:
        await RemoteAgent(Agent(scripted_model(ValueError('secret')), name='broken')).run('go')
    assert 'secret' not in str(caught.value)


@pytest.mark.parametrize('state', ['failed', 'rejected', 'canceled'])
async def test_failed_rejected_or_canceled_task_is_model_error(state: str) -> None:
    with pytest.raises(ModelAPIError, match=f'The remote task t is {state}'):
        await canned_remote_agent(stream_response({'task': task_in_state(state.upper())})).run('go')


async def test_unreachable_agent_is_model_error() -> None:
    with pytest.raises(ModelAPIError) as caught:
        await RemoteAgent(A2AClient('http://127.0.0.1:9/', timeout=0.1)).run('go')
    assert isinstance(caught.value.__cause__, RemoteUnavailable)


async def test_files_are_sent_and_returned() -> None:
    image = BinaryImage(b'\x89PNG\r\n\x1a\n', media_type='image/png')

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert image.data in [item.data for item in files(messages)]
        return ModelResponse([FilePart(image)])

    painter = FunctionModel(model, profile=ModelProfile(supports_image_output=True))
    remote = RemoteAgent(Agent(painter, output_type=BinaryImage, name='painter'), BinaryImage)
    assert (await remote.run(['draw', image])).output.data == image.data


def files(messages: list[ModelMessage]) -> list[BinaryContent]:
    [part] = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    return [item for item in part.content if isinstance(item, BinaryContent)]


async def test_prompt_content_is_sent_and_uploaded_file_is_refused() -> None:
    content = [
        'one',
        TextContent('two'),
        StructuredContent({'three': 3}),
        CachePoint(),
        ImageUrl('https://example.com/four.png'),
    ]
    seen: list[Any] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.extend(part for message in messages for part in message.parts)
        return ModelResponse([TextPart('seen')])

    remote = RemoteAgent(Agent(FunctionModel(model), name='reader'))
    await remote.run(content, instructions='Be brief.')
    text = str(seen)
    for expected in ('one', 'two', "{'three': 3}", 'four.png', 'Be brief.'):
        assert expected in text
    with pytest.raises(UserError, match='UploadedFile cannot be sent'):
        await remote.run([UploadedFile('f1', provider_name='openai')])
    with pytest.raises(UserError, match='nothing to send'):
        await A2AModel(A2AClient(history_agent())).request([ModelRequest([])], None, ModelRequestParameters())


async def test_system_prompt_is_sent_with_prompt() -> None:
    result = await Agent(A2AModel(A2AClient(history_agent())), system_prompt='Be brief.').run('go')
    assert 'Be brief.' in result.output
    assert 'go' in result.output


def canned_remote_agent(*answers: Any, card: Any = None) -> RemoteAgent[str]:
    server = CannedAgent(*answers, card=card)
    return RemoteAgent(A2AClient(server.app, timeout=LIMIT, trusted_origins=['http://agent.example']))


async def test_message_answer_without_task_is_output() -> None:
    without, within = (stream_response({'message': agent_message('hi', **ids)}) for ids in ({}, {'contextId': 'c'}))
    first = await canned_remote_agent(without).run('hello')
    assert first.output == 'hi'
    assert first.response.provider_details == {'agent': 'canned'}
    second = await canned_remote_agent(within).run('hello', message_history=first.all_messages())
    assert second.response.provider_details == {'agent': 'canned', 'contextId': 'c'}


async def test_history_of_another_remote_agent_is_sent_as_text() -> None:
    first = await RemoteAgent(history_agent()).run('one')
    other = canned_remote_agent(stream_response({'message': agent_message('two')}))
    second = await other.run('go', message_history=first.all_messages())
    third = await RemoteAgent(history_agent()).run('three', message_history=second.all_messages())
    assert 'An assistant has answered: two' in third.output
    assert 'three' in third.output


async def test_history_response_without_text_is_not_sent() -> None:
    history = [ModelRequest([UserPromptPart('one')]), ModelResponse([ToolCallPart('look', {}, 'c1')])]
    result = await A2AModel(A2AClient(history_agent())).request([*history], None, ModelRequestParameters())
    assert (result.text or '').strip() == 'one'


async def test_refused_request_is_model_error() -> None:
    with pytest.raises(ModelAPIError, match='No'):
        await canned_remote_agent(error_response(-32602)).run('go')


async def test_card_without_interfaces_is_model_error() -> None:
    card: Any = {'name': 'nobody', 'capabilities': {}}
    with pytest.raises(ModelAPIError):
        await RemoteAgent(card).run('go')


async def test_replaced_text_is_separated_by_builtin_tool_parts() -> None:
    answer = stream_response(artifact_update('One.'), artifact_update('Two.'), status_update('COMPLETED'))
    result = await canned_remote_agent(answer).run('go')
    assert result.output == 'Two.'
    assert [part.part_kind for part in result.response.parts] == [
        'text',
        'builtin-tool-call',
        'builtin-tool-return',
        'text',
    ]


@each_case(
    'output_type, texts, output',
    [
        pytest.param(
            ToolOutput(Storm),
            ['prose', '{"city": 1}', '{"city": "a", "celsius": 3, "wind": 4}'],
            Storm(**STORM),
            id='output tool',
        ),
        pytest.param([Storm, Weather], ['{"city": 1}', '{"city": "a", "celsius": 3}'], Weather(**WEATHER), id='union'),
    ],
)
async def test_answer_not_matching_output_type_is_retried(output_type: Any, texts: list[str], output: Any) -> None:
    remote = RemoteAgent(Agent(scripted_model(*texts), name='writer'), output_type)
    assert (await remote.run('go', retries=3)).output == output


class Even(BaseModel):
    number: int

    @field_validator('number')
    @classmethod
    def check(cls, value: int) -> int:
        if value % 2:
            raise ValueError('must be even')
        return value


async def test_output_validator_error_is_sent_only_with_retry() -> None:
    numbers = iter([1, 2, 4])
    prompts: list[str] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompts.append(user_prompts(messages)[-1])
        return ModelResponse([TextPart(f'{{"number": {next(numbers)}}}')])

    remote = RemoteAgent(Agent(FunctionModel(model), name='writer'), [ToolOutput(Even), ToolOutput(Storm)])
    async with remote:
        first = await remote.run('go')
        assert first.output == Even(number=2)
        second = await remote.run('again', message_history=first.all_messages())
    assert second.output == Even(number=4)
    assert 'must be even' in prompts[1]
    assert 'again' in prompts[2]
    assert 'even' not in prompts[2]


@pytest.mark.parametrize('kind', ['tool', 'model'])
async def test_run_with_same_run_id_repeats_message_id(kind: str) -> None:
    canned = CannedAgent(*(stream_response({'task': DONE}) for _ in range(5)))
    agent: Any = RemoteAgent(canned.app) if kind == 'model' else calling_agent(toolsets=[A2AToolset(canned.app)])
    for run_id in ('one', 'one', 'two', None, None):
        await agent.run('hello', run_id=run_id)
    ids = [message['messageId'] for message in canned.messages]
    assert ids[0] == ids[1]
    assert len({*ids}) == 4


async def test_file_beside_typed_output_is_used_only_if_requested() -> None:
    image = BinaryImage(b'\x89PNG\r\n\x1a\n', media_type='image/png')

    model = scripted_model([FilePart(image), ToolCallPart('final_result', WEATHER)])
    painter = Agent(model, output_type=Weather, name='painter')
    result = await RemoteAgent(painter, Weather).run('go')
    assert result.output == Weather(**WEATHER)
    assert result.response.files == []
    result = await RemoteAgent(painter, [Weather, BinaryImage]).run('go')
    assert isinstance(result.output, BinaryImage)
    assert result.output.data == image.data


async def test_remote_usage_is_counted_only_in_usage_details() -> None:
    result = await RemoteAgent(history_agent()).run('one two three')
    assert result.usage.details['remote_output_tokens'] > 0
    assert result.usage.output_tokens == 0


async def test_concurrent_runs_get_their_own_answers() -> None:
    async with asyncio.timeout(LIMIT):
        remote = RemoteAgent(history_agent())
        results = await asyncio.gather(*(remote.run(f'n{n}') for n in range(4)))
    assert [result.output.strip() for result in results] == ['n0', 'n1', 'n2', 'n3']


async def test_question_replaces_earlier_text_as_output() -> None:
    waits = status_update('INPUT_REQUIRED', agent_message('Which one?'))
    result = await RemoteAgent(CannedAgent(stream_response(artifact_update('Which'), waits)).app).run('hello')
    assert result.output == 'Which one?'


@pytest.mark.parametrize('prompt', ['I am in.', None])
async def test_typed_run_continues_after_sign_in_with_any_prompt(prompt: str | None) -> None:
    waits = task_in_state('AUTH_REQUIRED', agent_message('Please sign in.'))
    canned = CannedAgent(stream_response({'task': waits}), stream_response({'task': task_with([{'data': WEATHER}])}))
    remote = RemoteAgent(canned.app, [Weather, DeferredToolRequests])
    first = await remote.run('hello')
    assert isinstance(first.output, DeferredToolRequests)
    results = DeferredToolResults(calls={call.tool_call_id: True for call in first.output.calls})
    second = await remote.run(prompt, message_history=first.all_messages(), deferred_tool_results=results)
    assert second.output == Weather(**WEATHER)
    message = canned.messages[-1]
    assert (message['taskId'], message['parts'][0]) == ('t', {'text': prompt or 'Please continue.'})
