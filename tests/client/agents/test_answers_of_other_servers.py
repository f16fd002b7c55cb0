"""Answers and questions in other places than ours, as other servers send them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import (
    BinaryContent,
    BinaryImage,
    DeferredToolRequests,
    DeferredToolResults,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai.exceptions import ModelAPIError, UserError
from starlette.responses import Response

from pydantic_ai_a2a import A2AClient, A2AToolset, RemoteAgent, remote_results, to_a2a
from pydantic_ai_a2a.client.answer_content import content_of
from pydantic_ai_a2a.client.question_answers import answer_to
from pydantic_ai_a2a.client.questions import RemoteQuestion, question_of_task

from ...bounds import LIMIT
from ...cases import each_case
from ..canned_agent import (
    WORKING,
    CannedAgent,
    agent_message,
    canned_client,
    result_response,
    status_update,
    stream_response,
)
from .canned_tasks import (
    CONFIRMATION_TEXT,
    DONE,
    PNG,
    USER_MESSAGE,
    adk_call,
    adk_confirmation,
    adk_response,
    task_asking,
    task_with,
    task_with_confirmations,
)
from .sample_agents import MakeAgent, calling_agent, each_middle_agent

QUESTION = agent_message({'text': 'Which city?'})
THOUGHT = {'text': 'Hmm.', 'metadata': {'adk_thought': True}}
CALL: dict[str, Any] = {'data': {'id': '1', 'name': 'look', 'args': {}}, 'metadata': {'kagent_type': 'function_call'}}
ANSWERS: dict[str, tuple[dict[str, Any], Any]] = {
    'artifact': (task_with([{'text': 'A'}], status=agent_message({'text': 'B'})), 'A'),
    'status message': (
        task_with(status=agent_message({'text': 'B'}), history=[USER_MESSAGE, agent_message({'text': 'C'})]),
        'B',
    ),
    'Agno': (task_with(history=[agent_message({'text': 'C'})]), 'C'),
    'older history': (task_with(history=[USER_MESSAGE, QUESTION, USER_MESSAGE, agent_message({'text': 'C'})]), 'C'),
    'no answer': (task_with(history=[USER_MESSAGE, QUESTION, USER_MESSAGE]), ''),
    'empty artifact': (task_with([{'text': ''}], status=agent_message({'text': 'B'})), 'B'),
    'separate artifacts': (task_with([{'text': 'A'}, {'text': 'a'}], [{'text': 'B'}]), ['Aa', 'B']),
    'ADK thoughts': (task_with(status=agent_message(THOUGHT, CALL, {'text': 'B'})), 'B'),
    'thoughts as artifact': (task_with([THOUGHT], [{'text': 'A'}]), 'A'),
    'Agno reasoning': (
        task_with(
            history=[
                agent_message({'text': 'C'}),
                agent_message({'text': 'Hmm.'}, metadata={'agno_content_category': 'reasoning'}),
            ]
        ),
        'C',
    ),
    'our progress': (task_with(status=agent_message({'text': 'look'}, metadata={'progress': 'tool'})), ''),
}


@each_case('name', ANSWERS)
async def test_answer_is_read_from_artifacts_status_or_history(name: str) -> None:
    wire, expected = ANSWERS[name]
    async with canned_client(CannedAgent(result_response({'task': wire}))) as client:
        assert content_of((await client.send('hello')).outcome) == expected


@each_case('history', [[agent_message({'text': 'Here.'}, PNG)], []])
async def test_text_beside_files_is_kept(history: Any) -> None:
    wire = task_with([PNG], status=None if history else agent_message({'text': 'Here.'}, PNG), history=history)
    async with canned_client(CannedAgent(result_response({'task': wire}))) as client:
        [text, file] = content_of((await client.send('hello')).outcome)
        assert (text, file.data) == ('Here.', b'hello')
        assert (await RemoteAgent(client).run('hello')).output == 'Here.'


async def test_texts_of_artifacts_are_joined_by_line_breaks() -> None:
    canned = CannedAgent(result_response({'task': task_with([{'text': 'One.'}], [THOUGHT], [{'text': 'Two.'}])}))
    assert (await RemoteAgent(canned.app).run('hello')).output == 'One.\nTwo.'


def named_artifacts(*texts: str, name: str | None = 'current_result') -> list[dict[str, Any]]:
    """Artifacts of one text each, as `new_text_artifact` of the official SDK makes them."""
    fields = {} if name is None else {'name': name, 'description': ''}
    return [{'artifactId': f'{name}-{n}', 'parts': [{'text': text}], **fields} for n, text in enumerate(texts)]


def streamed(artifacts: list[dict[str, Any]]) -> Response:
    events = [{'artifactUpdate': {'taskId': 't', 'contextId': 'c', 'artifact': artifact}} for artifact in artifacts]
    return stream_response({'task': WORKING}, *events, status_update('COMPLETED'))


async def assert_all_read(artifacts: list[dict[str, Any]], text: str) -> None:
    """Read an answer as a whole and as a stream, by the client and the agent."""
    whole = result_response({'task': task_with(artifacts=artifacts)})
    async with canned_client(CannedAgent(whole, *(streamed(artifacts) for _ in range(3)))) as client:
        for _ in range(2):
            assert (await client.send('hello')).text == text
        assert (await RemoteAgent(client).run('hello')).output == text
        async with RemoteAgent(client).run_stream('hello') as run:
            assert await run.get_output() == text


TOKENS = ['I', "'ll", ' book', ' Room', ' 21', '.\n\n', 'See', ' you', '!']


@each_case('name', ['current_result', None])
@each_case('texts', [TOKENS, ['It ', 'is ', '21', '.'], [' It is', ' 21.'], ['Hello', ', ', 'you']])
async def test_tokens_as_artifacts_are_joined_without_line_breaks(texts: list[str], name: str | None) -> None:
    """As the travel planner of the samples of A2A sends them: each token is an artifact with an id of its own."""
    await assert_all_read(named_artifacts(*texts, name=name), ''.join(texts))


async def test_tokens_as_artifacts_are_streamed_as_pieces_of_text() -> None:
    async with canned_client(CannedAgent(streamed(named_artifacts(*TOKENS)))) as client:
        pieces = [piece async for piece in client.stream_text('hello')]
    # Before the first space, they may be artifacts of a line each.
    assert pieces == ['I', "\n'll", "\n\nI'll book", *TOKENS[3:]]


ARTIFACTS: dict[str, tuple[list[dict[str, Any]], str]] = {
    'several lines': (
        named_artifacts('Rome:\nsun ', 'Bern:\nrain', 'Oslo:\nsnow'),
        'Rome:\nsun \nBern:\nrain\nOslo:\nsnow',
    ),
    'no spaces': (named_artifacts('Rome', 'Bern', 'Oslo'), 'Rome\nBern\nOslo'),
    'two names': ([*named_artifacts('Rome ', name='a'), *named_artifacts('Bern', name='b')], 'Rome \nBern'),
    'data between': (
        [*named_artifacts('Rome '), {'artifactId': 'd', 'parts': [{'data': 1}]}, *named_artifacts('Bern', name='b')],
        'Rome \n1\nBern',
    ),
}


@each_case('name', ARTIFACTS)
async def test_artifacts_of_lines_stay_separated_by_line_breaks(name: str) -> None:
    await assert_all_read(*ARTIFACTS[name])


PDF = {'raw': 'aGVsbG8=', 'mediaType': 'application/pdf', 'filename': 'a.pdf'}


@each_case(
    ('parts', 'output_type', 'output'),
    [
        ([PDF], str, '[a.pdf: application/pdf]'),
        ([PNG, PDF], str | None, '[a.png: image/png]\n[a.pdf: application/pdf]'),
        ([PNG], [str, BinaryImage], BinaryImage(b'hello', media_type='image/png', identifier='a.png')),
        ([PDF], [str, BinaryImage], '[a.pdf: application/pdf]'),
    ],
)
async def test_text_of_answer_with_only_files_is_file_names(parts: Any, output_type: Any, output: Any) -> None:
    wire = {'task': task_with(parts)}
    ended = await RemoteAgent(CannedAgent(result_response(wire)).app, output_type).run('hello')
    assert ended.output == output
    assert [file.data for file in ended.response.files] == [b'hello'] * len(parts)
    async with RemoteAgent(CannedAgent(result_response(wire)).app, output_type).run_stream('hello') as streamed:
        assert await streamed.get_output() == output


async def test_intermediate_server_passes_files_on() -> None:
    canned = CannedAgent(result_response({'task': task_with([PDF])}))
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(RemoteAgent(canned.app))) as client:
        answer: Any = content_of((await client.send('hello')).outcome)
    assert [item.data for item in answer if isinstance(item, BinaryContent)] == [b'hello']


@each_case('artifacts', [[], [[THOUGHT]]])
async def test_empty_answer_is_model_error_without_second_message(artifacts: Any) -> None:
    canned = CannedAgent(result_response({'task': task_with(*artifacts)}))
    with pytest.raises(ModelAPIError, match='The remote agent has answered without text or other output'):
        await RemoteAgent(canned.app).run('hello')
    assert len(canned.methods) == 1
    assert (await RemoteAgent(canned.app, str | None).run('hello')).output is None


# --- questions in other places than the text of the status message

APPROVE = agent_message({'text': 'Approve it?'})
DRAFT = [{'text': 'Dear Ann,'}, {'data': {'total': 3}}]
QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    'status message': (
        task_asking(status=QUESTION, history=[USER_MESSAGE, agent_message({'text': 'C'})]),
        'Which city?',
    ),
    'data': (task_asking(status=agent_message({'text': 'Which one?'}, {'data': ['a', 'b']})), 'Which one?\n["a","b"]'),
    'draft in an artifact': (task_asking(DRAFT, status=APPROVE), 'Dear Ann,\n{"total":3}\nApprove it?'),
    'file in an artifact': (task_asking([PNG], status=APPROVE), '[a.png: image/png]\nApprove it?'),
    'file without a name': (task_asking([{'raw': 'aGVsbG8='}]), '[a file: application/octet-stream]'),
    'URL': (task_asking(status=agent_message({'url': 'https://x.example/a'})), 'https://x.example/a'),
    'artifact only': (task_asking([{'text': 'Dear Ann, ... Approve it?'}]), 'Dear Ann, ... Approve it?'),
    'history': (task_asking(history=[USER_MESSAGE, QUESTION]), 'Which city?'),
    'history below a draft': (
        task_asking(DRAFT, history=[USER_MESSAGE, APPROVE]),
        'Dear Ann,\n{"total":3}\nApprove it?',
    ),
    'history after thoughts': (
        task_asking(status=agent_message(THOUGHT), history=[QUESTION, agent_message(CALL)]),
        'Which city?',
    ),
    'older history': (task_asking(history=[QUESTION, USER_MESSAGE]), ''),
    'streamed question': (task_asking([{'text': 'Which'}], status=QUESTION), 'Which city?'),
}


@each_case('name', QUESTIONS)
async def test_question_is_read_from_status_artifacts_or_history(name: str) -> None:
    wire, expected = QUESTIONS[name]
    async with canned_client(CannedAgent(result_response({'task': wire}))) as client:
        assert question_of((await client.send('hello')).outcome)['text'] == expected
        answer = (await RemoteAgent(client).run('hello')).output
        assert answer == (expected or 'The remote agent waits for an answer.')
    ended = await calling_agent(toolsets=[A2AToolset(CannedAgent(result_response({'task': wire})).app)]).run('hello')
    assert ended.output.metadata['outer-call']['a2a_waiting']['text'] == expected


@each_middle_agent
@each_case('name', ['draft in an artifact', 'file in an artifact', 'data', 'history'])
async def test_intermediate_server_passes_question_on(between: MakeAgent, name: str) -> None:
    wire, expected = QUESTIONS[name]
    canned = CannedAgent(stream_response({'task': wire}), stream_response({'task': DONE}))
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(between(canned.app, 'middle'))) as client:
        waits: Any = (await client.send('hello')).outcome
        assert question_of(waits)['text'].startswith(expected)
        ended: Any = (await client.send('Bern', task_id=waits['id'], context_id=waits['context_id'])).outcome
        assert ended['status']['state'] == 'completed'
    assert sent_parts(canned) == [{'text': 'Bern'}]


# --- function calls of ADK and kagent -------------------------------------------------------------------------------


def question_of(answer: Any) -> RemoteQuestion:
    assert answer['status']['state'] == 'input-required'
    return question_of_task('', answer)


def sent_parts(canned: CannedAgent) -> list[Any]:
    """The parts of the last message."""
    return canned.messages[-1]['parts']


APPROVALS: list[tuple[Any, Any, dict[str, Any]]] = [
    ({}, True, {'confirmed': True}),
    ({}, ToolApproved(), {'confirmed': True}),
    ({}, False, {'confirmed': False}),
    ({}, ToolDenied('Never.'), {'confirmed': False, 'payload': {'rejection_reason': 'Never.'}}),
    ({'payload': {'task_id': 't'}}, True, {'confirmed': True, 'payload': {'task_id': 't'}}),
    (
        {'payload': {'task_id': 't'}},
        ToolDenied('Never.'),
        {'confirmed': False, 'payload': {'task_id': 't', 'rejection_reason': 'Never.'}},
    ),
]


@each_case('prefix', ['adk', 'kagent'])
@each_case(('fields', 'answer', 'expected'), APPROVALS)
async def test_adk_confirmation_is_pending_approval(prefix: str, fields: Any, answer: Any, expected: Any) -> None:
    canned = CannedAgent(result_response({'task': task_with_confirmations(adk_confirmation(prefix, **fields))}))
    async with canned_client(canned) as client:
        waiting = question_of((await client.send('hello')).outcome)
        [call] = waiting['pending']
        assert (call['kind'], call['tool'], call.get('args')) == ('approval', 'delete_file', {'path': 'a.txt'})
        assert (
            waiting['text'] == call['text'] == CONFIRMATION_TEXT + ('\n{"task_id":"t"}' if 'payload' in fields else '')
        )
        await client.send(answer_to(waiting, answer).get('parts', []), task_id='t')
    assert sent_parts(canned) == [adk_response(prefix, **expected)]


async def test_each_adk_confirmation_gets_its_own_answer() -> None:
    canned = CannedAgent(
        result_response({'task': task_with_confirmations(adk_confirmation(), adk_confirmation(call_id='other'))})
    )
    async with canned_client(canned) as client:
        waiting = question_of((await client.send('hello')).outcome)
        with pytest.raises(UserError, match="The remote call 'other' takes no other arguments"):
            answer_to(waiting, {'confirm': True, 'other': ToolApproved(override_args={'path': 'b.txt'})})
        await client.send(answer_to(waiting, {'confirm': True, 'other': False}).get('parts', []), task_id='t')
    assert sent_parts(canned) == [adk_response(confirmed=True), adk_response(call_id='other', confirmed=False)]


FUNCTION_CALLS: list[tuple[dict[str, Any], str, Any, Any]] = [
    (
        adk_call(name='ask_manager', args={'amount': 5}),
        'Waiting for the result of ask_manager {"amount":5}.',
        {'ok': 1},
        {'ok': 1},
    ),
    (
        adk_call(name='adk_request_input', args={'message': 'Which city?'}),
        'Which city?',
        'Bern',
        {'result': 'Bern'},
    ),
    (
        adk_call(name='ask_manager'),
        'Waiting for the result of ask_manager {}.',
        False,
        {'error': 'No answer was given.'},
    ),
]


@each_case(('part', 'text', 'answer', 'expected'), FUNCTION_CALLS)
async def test_long_running_function_call_waits_for_result(part: Any, text: str, answer: Any, expected: Any) -> None:
    canned = CannedAgent(result_response({'task': task_asking(status=agent_message(part))}))
    async with canned_client(canned) as client:
        waiting = question_of((await client.send('hello')).outcome)
        assert (waiting['text'], waiting['pending'][0]['kind']) == (text, 'external')
        await client.send(answer_to(waiting, answer).get('parts', []), task_id='t')
    assert sent_parts(canned) == [adk_response(name=part['data']['name'], **expected)]


@each_case(
    'part',
    [
        CALL,
        adk_call(id=5),
        adk_call(name=None),  # pyright: ignore[reportArgumentType]
        {'data': {'id': 'a', 'name': 'adk_request_confirmation'}},
        {'data': 'text', 'metadata': {'adk_type': 'function_call', 'adk_is_long_running': True}},
    ],
)
async def test_only_valid_long_running_function_call_is_pending(part: Any) -> None:
    async with canned_client(CannedAgent(result_response({'task': task_asking(status=agent_message(part))}))) as client:
        assert question_of((await client.send('hello')).outcome)['pending'] == []


async def test_adk_confirmation_without_details_has_default_text() -> None:
    canned = CannedAgent(result_response({'task': task_asking(status=agent_message(adk_call()))}))
    async with canned_client(canned) as client:
        waiting = question_of((await client.send('hello')).outcome)
        assert waiting['text'] == 'May I call a tool {}?'


@each_case('is_bare', [True, False])
async def test_toolset_sends_approval_as_function_response(is_bare: bool) -> None:
    canned = CannedAgent(
        result_response({'task': task_with_confirmations(adk_confirmation(payload=1))}), result_response({'task': DONE})
    )
    agent = calling_agent(toolsets=[A2AToolset(canned.app)])
    first = await agent.run('hello')
    results = DeferredToolResults(approvals={'outer-call': True})
    if not is_bare:
        assert first.output.metadata['outer-call']['a2a_waiting']['text'] == f'{CONFIRMATION_TEXT}\n1'
        results = remote_results(first.output, {'outer-call': True})
    again = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert (again.output, sent_parts(canned)) == ('Done.', [adk_response(confirmed=True, payload=1)])


async def test_remote_agent_sends_denial_as_function_response() -> None:
    canned = CannedAgent(
        result_response({'task': task_with_confirmations(adk_confirmation())}), result_response({'task': DONE})
    )
    agent = RemoteAgent(canned.app, [str, DeferredToolRequests])
    first = await agent.run('hello')
    assert isinstance(first.output, DeferredToolRequests)
    [call] = first.output.approvals
    assert call.args_as_dict() == {'tool': 'delete_file', 'args': {'path': 'a.txt'}, 'text': CONFIRMATION_TEXT}
    results = DeferredToolResults(approvals={call.tool_call_id: ToolDenied('Never.')})
    again = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert again.output == 'Done.'
    assert sent_parts(canned) == [adk_response(confirmed=False, payload={'rejection_reason': 'Never.'})]


@each_middle_agent
@each_case('decision', [{'decision': 'approve'}, {'decision': 'deny', 'reason': 'Never.'}])
async def test_intermediate_server_asks_for_kagent_approval(between: MakeAgent, decision: Any) -> None:
    canned = CannedAgent(
        stream_response({'task': task_with_confirmations(adk_confirmation('kagent'))}), stream_response({'task': DONE})
    )
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(between(canned.app, 'middle'))) as client:
        waits: Any = (await client.send('hello')).outcome
        [call] = question_of(waits)['pending']
        assert (call['kind'], call['tool'], call['text']) == ('approval', 'delete_file', CONFIRMATION_TEXT)
        assert "'args': {'const'" not in str(call.get('answerSchema'))
        answer: Any = [{'data': {'callAnswers': [{'id': call['id'], **decision}]}}]
        ended: Any = (await client.send(answer, task_id=waits['id'], context_id=waits['context_id'])).outcome
        assert ended['status']['state'] == 'completed'
    told: Any = {'payload': {'rejection_reason': 'Never.'}} if 'reason' in decision else {}
    assert sent_parts(canned) == [adk_response('kagent', confirmed=not told, **told)]


@each_middle_agent
async def test_intermediate_server_asks_for_function_call_result(between: MakeAgent) -> None:
    canned = CannedAgent(
        stream_response({'task': task_asking(status=agent_message(FUNCTION_CALLS[0][0]))}),
        stream_response({'task': DONE}),
    )
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(between(canned.app, 'middle'))) as client:
        waits: Any = (await client.send('hello')).outcome
        parts = answer_to(question_of(waits), {'ok': 1}).get('parts', [])
        await client.send(parts, task_id=waits['id'], context_id=waits['context_id'])
    assert sent_parts(canned) == [adk_response(name='ask_manager', ok=1)]
