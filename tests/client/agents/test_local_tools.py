"""Remote agents that call tools of their client: by hand with a client, and as the model of an agent with tools."""

from __future__ import annotations

from typing import Any

import pytest
from fasta2a.schema import Message, Part
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, FunctionToolset, ModelRetry, Tool
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import UserError
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from pydantic_ai_a2a import A2AClient, A2AModel, RemoteAgent, to_a2a
from pydantic_ai_a2a.errors import InvalidParamsError, UnsupportedOperationError
from pydantic_ai_a2a.wire.extensions.client_tools import CLIENT_TOOLS_URI
from pydantic_ai_a2a.wire.extensions.own_extensions import LIVE_TEXT_URI

from ...behaviour.pending_calls import WITH_CLIENT_TOOLS, agent_with_look_tool
from ..canned_agent import CARD, CannedAgent, stream_response
from ..servers import text_of
from .canned_tasks import pending_call, task_waiting_with


class LocalTools:
    """Tools of the local side, and the calls that they got."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.tools = FunctionToolset[Any]([self.search, self.fetch])

    async def search(self, q: str) -> dict[str, Any]:
        """Search the disk of the caller."""
        self.calls.append(f'search {q}')
        return {'found': q}

    def fetch(self, q: str) -> str:
        """Fetch a page."""
        self.calls.append(f'fetch {q}')
        if q == 'bad':
            raise ModelRetry('No such page.')
        return f'page {q}'


def client_with_tools(agent: AbstractAgent[Any, Any] | None = None) -> A2AClient:
    return A2AClient(to_a2a(agent or agent_with_look_tool(), messages=WITH_CLIENT_TOOLS))


def call_of(task: Any) -> Any:
    """The only call that a task waits with."""
    [call] = task['status']['message']['parts'][1]['data']['pending']
    return call


def result(call: Any, value: Any) -> list[Part]:
    return [Part(data={'callAnswers': [{'id': call['id'], 'decision': 'result', 'result': value}]})]


async def test_client_sends_tools_and_answers_their_calls() -> None:
    desk = LocalTools()
    tools = [Tool(desk.search).tool_def]
    async with client_with_tools() as client:
        task = (await client.send('search:a', tools=tools, metadata={'trip': 7})).outcome
        assert 'status' in task
        call = call_of(task)
        answer = result(call, await desk.search(**call['args']))
        updates = [update async for update in client.stream(answer, task_id=task['id'], tools=[])]
    assert text_of(updates[-1].task) == "search:a + search={'found': 'a'} + tools: look"


async def test_message_with_tools_keeps_metadata_and_activates_extension() -> None:
    app, activated = to_a2a(agent_with_look_tool(), messages=WITH_CLIENT_TOOLS), ''

    async def recorded(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal activated
        activated = Headers(scope=scope).get('A2A-Extensions', '') if scope['type'] == 'http' else activated
        await app(scope, receive, send)

    message: Message = {'role': 'user', 'message_id': 'm', 'parts': [Part(text='hello')], 'metadata': {'mine': 1}}
    async with A2AClient(recorded) as client:
        task: Any = (
            await client.send(
                message, tools=[Tool(LocalTools().search).tool_def], extensions=['https://example.com/other']
            )
        ).outcome
    [first, *_] = task['history']
    assert (first['metadata']['mine'], [*first['metadata'][CLIENT_TOOLS_URI]]) == (1, ['tools'])
    assert activated.replace(' ', '').split(',') == ['https://example.com/other', CLIENT_TOOLS_URI, LIVE_TEXT_URI]
    assert message['metadata'] == {'mine': 1}


async def test_client_refuses_tools_for_agent_without_extension() -> None:
    async with A2AClient(agent_with_look_tool()) as client:
        with pytest.raises(UnsupportedOperationError, match=r'card does not declare the extension .*client-tools-v1'):
            await client.send('search:a', tools=[Tool(LocalTools().search).tool_def])


async def test_client_tool_with_name_of_agent_tool_is_refused() -> None:
    async with client_with_tools() as client:
        with pytest.raises(InvalidParamsError, match='is the name of a tool of the agent'):
            await client.send('hello', tools=[Tool(LocalTools().search, name='look').tool_def])


@pytest.mark.parametrize('streamed', [False, True])
async def test_remote_agent_calls_local_tools_of_run(streamed: bool) -> None:
    desk = LocalTools()
    async with client_with_tools() as client:
        agent = RemoteAgent(client)
        if streamed:
            async with agent.run_stream('search:a look:b fetch:c', toolsets=[desk.tools]) as run:
                output = await run.get_output()
        else:
            output = (await agent.run('search:a look:b fetch:c', toolsets=[desk.tools])).output
    assert desk.calls == ['search a', 'fetch c']
    assert output == (
        "search:a look:b fetch:c + search={'found': 'a'} + look=seen b + fetch=page c + tools: fetch,look,search"
    )


async def test_conversation_continues_with_or_without_local_tools() -> None:
    desk = LocalTools()
    async with client_with_tools() as client:
        agent = RemoteAgent(client)
        first = await agent.run('search:a', toolsets=[desk.tools])
        second = await agent.run('and', message_history=first.all_messages())
        third = await agent.run('fetch:b', message_history=second.all_messages(), toolsets=[desk.tools])
    assert second.output == 'search:a + and + tools: look'
    assert third.output == 'search:a + and + fetch:b + fetch=page b + tools: fetch,look,search'


async def test_remote_approval_calls_no_local_tool() -> None:
    canned, desk = (
        CannedAgent(
            stream_response(
                {'task': task_waiting_with(pending=[pending_call('approval', tool='fetch', args={'q': 'a'})])}
            )
        ),
        LocalTools(),
    )
    canned.card = {**CARD, 'capabilities': {'streaming': True, 'extensions': [{'uri': CLIENT_TOOLS_URI}]}}
    async with A2AClient(canned.app) as client:
        asked = await RemoteAgent(client, [str, DeferredToolRequests]).run('Go.', toolsets=[desk.tools])
    assert isinstance(asked.output, DeferredToolRequests)
    assert ([part.tool_name for part in asked.output.approvals], desk.calls) == (['remote_approval'], [])


async def test_retry_of_local_tool_reaches_remote_agent() -> None:
    desk = LocalTools()
    async with client_with_tools() as client:
        done = await Agent(A2AModel(client), toolsets=[desk.tools]).run('fetch:bad')
    assert done.output.startswith('fetch:bad + fetch=No such page.')


async def test_local_tool_runs_beside_call_waiting_for_approval() -> None:
    server, desk = agent_with_look_tool(), LocalTools()
    server.tool_plain(requires_approval=True)(pay)
    async with client_with_tools(server) as client:
        agent = RemoteAgent(client, [str, DeferredToolRequests])
        first = await agent.run('pay:1 search:a', toolsets=[desk.tools])
        assert isinstance(first.output, DeferredToolRequests)
        [call] = first.output.approvals
        second = await agent.run(
            message_history=first.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={call.tool_call_id: True}),
            toolsets=[desk.tools],
        )
        with pytest.raises(UserError, match=r'waits for an answer: pay\. An agent with A2AModel'):
            await Agent(A2AModel(client), toolsets=[desk.tools]).run('pay:1 search:a')
    assert (call.args_as_dict()['tool'], desk.calls) == ('pay', ['search a'])
    assert second.output == "pay:1 search:a + pay=paid 1 + search={'found': 'a'} + tools: fetch,look,pay,search"


def pay(q: str) -> str:
    return f'paid {q}'


async def test_local_tool_requiring_approval_is_deferred() -> None:
    desk = LocalTools()
    async with client_with_tools() as client:
        agent = RemoteAgent(client, [str, DeferredToolRequests])
        tools = [desk.tools.approval_required()]
        first = await agent.run('search:a', toolsets=tools)
        assert isinstance(first.output, DeferredToolRequests)
        [call] = first.output.approvals
        assert (call.tool_name, desk.calls) == ('search', [])
        second = await agent.run(
            message_history=first.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={call.tool_call_id: False}),
            toolsets=tools,
        )
    assert str(second.output).startswith('search:a + search=The tool call was denied.')


async def test_intermediate_server_passes_client_tools_on() -> None:
    async with client_with_tools() as inner, client_with_tools(RemoteAgent(inner)) as client:
        task = (await client.send('search:a', tools=[Tool(LocalTools().search).tool_def])).outcome
        assert 'status' in task
        call = call_of(task)
        assert (call['kind'], call['tool'], call['args']) == ('external', 'search', {'q': 'a'})
        done = (await client.send(result(call, 'hit'), task_id=task['id'])).outcome
    assert text_of(done) == 'search:a + search=hit + tools: look,search'


async def test_model_refuses_local_tools_for_agent_without_extension() -> None:
    async with A2AClient(agent_with_look_tool()) as client:
        with pytest.raises(UserError, match='cannot call fetch, search'):
            await Agent(A2AModel(client), toolsets=[LocalTools().tools]).run('hello')
