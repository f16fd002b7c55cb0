"""Tools that a message declares: the agent calls them, and the client answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fasta2a.storage import InMemoryStorage
from inline_snapshot import snapshot
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Approvals, AuthRequired, InputRequired
from pydantic_ai_a2a.wire.extensions.client_tools import CLIENT_TOOLS_URI

from ...agents import GatedAgent, user_prompts
from ...app_client import RpcError, message, rpc, state_of, texts
from ...serving import serving, wait_until_ended
from ..callers import caller_from_header, client_of_caller
from ..pending_calls import (
    DEFERRED_ROW,
    WITH_CLIENT_TOOLS,
    agent_with_look_tool,
    answer_message,
    approve,
    call_named_tools,
    client_tool,
    message_with_tools,
    pending_calls,
    result_answer,
)
from ..promised_behaviours import covering

pytestmark = covering(DEFERRED_ROW)


@pytest.mark.parametrize('streamed', [False, True])
async def test_agent_calls_client_tool_and_client_returns_its_result(streamed: bool) -> None:
    sent = message_with_tools('search:cats', client_tool(), client_tool('fetch'))
    async with serving(agent_with_look_tool(), messages=WITH_CLIENT_TOOLS) as client:
        if streamed:
            async with client.send_streaming(sent) as stream:
                first, *_ = await stream.rest()
            task = await client.get_task(first.result['task']['id'])
        else:
            task = await client.send(sent)
        [call] = pending_calls(task)
        done = await client.send(answer_message(task, result_answer(call, {'found': 3})))
    assert (state_of(task), task['status']['message']['parts'][0]['text']) == (
        'INPUT_REQUIRED',
        'Waiting for the result of search {"q":"cats"}.\nPlain words cannot answer this. Answer with data that fits'
        ' "messageSchema" beside this text.',
    )
    assert {name: value for name, value in call.items() if name not in ('id', 'answerSchema')} == snapshot(
        {
            'toolCallId': 'search-1-0',
            'kind': 'external',
            'tool': 'search',
            'text': 'Waiting for the result of search {"q":"cats"}.',
            'args': {'q': 'cats'},
        }
    )
    assert (state_of(done), texts(done)) == (
        'COMPLETED',
        ["search:cats + search={'found': 3} + tools: fetch,look,search"],
    )


async def test_tool_named_final_results_is_called() -> None:
    async with serving(agent_with_look_tool(), messages=WITH_CLIENT_TOOLS) as client:
        task = await client.send(message_with_tools('final_results:cats', client_tool('final_results')))
    assert [call['tool'] for call in pending_calls(task)] == ['final_results']


async def test_model_sees_name_description_and_schema_of_client_tools() -> None:
    seen: list[Any] = []

    def note(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.extend(info.function_tools)
        return ModelResponse(parts=[TextPart('done')])

    schema = {
        'type': 'object',
        'maxProperties': 1.0,  # as the official client writes the integers of metadata
        'properties': {'at': {'$ref': '#/$defs/Place'}},
        '$defs': {'Place': {'type': 'object', 'properties': {'lat': {'enum': [0.5, 'north']}}}},
    }
    plain = {'name': 'ping', 'inputSchema': {'type': 'object'}, 'annotations': {'readOnlyHint': True}}
    async with serving(Agent(FunctionModel(note)), messages=WITH_CLIENT_TOOLS) as client:
        await client.send(message_with_tools('go', client_tool(inputSchema=schema), plain))
    assert isinstance(seen[0].parameters_json_schema['maxProperties'], int)
    assert [(own.name, own.description, own.parameters_json_schema, own.kind) for own in seen] == snapshot(
        [
            (
                'search',
                'What search does.',
                {
                    'type': 'object',
                    'maxProperties': 1,
                    'properties': {'at': {'type': 'object', 'properties': {'lat': {'enum': [0.5, 'north']}}}},
                },
                'external',
            ),
            ('ping', None, {'type': 'object'}, 'external'),
        ]
    )


async def test_client_tool_calls_can_be_answered_separately() -> None:
    async with serving(agent_with_look_tool(), messages=WITH_CLIENT_TOOLS) as client:
        task = await client.send(message_with_tools('search:a look:b fetch:c', client_tool(), client_tool('fetch')))
        first, second = pending_calls(task)
        half = await client.send(answer_message(task, result_answer(second, 'page')))
        assert (state_of(half), [call['tool'] for call in pending_calls(half)]) == ('INPUT_REQUIRED', ['search'])
        done = await client.send(answer_message(task, result_answer(first, 'hit')))
    [text] = texts(done)
    assert text == 'search:a look:b fetch:c + search=hit + look=seen b + fetch=page + tools: fetch,look,search'


async def test_client_can_answer_with_retry_and_reason() -> None:
    async with serving(agent_with_look_tool(), messages=WITH_CLIENT_TOOLS) as client:
        task = await client.send(message_with_tools('search:a', client_tool()))
        [call] = pending_calls(task)
        done = await client.send(
            answer_message(task, {'id': call['id'], 'decision': 'retry', 'reason': 'No such thing.'})
        )
    assert texts(done) == ['search:a + search=No such thing. + tools: look,search']


async def test_client_tools_last_until_task_gets_new_tools() -> None:
    async with serving(agent_with_look_tool(), messages=WITH_CLIENT_TOOLS) as client:
        task = await client.send(message_with_tools('search:a', client_tool()))
        named = answer_message(
            task,
            result_answer(pending_calls(task)[0], 1),
            extensions=[CLIENT_TOOLS_URI],
            metadata={'other': {CLIENT_TOOLS_URI: 1}},
        )
        assert texts(await client.send(named)) == ['search:a + search=1 + tools: look,search']
        task = await client.send(message_with_tools('search:a', client_tool()))
        task = await client.send(
            answer_message(
                task,
                result_answer(pending_calls(task)[0], 1),
                metadata={CLIENT_TOOLS_URI: {'tools': [client_tool('fetch')]}},
            )
        )
        assert texts(task) == ['search:a + search=1 + tools: fetch,look']
        other = await client.send(message('and here', contextId=task['contextId']))
    assert texts(other) == ['search:a + and here + tools: look']


async def test_message_to_running_task_keeps_or_replaces_client_tools() -> None:
    gates = GatedAgent()
    runs: list[tuple[str, list[str]]] = []

    async def note(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answer = await gates.answer(messages, info)
        runs.append((gates.began[-1], sorted(own.name for own in info.function_tools)))
        return answer

    async with serving(Agent(FunctionModel(note)), messages=WITH_CLIENT_TOOLS) as client:
        task = await client.send(message_with_tools('one', client_tool()), returnImmediately=True)
        ids = {'taskId': task['id']}
        await gates.reached('one')
        await client.send(message('two', **ids), returnImmediately=True)
        await client.send(message_with_tools('three', client_tool('fetch'), **ids), returnImmediately=True)
        await client.send(message_with_tools('four', **ids), returnImmediately=True)
        await client.send(message('five', **ids), returnImmediately=True)
        gates.open('one', 'two', 'three', 'four', 'five')
        await wait_until_ended(client, task['id'])
    assert runs == [('one', ['search']), ('two', ['search']), ('three', ['fetch']), ('four', []), ('five', [])]


@pytest.mark.parametrize('own_storage', [False, True])
async def test_client_tools_of_queued_message_wait_for_run(
    own_storage: bool,
) -> None:
    reached, gate = asyncio.Event(), asyncio.Event()
    seen: list[tuple[str, list[str]]] = []

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append((user_prompts(messages)[-1], sorted(own.name for own in info.function_tools)))
        reached.set()
        await gate.wait()
        return call_named_tools(messages, info)

    storage = InMemoryStorage[Any]() if own_storage else None
    async with serving(Agent(FunctionModel(model)), messages=WITH_CLIENT_TOOLS, storage=storage) as client:
        task = await client.send(message_with_tools('search:a', client_tool()), returnImmediately=True)
        await reached.wait()
        async with client.send_streaming(message_with_tools('next', client_tool('fetch'), taskId=task['id'])) as stream:
            await anext(stream)
            gate.set()
            await stream.rest()
        waiting = await client.get_task(task['id'])
        await client.send(answer_message(waiting, result_answer(pending_calls(waiting)[0], 1)))
        await wait_until_ended(client, task['id'])
    assert seen == [('search:a', ['search']), ('search:a', ['search']), ('next', ['fetch'])]


async def test_client_tools_extension_is_declared_echoed_and_optional() -> None:
    async with serving(agent_with_look_tool(), messages=WITH_CLIENT_TOOLS) as client:
        header = client.dialect.extensions_header
        card = (await client.get('/.well-known/agent-card.json')).json
        plain = await client.post(rpc('SendMessage', {'message': message_with_tools('search:a', client_tool())}))
        active = await client.post(
            rpc('SendMessage', {'message': message_with_tools('search:a', client_tool())}), {header: CLIENT_TOOLS_URI}
        )
    assert CLIENT_TOOLS_URI in [extension['uri'] for extension in card['capabilities']['extensions']]
    assert header.lower() not in plain.headers
    assert active.headers[header.lower()] == CLIENT_TOOLS_URI
    assert all(b'Waiting for the result of search' in answer.body for answer in (plain, active))


async def test_server_without_client_tools_ignores_declared_tools() -> None:
    async with serving(agent_with_look_tool()) as client:
        header = client.dialect.extensions_header
        task = await client.send(message_with_tools('hello', client_tool('look'), 7))
        active = await client.post(
            rpc('SendMessage', {'message': message_with_tools('hello', client_tool())}), {header: CLIENT_TOOLS_URI}
        )
    assert texts(task) == ['hello + tools: look']
    assert header.lower() not in active.headers


async def test_approver_decides_agent_tools_and_owner_answers_client_tools() -> None:
    agent = agent_with_look_tool()
    agent.tool_plain(requires_approval=True)(pay)
    async with serving(
        agent, messages=WITH_CLIENT_TOOLS, approvals=Approvals(approvers='approve'), auth=caller_from_header
    ) as client:
        owner = client_of_caller(client.app, 'ann')
        boss = client_of_caller(client.app, 'boss', scopes='approve')
        task = await owner.send(message_with_tools('pay:1 search:a', client_tool()))
        view = await boss.get_task(task['id'])
        assert ([call['tool'] for call in pending_calls(view)], 'search' in json.dumps(view)) == (['pay'], False)
        searching = next(call for call in pending_calls(task) if call['tool'] == 'search')
        with pytest.raises(RpcError, match='may not answer this call'):
            await boss.send(answer_message(task, result_answer(searching, 'hit')))
        # The tools of an approver's message have no effect.
        declared = {CLIENT_TOOLS_URI: {'tools': [client_tool('other')]}}
        await owner.send(answer_message(task, result_answer(searching, 'hit')))
        await boss.send(answer_message(task, approve(pending_calls(view)[0]['id']), metadata=declared))
        done = await wait_until_ended(owner, task['id'])
    assert texts(done) == ['pay:1 search:a + pay=paid 1 + search=hit + tools: look,pay,search']


def pay(q: str) -> str:
    return f'paid {q}'


async def test_client_tools_are_kept_after_sign_in() -> None:
    agent, signed_in = agent_with_look_tool(), False

    @agent.tool_plain
    def mail(q: str) -> str:
        if not signed_in:
            raise AuthRequired('Please sign in.')
        return 'read'

    async with serving(agent, messages=WITH_CLIENT_TOOLS) as client:
        task = await client.send(message_with_tools('mail:a', client_tool()))
        assert state_of(task) == 'AUTH_REQUIRED'
        signed_in = True
        await client.a2a_app.resume_task(task['id'])
        assert texts(await wait_until_ended(client, task['id'])) == [
            'mail:a + Access was granted. + tools: look,mail,search'
        ]


async def test_client_tools_are_kept_after_agent_question() -> None:
    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tools = ','.join(own.name for own in info.function_tools)
        last = user_prompts(messages)[-1]
        parts = [ToolCallPart('final_result', {'question': 'Which?'})] if last == 'ask' else []
        return ModelResponse(parts=parts or [TextPart(f'{last}: {tools}')])

    agent: Agent[object, Any] = Agent(FunctionModel(ask), output_type=[str, InputRequired])
    async with serving(agent, messages=WITH_CLIENT_TOOLS) as client:
        task = await client.send(message_with_tools('ask', client_tool()))
        assert state_of(task) == 'INPUT_REQUIRED'
        assert texts(await client.send(message('that', taskId=task['id']))) == ['that: search']


async def test_custom_storage_keeps_client_tools() -> None:
    async with serving(agent_with_look_tool(), messages=WITH_CLIENT_TOOLS, storage=InMemoryStorage[Any]()) as client:
        task = await client.send(message_with_tools('search:a', client_tool()))
        done = await client.send(answer_message(task, result_answer(pending_calls(task)[0], 1)))
    assert texts(done) == ['search:a + search=1 + tools: look,search']


async def test_overridden_toolsets_do_not_drop_client_tools() -> None:
    agent = agent_with_look_tool()
    with agent.override(toolsets=[FunctionToolset([pay])]):
        async with serving(agent, messages=WITH_CLIENT_TOOLS) as client:
            assert texts(await client.send(message_with_tools('hello', client_tool()))) == [
                'hello + tools: look,pay,search'
            ]


async def test_repeated_message_with_new_tools_creates_task() -> None:
    async with serving(agent_with_look_tool(), messages=WITH_CLIENT_TOOLS) as client:
        sent = message_with_tools('search:a', client_tool())
        task = await client.send(sent)
        assert (await client.send(sent))['id'] == task['id']
        other = {**sent, 'metadata': {CLIENT_TOOLS_URI: {'tools': [client_tool(description='Other.')]}}}
        assert (await client.send(other))['id'] != task['id']


async def test_client_tools_option_applies_to_waiting_tasks_after_restart(tmp_path: Path) -> None:
    backend = f'sqlite:///{tmp_path}/agent.db'
    async with serving(agent_with_look_tool(), messages=WITH_CLIENT_TOOLS, backend=backend) as client:
        task = await client.send(message_with_tools('search:a', client_tool()))
    async with serving(agent_with_look_tool(), backend=backend) as client:
        done = await client.send(answer_message(task, result_answer(pending_calls(task)[0], 1)))
        assert texts(done) == ['search:a + search=1 + tools: look']
        agent = agent_with_look_tool()
        agent.tool_plain(requires_approval=True)(pay)
    async with serving(agent, backend=backend) as client:
        ignored = await client.send(message_with_tools('pay:1', client_tool('no name')))
    async with serving(agent, messages=WITH_CLIENT_TOOLS, backend=backend) as client:
        done = await client.send(answer_message(ignored, approve(pending_calls(ignored)[0]['id'])))
    assert (state_of(done), done['status']['message']['metadata']['failure']) == ('FAILED', 'bad-input')
    assert 'tools[0].name' in done['status']['message']['parts'][0]['text']
