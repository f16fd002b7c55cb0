"""Answers in other places than the artifacts, as other servers send them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, BinaryImage
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AClient, A2AToolset, RemoteAgent, to_a2a
from pydantic_ai_a2a.client.content import content_of

from ..a2a_client.canned import TASK, Canned, result
from ..a2a_client.test_answers import calling
from ..bounds import LIMIT
from ..tables import each_case

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
async def test_the_answer_of_a_task(name: str) -> None:
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


async def test_separate_artifacts_are_on_lines_of_their_own() -> None:
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
async def test_an_answer_of_files_only_has_their_names_as_text(parts: Any, output_type: Any, output: Any) -> None:
    wire = {'task': task(parts)}
    ended = await RemoteAgent(Canned(result(wire)).app, output_type).run('hello')
    assert ended.output == output
    assert [file.data for file in ended.response.files] == [b'hello'] * len(parts)
    async with RemoteAgent(Canned(result(wire)).app, output_type).run_stream('hello') as streamed:
        assert await streamed.get_output() == output


async def test_a_server_in_between_passes_an_answer_of_files_on() -> None:
    canned = Canned(result({'task': task([PDF])}))
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(RemoteAgent(canned.app))) as client:
        answer: Any = content_of((await client.send('hello')).outcome)
    assert [item.data for item in answer if isinstance(item, BinaryContent)] == [b'hello']


@each_case('artifacts', [[], [[THOUGHT]]])
async def test_the_demand_of_pydantic_ai_for_text_is_not_sent_as_words_of_the_user(artifacts: Any) -> None:
    canned = Canned(result({'task': task(*artifacts)}))
    with pytest.raises(ModelAPIError, match='The remote agent has answered without text or other output'):
        await RemoteAgent(canned.app).run('hello')
    assert len(canned.methods) == 1
    assert (await RemoteAgent(canned.app, str | None).run('hello')).output is None


async def test_a_tool_gets_the_answer_from_the_history() -> None:
    async def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse([TextPart(str(messages[-1].parts[0].content))])  # pyright: ignore
        return ModelResponse([ToolCallPart(info.function_tools[0].name, {'message': 'hi'})])

    canned = Canned(result({'task': task(history=[message({'text': 'C'})])}))
    assert (await Agent(FunctionModel(ask), toolsets=[A2AToolset(canned.app)]).run('x')).output == 'C'
