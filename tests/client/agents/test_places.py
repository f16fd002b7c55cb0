"""Answers and questions in other places than ours, as other servers send them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    BinaryContent,
    BinaryImage,
    DeferredToolRequests,
    DeferredToolResults,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai.exceptions import ModelAPIError, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AClient, A2AToolset, RemoteAgent, remote_results, to_a2a
from pydantic_ai_a2a.client.answer_content import content_of
from pydantic_ai_a2a.client.question_answers import answer_to
from pydantic_ai_a2a.client.questions import RemoteQuestion, question_of_task

from ...bounds import LIMIT
from ...tables import each_case
from ..canned import TASK, Canned, result, stream
from ..test_wrong_answers import calling
from .agents import caller
from .test_three_servers import Between, in_between

PNG = {'raw': 'aGVsbG8=', 'mediaType': 'image/png', 'filename': 'a.png'}


def message(*parts: Any, role: str = 'ROLE_AGENT', **fields: Any) -> dict[str, Any]:
    return {'messageId': 'm', 'role': role, 'parts': [*parts], **fields}


def task(*artifacts: Any, status: Any = None, history: Any = (), **fields: Any) -> dict[str, Any]:
    listed = [{'artifactId': f'a{n}', 'parts': parts} for n, parts in enumerate(artifacts)]
    said = {} if status is None else {'message': status}
    return {**TASK, 'status': {**TASK['status'], **said}, 'artifacts': listed, 'history': [*history], **fields}


ASKED = message({'text': 'Which city?'})
USER = message({'text': 'Bern'}, role='ROLE_USER')
THOUGHT = {'text': 'Hmm.', 'metadata': {'adk_thought': True}}
CALL: dict[str, Any] = {'data': {'id': '1', 'name': 'look', 'args': {}}, 'metadata': {'kagent_type': 'function_call'}}
ANSWERS: dict[str, tuple[dict[str, Any], Any]] = {
    'artifact': (task([{'text': 'A'}], status=message({'text': 'B'})), 'A'),
    'status message': (task(status=message({'text': 'B'}), history=[USER, message({'text': 'C'})]), 'B'),
    'Agno': (task(history=[message({'text': 'C'})]), 'C'),
    'older history': (task(history=[USER, ASKED, USER, message({'text': 'C'})]), 'C'),
    'no answer': (task(history=[USER, ASKED, USER]), ''),
    'empty artifact': (task([{'text': ''}], status=message({'text': 'B'})), 'B'),
    'separate artifacts': (task([{'text': 'A'}, {'text': 'a'}], [{'text': 'B'}]), ['Aa', 'B']),
    'ADK thoughts': (task(status=message(THOUGHT, CALL, {'text': 'B'})), 'B'),
    'thoughts as artifact': (task([THOUGHT], [{'text': 'A'}]), 'A'),
    'Agno reasoning': (
        task(
            history=[
                message({'text': 'C'}),
                message({'text': 'Hmm.'}, metadata={'agno_content_category': 'reasoning'}),
            ]
        ),
        'C',
    ),
    'our progress': (task(status=message({'text': 'look'}, metadata={'progress': 'tool'})), ''),
}


@each_case('name', ANSWERS)
async def test_answer_is_read_from_artifacts_status_or_history(name: str) -> None:
    wire, expected = ANSWERS[name]
    async with calling(Canned(result({'task': wire}))) as client:
        assert content_of((await client.send('hello')).outcome) == expected


@each_case('history', [[message({'text': 'Here.'}, PNG)], []])
async def test_a_text_beside_files_is_kept(history: Any) -> None:
    wire = task([PNG], status=None if history else message({'text': 'Here.'}, PNG), history=history)
    async with calling(Canned(result({'task': wire}))) as client:
        [text, file] = content_of((await client.send('hello')).outcome)
        assert (text, file.data) == ('Here.', b'hello')
        assert (await RemoteAgent(client).run('hello')).output == 'Here.'


async def test_texts_of_artifacts_are_joined_by_line_breaks() -> None:
    canned = Canned(result({'task': task([{'text': 'One.'}], [THOUGHT], [{'text': 'Two.'}])}))
    assert (await RemoteAgent(canned.app).run('hello')).output == 'One.\nTwo.'


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
    wire = {'task': task(parts)}
    ended = await RemoteAgent(Canned(result(wire)).app, output_type).run('hello')
    assert ended.output == output
    assert [file.data for file in ended.response.files] == [b'hello'] * len(parts)
    async with RemoteAgent(Canned(result(wire)).app, output_type).run_stream('hello') as streamed:
        assert await streamed.get_output() == output


async def test_intermediate_server_passes_files_on() -> None:
    canned = Canned(result({'task': task([PDF])}))
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(RemoteAgent(canned.app))) as client:
        answer: Any = content_of((await client.send('hello')).outcome)
    assert [item.data for item in answer if isinstance(item, BinaryContent)] == [b'hello']


@each_case('artifacts', [[], [[THOUGHT]]])
async def test_empty_answer_is_model_error_without_second_message(artifacts: Any) -> None:
    canned = Canned(result({'task': task(*artifacts)}))
    with pytest.raises(ModelAPIError, match='The remote agent has answered without text or other output'):
        await RemoteAgent(canned.app).run('hello')
    assert len(canned.methods) == 1
    assert (await RemoteAgent(canned.app, str | None).run('hello')).output is None


async def test_tool_result_is_read_from_task_history() -> None:
    async def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse([TextPart(str(messages[-1].parts[0].content))])  # pyright: ignore
        return ModelResponse([ToolCallPart(info.function_tools[0].name, {'message': 'hi'})])

    canned = Canned(result({'task': task(history=[message({'text': 'C'})])}))
    assert (await Agent(FunctionModel(ask), toolsets=[A2AToolset(canned.app)]).run('x')).output == 'C'


# --- questions in other places than the text of the status message

DONE = task([{'text': 'Done.'}])


def asked(*artifacts: Any, **fields: Any) -> dict[str, Any]:
    """A task that waits for its client."""
    wire = task(*artifacts, **fields)
    return {**wire, 'status': {**wire['status'], 'state': 'TASK_STATE_INPUT_REQUIRED'}}


APPROVE = message({'text': 'Approve it?'})
DRAFT = [{'text': 'Dear Ann,'}, {'data': {'total': 3}}]
QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    'status message': (asked(status=ASKED, history=[USER, message({'text': 'C'})]), 'Which city?'),
    'data': (asked(status=message({'text': 'Which one?'}, {'data': ['a', 'b']})), 'Which one?\n["a","b"]'),
    'draft in an artifact': (asked(DRAFT, status=APPROVE), 'Dear Ann,\n{"total":3}\nApprove it?'),
    'file in an artifact': (asked([PNG], status=APPROVE), '[a.png: image/png]\nApprove it?'),
    'file without a name': (asked([{'raw': 'aGVsbG8='}]), '[a file: application/octet-stream]'),
    'URL': (asked(status=message({'url': 'https://x.example/a'})), 'https://x.example/a'),
    'artifact only': (asked([{'text': 'Dear Ann, ... Approve it?'}]), 'Dear Ann, ... Approve it?'),
    'history': (asked(history=[USER, ASKED]), 'Which city?'),
    'history below a draft': (asked(DRAFT, history=[USER, APPROVE]), 'Dear Ann,\n{"total":3}\nApprove it?'),
    'history after thoughts': (asked(status=message(THOUGHT), history=[ASKED, message(CALL)]), 'Which city?'),
    'older history': (asked(history=[ASKED, USER]), ''),
    'streamed question': (asked([{'text': 'Which'}], status=ASKED), 'Which city?'),
}


@each_case('name', QUESTIONS)
async def test_question_is_read_from_status_artifacts_or_history(name: str) -> None:
    wire, expected = QUESTIONS[name]
    async with calling(Canned(result({'task': wire}))) as client:
        assert waiting_of((await client.send('hello')).outcome)['text'] == expected
        answer = (await RemoteAgent(client).run('hello')).output
        assert answer == (expected or 'The remote agent waits for an answer.')
    ended = await caller(toolsets=[A2AToolset(Canned(result({'task': wire})).app)]).run('hello')
    assert ended.output.metadata['outer-call']['a2a_waiting']['text'] == expected


@in_between
@each_case('name', ['draft in an artifact', 'file in an artifact', 'data', 'history'])
async def test_intermediate_server_passes_question_on(between: Between, name: str) -> None:
    wire, expected = QUESTIONS[name]
    canned = Canned(stream({'task': wire}), stream({'task': DONE}))
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(between(canned.app, 'middle'))) as client:
        waits: Any = (await client.send('hello')).outcome
        assert waiting_of(waits)['text'].startswith(expected)
        ended: Any = (await client.send('Bern', task_id=waits['id'], context_id=waits['context_id'])).outcome
        assert ended['status']['state'] == 'completed'
    assert sent(canned) == [{'text': 'Bern'}]


# --- function calls of ADK and kagent -------------------------------------------------------------------------------


def function_call(prefix: str = 'adk', name: str = 'adk_request_confirmation', **data: Any) -> dict[str, Any]:
    metadata = {f'{prefix}_type': 'function_call', f'{prefix}_is_long_running': True}
    return {'data': {'id': 'confirm', 'name': name, **data}, 'metadata': metadata}


def confirmation(prefix: str = 'adk', call_id: str = 'confirm', **fields: Any) -> dict[str, Any]:
    """A part in which ADK, or kagent, asks for the approval of a tool call."""
    called = {'id': 'c', 'name': 'delete_file', 'args': {'path': 'a.txt'}}
    told = {'hint': 'It is the only copy.', 'confirmed': False, **fields}
    return function_call(prefix, id=call_id, args={'originalFunctionCall': called, 'toolConfirmation': told})


def response(prefix: str = 'adk', call_id: str = 'confirm', name: str = 'adk_request_confirmation', **data: Any) -> Any:
    data = {'id': call_id, 'name': name, 'response': data}
    return {'data': data, 'metadata': {f'{prefix}_type': 'function_response'}}


TEXT = 'Dear Ann,\nMay I call delete_file {"path":"a.txt"}?\nIt is the only copy.'


def confirming(*parts: Any) -> dict[str, Any]:
    """A task that waits as ADK's do: the draft is an earlier message, and the confirmation is followed by the results
    of the tools so far."""
    returned: Any = {'data': {'id': 'c', 'response': {}}, 'metadata': {'adk_type': 'function_response'}}
    return asked(status=message(*parts), history=[USER, message({'text': 'Dear Ann,'}), message(returned)])


def waiting_of(answer: Any) -> RemoteQuestion:
    assert answer['status']['state'] == 'input-required'
    return question_of_task('', answer)


def sent(canned: Canned) -> list[Any]:
    """The parts of the last message."""
    return canned.requests[-1][3]['params']['message']['parts']


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
    canned = Canned(result({'task': confirming(confirmation(prefix, **fields))}))
    async with calling(canned) as client:
        waiting = waiting_of((await client.send('hello')).outcome)
        [call] = waiting['pending']
        assert (call['kind'], call['tool'], call.get('args')) == ('approval', 'delete_file', {'path': 'a.txt'})
        assert waiting['text'] == call['text'] == TEXT + ('\n{"task_id":"t"}' if 'payload' in fields else '')
        await client.send(answer_to(waiting, answer).get('parts', []), task_id='t')
    assert sent(canned) == [response(prefix, **expected)]


async def test_each_adk_confirmation_gets_its_own_answer() -> None:
    canned = Canned(result({'task': confirming(confirmation(), confirmation(call_id='other'))}))
    async with calling(canned) as client:
        waiting = waiting_of((await client.send('hello')).outcome)
        with pytest.raises(UserError, match="The remote call 'other' takes no other arguments"):
            answer_to(waiting, {'confirm': True, 'other': ToolApproved(override_args={'path': 'b.txt'})})
        await client.send(answer_to(waiting, {'confirm': True, 'other': False}).get('parts', []), task_id='t')
    assert sent(canned) == [response(confirmed=True), response(call_id='other', confirmed=False)]


OTHERS: list[tuple[dict[str, Any], str, Any, Any]] = [
    (
        function_call(name='ask_manager', args={'amount': 5}),
        'Waiting for the result of ask_manager {"amount":5}.',
        {'ok': 1},
        {'ok': 1},
    ),
    (
        function_call(name='adk_request_input', args={'message': 'Which city?'}),
        'Which city?',
        'Bern',
        {'result': 'Bern'},
    ),
    (
        function_call(name='ask_manager'),
        'Waiting for the result of ask_manager {}.',
        False,
        {'error': 'No answer was given.'},
    ),
]


@each_case(('part', 'text', 'answer', 'expected'), OTHERS)
async def test_long_running_function_call_waits_for_result(part: Any, text: str, answer: Any, expected: Any) -> None:
    canned = Canned(result({'task': asked(status=message(part))}))
    async with calling(canned) as client:
        waiting = waiting_of((await client.send('hello')).outcome)
        assert (waiting['text'], waiting['pending'][0]['kind']) == (text, 'external')
        await client.send(answer_to(waiting, answer).get('parts', []), task_id='t')
    assert sent(canned) == [response(name=part['data']['name'], **expected)]


@each_case(
    'part',
    [
        CALL,
        function_call(id=5),
        function_call(name=None),  # pyright: ignore[reportArgumentType]
        {'data': {'id': 'a', 'name': 'adk_request_confirmation'}},
        {'data': 'text', 'metadata': {'adk_type': 'function_call', 'adk_is_long_running': True}},
    ],
)
async def test_only_valid_long_running_function_call_is_pending(part: Any) -> None:
    async with calling(Canned(result({'task': asked(status=message(part))}))) as client:
        assert waiting_of((await client.send('hello')).outcome)['pending'] == []


async def test_adk_confirmation_without_details_has_default_text() -> None:
    canned = Canned(result({'task': asked(status=message(function_call()))}))
    async with calling(canned) as client:
        waiting = waiting_of((await client.send('hello')).outcome)
        assert waiting['text'] == 'May I call a tool {}?'


@each_case('is_bare', [True, False])
async def test_toolset_sends_approval_as_function_response(is_bare: bool) -> None:
    canned = Canned(result({'task': confirming(confirmation(payload=1))}), result({'task': DONE}))
    agent = caller(toolsets=[A2AToolset(canned.app)])
    first = await agent.run('hello')
    results = DeferredToolResults(approvals={'outer-call': True})
    if not is_bare:
        assert first.output.metadata['outer-call']['a2a_waiting']['text'] == f'{TEXT}\n1'
        results = remote_results(first.output, {'outer-call': True})
    again = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert (again.output, sent(canned)) == ('Done.', [response(confirmed=True, payload=1)])


async def test_remote_agent_sends_denial_as_function_response() -> None:
    canned = Canned(result({'task': confirming(confirmation())}), result({'task': DONE}))
    agent = RemoteAgent(canned.app, [str, DeferredToolRequests])
    first = await agent.run('hello')
    assert isinstance(first.output, DeferredToolRequests)
    [call] = first.output.approvals
    assert call.args_as_dict() == {'tool': 'delete_file', 'args': {'path': 'a.txt'}, 'text': TEXT}
    results = DeferredToolResults(approvals={call.tool_call_id: ToolDenied('Never.')})
    again = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert again.output == 'Done.'
    assert sent(canned) == [response(confirmed=False, payload={'rejection_reason': 'Never.'})]


@in_between
@each_case('decision', [{'decision': 'approve'}, {'decision': 'deny', 'reason': 'Never.'}])
async def test_intermediate_server_asks_for_kagent_approval(between: Between, decision: Any) -> None:
    canned = Canned(stream({'task': confirming(confirmation('kagent'))}), stream({'task': DONE}))
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(between(canned.app, 'middle'))) as client:
        waits: Any = (await client.send('hello')).outcome
        [call] = waiting_of(waits)['pending']
        assert (call['kind'], call['tool'], call['text']) == ('approval', 'delete_file', TEXT)
        assert "'args': {'const'" not in str(call.get('answerSchema'))
        answer: Any = [{'data': {'callAnswers': [{'id': call['id'], **decision}]}}]
        ended: Any = (await client.send(answer, task_id=waits['id'], context_id=waits['context_id'])).outcome
        assert ended['status']['state'] == 'completed'
    told: Any = {'payload': {'rejection_reason': 'Never.'}} if 'reason' in decision else {}
    assert sent(canned) == [response('kagent', confirmed=not told, **told)]


@in_between
async def test_intermediate_server_asks_for_function_call_result(between: Between) -> None:
    canned = Canned(stream({'task': asked(status=message(OTHERS[0][0]))}), stream({'task': DONE}))
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(between(canned.app, 'middle'))) as client:
        waits: Any = (await client.send('hello')).outcome
        parts = answer_to(waiting_of(waits), {'ok': 1}).get('parts', [])
        await client.send(parts, task_id=waits['id'], context_id=waits['context_id'])
    assert sent(canned) == [response(name='ask_manager', ok=1)]
