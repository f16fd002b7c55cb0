"""What a client gets from an agent: text, data, typed output, files, questions and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pytest
from fasta2a.schema import Part
from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_ai import (
    Agent,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelRetry,
    ToolApproved,
    ToolDenied,
    UploadedFile,
    UserError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    StructuredContent,
    TextContent,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_core import CoreSchema

from pydantic_ai_a2a import (
    A2AClient,
    A2AError,
    AuthRequired,
    InputRequired,
    RemoteError,
    RemoteProtocolError,
    Results,
    to_a2a,
)
from pydantic_ai_a2a.client.message_content import message_of
from pydantic_ai_a2a.errors import UnsupportedOperationError
from pydantic_ai_a2a.testing import Answers
from pydantic_ai_a2a.wire.extensions.card_schemas import SCHEMAS_URI
from pydantic_ai_a2a.wire.extensions.client_schema import CLIENT_SCHEMA_URI

from ..agents import echo_tool_returns, scripted_model
from ..bounds import LIMIT
from .agents.sample_agents import agent_calling_tools, asking_agent
from .canned_agent import (
    CARD,
    TASK,
    CannedAgent,
    agent_message,
    artifact_update,
    result_response,
    status_update,
    stream_response,
    task_in_state,
)


class City(BaseModel):
    name: str
    founded: date


@dataclass
class Order:
    item: str
    count: int = 1


PARIS = {'name': 'Paris', 'founded': '0250-01-01'}
PHOTO = BinaryContent(b'png', media_type='image/png', identifier='photo.png')


# --- content ----------------------------------------------------------------------------------------------------------


def data(value: Any) -> Part:
    return Part(data=value, media_type='application/json')


@pytest.mark.parametrize(
    ('content', 'parts'),
    [
        ('Hello.', [Part(text='Hello.')]),
        (City(name='Paris', founded=date(250, 1, 1)), [data(PARIS)]),
        (Order('tea'), [data({'item': 'tea', 'count': 1})]),
        ({'text': 'is data'}, [data({'text': 'is data'})]),
        ([1, 2, None], [data([1, 2, None])]),
        ([{'row': 1}, {'row': 2}], [data([{'row': 1}, {'row': 2}])]),
        (PHOTO, [Part(raw='cG5n', media_type='image/png', filename='photo.png')]),
        (ImageUrl('https://example.com/a.png'), [Part(url='https://example.com/a.png', media_type='image/png')]),
        (
            ['Compare.', Order('tea'), {'row': 1}, [2], DocumentUrl('https://example.com/a.pdf')],
            [
                Part(text='Compare.'),
                data({'item': 'tea', 'count': 1}),
                data({'row': 1}),
                data([2]),
                Part(url='https://example.com/a.pdf', media_type='application/pdf'),
            ],
        ),
        ([TextContent('Hi'), StructuredContent({'row': 1})], [Part(text='Hi'), data({'row': 1})]),
        ([Part(text='Hi'), Part(data=1)], [Part(text='Hi'), Part(data=1)]),
        (
            [{'url': 'https://example.com', 'size': 3}, 'Hi'],
            [data({'url': 'https://example.com', 'size': 3}), Part(text='Hi')],
        ),
        ([], []),
        ({'role': 'user', 'parts': [Part(text='Hi')]}, [Part(text='Hi')]),
        ({'name': 'car', 'parts': ['door']}, [data({'name': 'car', 'parts': ['door']})]),
    ],
)
def test_message_content_becomes_text_data_and_file_parts(content: Any, parts: list[Part]) -> None:
    assert message_of(content)['parts'] == parts


@pytest.mark.parametrize('content', [3, None, b'bytes', {1}, City, UploadedFile('id', 'openai'), ['Hi', 3]])
async def test_unsupported_message_content_is_refused(content: Any) -> None:
    with pytest.raises(TypeError, match='A message takes a text, data '):
        await A2AClient('http://localhost:1').send(content)


# --- answers ----------------------------------------------------------------------------------------------------------


async def result_with_parts(*parts: dict[str, Any], output_type: Any = None, **fields: Any) -> Any:
    artifacts = [{'artifactId': 'a', 'name': 'result', 'parts': [*parts]}] if parts else []
    async with A2AClient(
        CannedAgent(result_response({'task': {**TASK, 'artifacts': artifacts, **fields}})).app
    ) as client:
        return await client.send('Hello.', output_type=output_type, resend=True)


SCHEMA = {'json_schema': {'type': 'object'}}


@pytest.mark.parametrize(
    ('parts', 'text', 'value', 'output'),
    [
        ([{'text': 'Ha'}, {'text': '!'}], 'Ha!', None, 'Ha!'),
        ([{'data': {'result': PARIS}, 'metadata': SCHEMA}], None, PARIS, PARIS),
        ([{'data': [1]}, {'data': 2}], '[1]\n2', [[1], 2], [[1], 2]),
        ([{'text': 'See:'}, {'data': 2}], 'See:\n2', 2, ['See:', 2]),
        ([{'data': 'abc'}, {'text': 'See:'}], 'abc\nSee:', 'abc', ['abc', 'See:']),
        ([], '', None, ''),
    ],
)
async def test_result_has_text_data_and_output_of_artifact(
    parts: list[dict[str, Any]], text: str | None, value: Any, output: Any
) -> None:
    answer = await result_with_parts(*parts)
    assert (answer.state, answer.task_id, answer.context_id) == ('completed', 't', 'c')
    assert (answer.data, answer.output, answer.waiting) == (value, output, None)
    assert text is None or answer.text == text
    assert answer.task['id'] == answer.outcome['id'] == 't'
    assert repr(answer).startswith("RemoteResult(state='completed', text='")


async def test_result_has_files_and_text_for_files() -> None:
    answer = await result_with_parts(
        {'text': 'Here.'},
        {'raw': 'cG5n', 'mediaType': 'image/png', 'filename': 'photo.png'},
        {'url': 'https://example.com/a.pdf', 'mediaType': 'application/pdf'},
    )
    photo, paper = answer.files
    assert (photo.data, photo.media_type, paper.url) == (b'png', 'image/png', 'https://example.com/a.pdf')
    assert answer.text == 'Here.\n[photo.png: image/png]\nhttps://example.com/a.pdf'


TYPED: list[tuple[Any, list[dict[str, Any]], Any]] = [
    (City, [{'data': {'result': PARIS}, 'metadata': SCHEMA}], City.model_validate(PARIS)),
    (City, [{'text': 'Of course:'}, {'data': PARIS}], City.model_validate(PARIS)),
    (City, [{'text': '{"name": "Paris", "founded": "0250-01-01"}'}], City.model_validate(PARIS)),
    (list[int], [{'data': [1, 2]}], [1, 2]),
    (list[int], [{'data': 1}, {'data': 2}], [1, 2]),
    (City | str, [{'text': 'Of course:'}, {'data': PARIS}], City.model_validate(PARIS)),
    (list[BinaryContent], [{'raw': 'cG5n', 'mediaType': 'application/zip'}], None),
    (int, [{'text': '42'}], 42),
    (str, [{'data': {'a': 1}}], '{"a":1}'),
    (BinaryContent, [{'text': 'Here.'}, {'raw': 'cG5n', 'mediaType': 'application/zip'}], b'png'),
]


@pytest.mark.parametrize(('output_type', 'parts', 'output'), TYPED)
async def test_result_output_is_parsed_into_output_type(
    output_type: Any, parts: list[dict[str, Any]], output: Any
) -> None:
    answer = await result_with_parts(*parts, output_type=output_type)
    found = answer.output
    assert found is answer.output
    if output is None:
        assert found == answer.files
    else:
        assert output == (found.data if isinstance(found, BinaryContent) else found)


async def test_result_not_matching_output_type_is_remote_error() -> None:
    wrong = await result_with_parts({'data': {'name': 'Paris', 'founded': 'long ago'}}, output_type=City)
    with pytest.raises(RemoteError, match='The answer does not fit City: founded: Input should be a valid date'):
        print(wrong.output)
    nested = await result_with_parts({'text': 'Of course:'}, {'data': [PARIS, {'name': 1}]}, output_type=list[City])
    with pytest.raises(RemoteError, match=r'fit list\[City\]: 1.name: .* valid string; 1.founded: Field required\.'):
        print(nested.output)
    prose = await result_with_parts({'text': 'In Paris.'}, output_type=City)
    with pytest.raises(RemoteError, match=r'fit City: Invalid JSON: .* The agent said .In Paris'):
        print(prose.output)


class Counted:
    """A type that counts the schemas that Pydantic builds of it."""

    schemas = 0

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        cls.schemas += 1
        return handler(int)


async def test_send_builds_schema_of_output_type_once() -> None:
    card = {**CARD, 'capabilities': {'extensions': [{'uri': CLIENT_SCHEMA_URI}]}}
    task = {**TASK, 'artifacts': [{'artifactId': 'a', 'parts': [{'text': '42'}]}]}
    canned = CannedAgent(result_response({'task': task}), card=card)
    async with A2AClient(canned.app) as client:
        result = await client.send('Hello.', output_type=Counted)
    assert (result.output, Counted.schemas) == (42, 1)


async def test_output_type_without_schema_is_refused_before_sending() -> None:
    canned = CannedAgent()
    async with A2AClient(canned.app) as client:
        with pytest.raises(PydanticSchemaGenerationError):
            await client.send('Hello.', output_type=CannedAgent)
    assert canned.methods == []


async def test_output_not_matching_schema_of_card_is_remote_error() -> None:
    schema = {'type': 'object', 'properties': {'founded': {'type': 'integer'}}}
    capabilities = {'extensions': [{'uri': SCHEMAS_URI, 'params': {'outputSchema': schema}}]}
    artifacts = [{'artifactId': 'a', 'name': 'result', 'parts': [{'data': {'result': PARIS}, 'metadata': SCHEMA}]}]
    async with A2AClient(
        CannedAgent(
            result_response({'task': {**TASK, 'artifacts': artifacts}}), card={**CARD, 'capabilities': capabilities}
        ).app
    ) as client:
        with pytest.raises(RemoteError, match='does not fit the outputSchema of its card: result'):
            print((await client.send('Paris?', resend=True)).output)


@pytest.mark.parametrize(
    ('state', 'says'),
    [
        ('FAILED', 'The remote task t is failed. No.'),
        ('REJECTED', 'The remote task t is rejected. No.'),
        ('WORKING', 'The remote task t is working. No.'),
        ('INPUT_REQUIRED', 'The remote task t waits for an answer: No.'),
    ],
)
async def test_output_of_uncompleted_task_is_remote_error(state: str, says: str) -> None:
    canned = CannedAgent(result_response({'task': task_in_state(state, agent_message('No.'))}))
    async with A2AClient(canned.app) as client:
        answer = await client.send('Hello.', return_immediately=True)
        assert answer.text == 'No.'
        with pytest.raises(RemoteError) as failed:
            print(answer.output)
        assert str(failed.value) == says
        with pytest.raises(RemoteError, match=says):
            await client.send_text('Hello.', return_immediately=True)


@pytest.mark.parametrize(('version', 'binding'), [('1.0', 'JSONRPC'), ('1.0', 'HTTP+JSON'), ('0.3', 'JSONRPC')])
async def test_task_returned_immediately_streams_text_to_later_subscriber(version: Any, binding: Any) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield 'It '
        begun.set()
        await go_on.wait()
        yield 'is sunny.'

    async def whole(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        begun.set()
        await go_on.wait()
        return ModelResponse(parts=[TextPart('It is sunny.')])

    app = to_a2a(Agent(FunctionModel(whole, stream_function=stream)), results=Results(interval=0))
    async with A2AClient(app, version=version, binding=binding) as client, asyncio.timeout(LIMIT):
        task: Any = (await client.send('hello', return_immediately=True)).outcome
        await begun.wait()
        texts: list[str] = []
        async for update in client.subscribe(task['id']):
            go_on.set()
            texts.append(update.result.text)
    assert (texts[0], texts[-1]) == ('It ', 'It is sunny.')


async def test_message_answer_has_text_but_no_task() -> None:
    async with A2AClient(CannedAgent(result_response({'message': agent_message('Hi.')})).app) as client:
        answer = await client.send('Hello.', resend=True)
        assert (answer.text, answer.output, answer.data, answer.files) == ('Hi.', 'Hi.', None, [])
        assert (answer.task, answer.state, answer.context_id, answer.pending) == (None, None, None, [])
        with pytest.raises(RemoteError, match='The agent has answered with a message, without a task'):
            print(answer.task_id)
        with pytest.raises(UserError, match='There is nothing to answer'):
            await answer.answer('Yes.')
        assert await client.send_text('Hello.', context_id=answer.context_id, resend=True) == 'Hi.'


# --- streams ----------------------------------------------------------------------------------------------------------


async def test_streamed_text_chunks_add_up_to_full_text() -> None:
    async def words(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for word in ('One', ' two', ' three'):
            yield word

    async with A2AClient(to_a2a(Agent(scripted_model('One two three', stream_function=words)))) as client:
        pieces = [piece async for piece in client.stream_text('Count.')]
        assert ''.join(pieces) == await client.send_text('Count.') == 'One two three'
        assert len(pieces) > 1
        updates = [update async for update in client.stream('Count.')]
    assert repr(updates[0]) == "Update(task, state='submitted')"
    texts = [repr(update) for update in updates if 'artifact_update' in update.event]
    assert texts[0] == "Update(artifact_update, state='working', text='One')"
    assert updates[-1].result.text == 'One two three'


DONE = status_update('COMPLETED')
DONE_WITH_TEXT = status_update('COMPLETED', agent_message('Hi.'))


@pytest.mark.parametrize(
    ('events', 'pieces'),
    [
        (
            [
                artifact_update('Dra'),
                artifact_update('ft', append=True),
                artifact_update(''),
                artifact_update('Text'),
                DONE,
            ],
            ['Dra', 'ft', '\n\nText'],
        ),
        ([DONE_WITH_TEXT], ['Hi.']),
        ([{'message': agent_message('Hi.')}], ['Hi.']),
        ([artifact_update('Text'), DONE_WITH_TEXT], ['Text']),
    ],
    ids=['replaced', 'in the status', 'without a task', 'beside a status'],
)
async def test_streamed_text_is_read_from_artifact_status_or_message(
    events: Sequence[dict[str, Any]], pieces: list[str]
) -> None:
    async with A2AClient(CannedAgent(stream_response(*events)).app) as client:
        assert [piece async for piece in client.stream_text('Hello.')] == pieces


# --- questions --------------------------------------------------------------------------------------------------------


A, B = ('delete_file', {'path': 'a'}), ('delete_file', {'path': 'b'})
ASK = ('ask', {'what': 'pizza'})


async def test_pending_tool_call_is_approved_or_denied() -> None:
    async with A2AClient(agent_calling_tools(A)) as client:
        asked = await client.send('Go.', metadata={'n': 1})
        [call] = asked.pending
        assert (asked.state, call['tool'], call.get('args')) == ('input-required', 'delete_file', {'path': 'a'})
        assert asked.text == call['text']
        done = await asked.approve()
        assert (done.state, done.text, done.task_id) == ('completed', 'a is deleted', asked.task_id)
        assert (await (await client.send('Go.')).approve(args={'path': 'c'})).text == 'c is deleted'
        assert (await (await client.send('Go.')).deny('Keep it.')).text == 'Keep it.'
        assert (await (await client.send('Go.')).deny()).text == 'The tool call was denied.'


async def test_empty_denial_reason_gets_default_text() -> None:
    async with A2AClient(agent_calling_tools(A, ASK)) as client:
        asked = await client.send('Go.')
        delete, question = (call['id'] for call in asked.pending)
        done = await asked.answer({delete: ToolDenied(''), question: ModelRetry('')})
    assert done.text == 'The tool call was denied., No answer was given.'


async def test_approval_does_not_repeat_reference_task_ids() -> None:
    async with A2AClient(agent_calling_tools(A)) as client:
        first = await (await client.send('Go.')).approve()
        asked = await client.send('Once more.', reference_task_ids=[first.task_id])
        done = await asked.approve()
    history = [] if done.task is None else done.task.get('history', [])
    names = [message.get('reference_task_ids') for message in history if message['role'] == 'user']
    assert names == [[first.task_id], None]


async def test_answer_replaces_metadata_and_keeps_output_modes() -> None:
    answers = (result_response({'task': task}) for task in (task_in_state('INPUT_REQUIRED'), TASK))
    canned = CannedAgent(*answers, card={**CARD, 'capabilities': {}})
    async with A2AClient(canned.app) as client:
        asked = await client.send('Hello.', metadata={'n': 1}, accepted_output_modes=['text/plain'])
        await asked.answer('Yes.', metadata={'n': 2})
    assert [params['metadata'] for params in canned.params] == [{'n': 1}, {'n': 2}]
    assert [params['configuration']['acceptedOutputModes'] for params in canned.params] == [['text/plain']] * 2


async def test_answers_with_an_unknown_call_are_refused() -> None:
    async with A2AClient(agent_calling_tools(A, B)) as client:
        asked = await client.send('Go.')
        first, second = (call['id'] for call in asked.pending)
        with pytest.raises(UserError, match='Answer with a mapping of call ids'):
            await asked.answer({first: True, second: True, 'x': True})
        assert (await client.get(asked.task_id)).state == 'input-required'


async def test_pending_calls_are_decided_singly_or_together() -> None:
    async with A2AClient(agent_calling_tools(A, B, ASK)) as client:
        asked = await client.send('Go.')
        first, second, question = (call['id'] for call in asked.pending)
        with pytest.raises(UserError, match='`args` are of one call'):
            await asked.approve(args={'path': 'c'})
        with pytest.raises(UserError, match="The remote task has no pending call 'x', only"):
            await asked.approve(call_id='x')
        left = await asked.approve(call_id=first, args={'path': 'c'})
        assert [call['id'] for call in left.pending] == [second, question]
        left = await left.deny('No.', call_id=second)
        done = await left.answer('salami', call_id=question)
        assert done.text == 'c is deleted, No., salami'
        asked = await client.send('Go.')
        left = await asked.approve()
        assert [call['kind'] for call in left.pending] == ['question']
        with pytest.raises(UserError, match='An approval is no answer'):
            await left.approve()
        assert (await left.answer('salami')).text == 'a is deleted, b is deleted, salami'
        asked = await client.send('Go.')
        first, second, question = (call['id'] for call in asked.pending)
        answers = {first: True, second: ToolDenied('No.'), question: 'none'}
        assert (await asked.answer(answers)).text == 'a is deleted, No., none'
        assert (await (await client.send('Go.')).deny('No.')).state == 'completed'


async def test_question_of_agent_is_answered_or_denied() -> None:
    async with A2AClient(asking_agent()) as client:
        asked = await client.send('Go.')
        assert (asked.text, asked.pending) == ('Which pizza?', [])
        done = await asked.answer('Salami')
        assert (done.output, done.task_id) == ('With salami.', asked.task_id)
        assert (await (await client.send('Go.')).deny()).state == 'canceled'


async def test_approval_of_question_is_refused() -> None:
    async with A2AClient(agent_calling_tools(A, ASK)) as client:
        asked = await client.send('Go.')
        question = asked.pending[1]['id']
        for answer in (asked.approve(call_id=question), asked.answer(ToolApproved(), call_id=question)):
            with pytest.raises(UserError, match='An approval is no answer'):
                await answer


async def test_false_answers_boolean_question() -> None:
    agent = Agent(scripted_model(ToolCallPart('sure', {}), echo_tool_returns), name='asker')

    @agent.tool_plain
    def sure() -> str:
        raise InputRequired('Are you sure?', {'type': 'boolean'})

    async with A2AClient(agent) as client:
        assert (await (await client.send('Go.')).answer(False)).text == 'False'


async def test_output_type_of_message_applies_after_approval() -> None:
    model = scripted_model(ToolCallPart('look', {}), ToolCallPart('final_result', PARIS))
    agent = Agent(model, output_type=City, name='mapper')

    @agent.tool_plain(requires_approval=True)
    def look() -> str:
        return 'Paris'

    async with A2AClient(agent) as client:
        asked = await client.send('Go.', output_type=City, accepted_output_modes=['application/json'])
        assert (await asked.approve(max_wait=LIMIT)).output == City.model_validate(PARIS)


async def test_auth_required_task_is_approved_or_denied() -> None:
    signed_in: list[bool] = []
    agent = Agent(scripted_model(ToolCallPart('mail', {}), echo_tool_returns), name='post')

    @agent.tool_plain
    def mail() -> str:
        if not signed_in:
            raise AuthRequired('Please sign in.')
        return 'Lunch?'

    async with A2AClient(agent) as client:
        asked = await client.send('Go.')
        assert (asked.state, asked.text) == ('auth-required', 'Please sign in.')
        assert (await (await client.send('Go.')).deny()).state == 'canceled'
        signed_in.append(True)
        assert (await asked.approve()).text == 'Lunch?'


async def test_testing_answers_complete_task_of_ordinary_client() -> None:
    async with A2AClient(agent_calling_tools(A, ASK)) as client:
        answers = Answers({'delete_file': ToolApproved(override_args={'path': 'c'}), 'ask': 'salami'})
        assert (await answers.complete(await client.send('Go.'))).text == 'c is deleted, salami'


async def test_waiting_task_is_approved_by_another_client() -> None:
    async with A2AClient(app := to_a2a(agent_calling_tools(A))) as client, A2AClient(app) as approver:
        asked = await client.send('Go.')
        [waiting] = [listed async for listed in approver.list(state='input-required')]
        assert waiting.task_id == asked.task_id
        await waiting.approve()
        assert (await client.get(asked.task_id)).text == 'a is deleted'


async def test_answer_before_last_prompt_is_not_returned() -> None:
    said = [('ROLE_USER', 'First?'), ('ROLE_AGENT', 'First.'), ('ROLE_USER', 'Second?')]
    history = [
        {'messageId': text, 'role': role, 'parts': [{'text': text}]}
        for role, text in (*said, ('ROLE_AGENT', 'Second.'))
    ]
    canned = CannedAgent(*(result_response({'task': {**TASK, 'history': history[:count]}}) for count in (2, 3, 4)))
    async with A2AClient(canned.app) as client:
        assert [await client.send_text('Hello.') for _ in range(3)] == ['First.', '', 'Second.']


# --- conversations ----------------------------------------------------------------------------------------------------


async def test_conversation_keeps_context_and_answers_questions() -> None:
    async with A2AClient(asking_agent()) as client:
        chat = client.conversation()
        assert chat.context_id is None
        asked = await chat.send('Go.')
        assert chat.context_id == asked.context_id
        done = await chat.send('Salami')
        assert (done.text, done.task_id) == ('With salami.', asked.task_id)
        assert await chat.send_text('And now?') == 'With salami.'
        assert ''.join([piece async for piece in chat.stream_text('Once more?')]) == 'With salami.'
        assert len([listed async for listed in client.list(context_id=chat.context_id)]) == 3
        left = client.conversation()
        async for _ in left.stream('Go.'):
            break  # the conversation is known from the first event on
        assert left.context_id not in (None, chat.context_id)


async def test_conversation_continues_after_question_was_answered_elsewhere() -> None:
    async with A2AClient(agent_calling_tools(A)) as client:
        chat = client.conversation()
        asked = await chat.send('Go.')
        await asked.approve()
        again = await chat.send('Go.')
        assert (again.state, again.context_id) == ('input-required', chat.context_id)
        await again.deny()
        updates = [update async for update in chat.stream('Go.')]
        assert (updates[-1].state, updates[-1].context_id) == ('input-required', chat.context_id)
        await client.cancel(updates[-1].result.task_id)
        with pytest.raises(A2AError):  # the caller has named the task
            await chat.send('Go.', task_id=asked.task_id)
        with pytest.raises(A2AError):
            await anext(chat.stream('Go.', task_id=asked.task_id))


async def test_conversation_keeps_waiting_task_until_answered_or_erased() -> None:
    async with A2AClient(app := to_a2a(asking_agent())) as client:
        chat = client.conversation()
        asked = await chat.send('Go.')
        with pytest.raises(UnsupportedOperationError, match='takes no tools of clients'):
            await chat.send('Salami', tools=[])
        assert (await chat.send('Salami')).task_id == asked.task_id
        other = client.conversation()
        gone = await other.send('Go.')
        await app.erase_task(gone.task_id)
        assert (await other.send('Go.')).task_id != gone.task_id


async def test_conversation_keeps_context_over_message_without_context() -> None:
    answers = (result_response({'message': agent_message('Hello.', **ids)}) for ids in ({'contextId': 'c'}, {}))
    canned = CannedAgent(*answers)
    async with A2AClient(canned.app) as client:
        chat = client.conversation()
        for _ in range(3):
            await chat.send('Hello.')
        assert chat.context_id == 'c'
    assert [message.get('contextId') for message in canned.messages] == [None, 'c', 'c']


async def test_list_since_a_time_keeps_its_milliseconds() -> None:
    canned = CannedAgent(result_response({'tasks': []}))
    async with A2AClient(canned.app) as client:
        assert [task async for task in client.list(since=datetime(2026, 11, 28, 12, 0, 0, 123_000, UTC))] == []
    [params] = canned.params
    assert params['statusTimestampAfter'] == '2026-11-28T12:00:00.123Z'


async def test_listed_task_has_output_only_with_artifacts() -> None:
    async with A2AClient(Agent(TestModel(custom_output_text='Ha!'))) as client:
        await client.send('Hello.')
        [bare] = [listed async for listed in client.list()]
        [whole] = [listed async for listed in client.list(include_artifacts=True)]
        assert whole.output == whole.text == 'Ha!'
        assert repr(bare) == f"RemoteResult(state='completed', task_id={bare.task_id!r})"
        for attribute in ('output', 'text', 'data', 'files'):
            with pytest.raises(RemoteError, match='listed without its artifacts'):
                getattr(bare, attribute)


async def test_failed_stream_keeps_context_of_conversation() -> None:
    async with A2AClient(CannedAgent(result_response({})).app) as client:
        chat = client.conversation('c')
        with pytest.raises(RemoteProtocolError):
            await anext(chat.stream('Hello.'))
        assert chat.context_id == 'c'
