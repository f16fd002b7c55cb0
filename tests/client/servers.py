"""Agents in this process that the client calls: ours, the official SDK's, and FastA2A's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import grpc
import pytest
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Task, TaskState, TaskStatus
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server  # pyright: ignore[reportUnknownVariableType]
from fasta2a.pydantic_ai import agent_to_a2a
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.models.function import AgentInfo, FunctionModel
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pydantic_ai_a2a import A2AClient, Approvals, serve_grpc, to_a2a
from pydantic_ai_a2a.client import followed_task
from pydantic_ai_a2a.types import StreamResponse

from ..behaviour.callers import caller_from_header
from ..bounds import LIMIT
from ..serving import running_app

WORDS = ['The ', 'answer ', 'is ', '42.']
ANSWER = ''.join(WORDS)


class WaitingAgent:
    """An agent that answers in four pieces, and before it waits if it is told `wait`."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.agent = Agent(FunctionModel(self._answer, stream_function=self._stream), name='talker')

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart(''.join([word async for word in self._stream(messages, info)]))])

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield WORDS[0]
        if 'wait' in str(messages[-1]):
            self.reached.set()
            await self.opened.wait()
        for word in WORDS[1:]:
            yield word


class Executor(AgentExecutor):
    """The talker behind the official SDK."""

    def __init__(self, talker: WaitingAgent) -> None:
        self._talker = talker

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        task = Task(
            id=context.task_id,
            context_id=context.context_id,
            status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
            history=[context.message] if context.message is not None else [],
        )
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        append = False
        async with self._talker.agent.run_stream(context.get_user_input()) as run:
            async for delta in run.stream_text(delta=True, debounce_by=None):
                await updater.add_artifact([Part(text=delta)], artifact_id='answer', append=append)
                append = True
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def sdk_server(talker: WaitingAgent, binding: str, version: str) -> ASGIApp:
    """A server of the official SDK for A2A 1.0, or for its form of 0.3; with gRPC at a port of its own."""
    card = AgentCard(
        name='talker',
        description='Talks.',
        version='1.0.0',
        supported_interfaces=[
            AgentInterface(protocol_binding=binding, url='http://localhost/rpc', protocol_version=version)
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        default_input_modes=['text/plain'],
        default_output_modes=['text/plain'],
        skills=[AgentSkill(id='talk', name='talk', description='Talks.', tags=['talk'])],
    )
    handler = DefaultRequestHandler(
        agent_executor=Executor(talker),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        extended_agent_card=card,
        push_config_store=InMemoryPushNotificationConfigStore(),
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        server = grpc.aio.server()
        add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
        if binding == 'GRPC':
            card.supported_interfaces[0].url = f'127.0.0.1:{server.add_insecure_port("127.0.0.1:0")}'
            await server.start()
        yield
        await server.stop(None)
        await handler.aclose()

    routes = {
        'JSONRPC': create_jsonrpc_routes(handler, '/rpc', enable_v0_3_compat=True),
        'HTTP+JSON': create_rest_routes(handler, path_prefix='/rpc'),
    }
    return Starlette(lifespan=lifespan, routes=[*create_agent_card_routes(card), *routes.get(binding, [])])


def without_newer_methods(app: Starlette) -> Starlette:
    """A server as FastA2A was before it knew the methods of A2A 1.0 that its card declares."""

    class Older:
        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope['type'] != 'http' or scope['method'] != 'POST':
                await self._app(scope, receive, send)
                return
            message = await receive()
            if '/' in json.loads(message['body'])['method']:
                await self._app(scope, _once(message), send)
                return
            error = {'jsonrpc': '2.0', 'id': 1, 'error': {'code': -32601, 'message': 'Method not found'}}
            headers = [(b'content-type', b'application/json')]
            await send({'type': 'http.response.start', 'status': 200, 'headers': headers})
            await send({'type': 'http.response.body', 'body': json.dumps(error).encode()})

    app.add_middleware(Older)
    return app


def _once(message: Message) -> Receive:
    messages = [message]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError

    return receive


class ServerKind(NamedTuple):
    """An agent, and what its kind of server can do."""

    app: Callable[[WaitingAgent], ASGIApp]
    options: dict[str, Any]
    """Options of the client."""
    lists: bool = True
    cancels: bool = True


def own_server(talker: WaitingAgent) -> Starlette:
    return to_a2a(talker.agent)


def own_grpc_server(talker: WaitingAgent) -> Starlette:
    return to_a2a(talker.agent, **options_for_binding('GRPC'))


def fasta2a_server(talker: WaitingAgent) -> Starlette:
    return agent_to_a2a(talker.agent)


def older_own_server(talker: WaitingAgent) -> Starlette:
    return without_newer_methods(own_server(talker))


def older_fasta2a_server(talker: WaitingAgent) -> Starlette:
    return without_newer_methods(fasta2a_server(talker))


SERVERS: dict[str, ServerKind] = {
    'ours-jsonrpc': ServerKind(own_server, {'binding': 'JSONRPC'}),
    'ours-http+json': ServerKind(own_server, {'binding': 'HTTP+JSON'}),
    'ours-grpc': ServerKind(own_grpc_server, {'binding': 'GRPC'}),
    'ours-0.3': ServerKind(own_server, {'version': '0.3'}, lists=False),
    'ours-fasta2a': ServerKind(older_own_server, {}),
    'official-jsonrpc': ServerKind(partial(sdk_server, binding='JSONRPC', version='1.0'), {}),
    'official-http+json': ServerKind(partial(sdk_server, binding='HTTP+JSON', version='1.0'), {}),
    'official-grpc': ServerKind(partial(sdk_server, binding='GRPC', version='1.0'), {}),
    'official-0.3': ServerKind(partial(sdk_server, binding='JSONRPC', version='0.3'), {}, lists=False),
    'fasta2a': ServerKind(fasta2a_server, {}, lists=False, cancels=False),
    'fasta2a-older': ServerKind(older_fasta2a_server, {}, lists=False, cancels=False),
}


@asynccontextmanager
async def client_of(peer: ServerKind) -> AsyncGenerator[tuple[A2AClient, WaitingAgent]]:
    talker = WaitingAgent()
    async with asyncio.timeout(LIMIT), A2AClient(peer.app(talker), timeout=LIMIT, **peer.options) as client:
        yield client, talker


def options_for_binding(binding: str | None) -> dict[str, Any]:
    """Options of `to_a2a` for clients of a binding: gRPC has a server of its own."""
    return {'lifespan': partial(serve_grpc, port=0)} if binding == 'GRPC' else {}


@asynccontextmanager
async def clients_of_approvers(
    agent: AbstractAgent[Any, Any], *, binding: Any = None, **approvals: Any
) -> AsyncGenerator[tuple[A2AClient, A2AClient, A2AClient]]:
    """The clients of ann, who sends tasks, and of bob and eve, who have the scope `approve`."""
    options = {'auth': caller_from_header, 'approvals': Approvals(**approvals), **options_for_binding(binding)}
    async with running_app(agent, **options) as app:
        ann, bob, eve = (
            A2AClient(app, headers={'X-Caller': name, 'X-Scopes': scopes}, binding=binding)
            for name, scopes in (('ann', ''), ('bob', 'approve'), ('eve', 'approve'))
        )
        async with ann, bob, eve:
            yield ann, bob, eve


def wait_until_named(monkeypatch: pytest.MonkeyPatch) -> float:
    """Return a `max_wait` that is over once the client has read the id of its task: then the loop's time jumps."""
    loop, task_id_of, named = asyncio.get_running_loop(), followed_task.task_id_of, set[str]()
    time = loop.time

    def note(event: StreamResponse) -> str | None:
        if (task_id := task_id_of(event)) is not None:
            named.add(task_id)
        return task_id

    monkeypatch.setattr(followed_task, 'task_id_of', note)
    monkeypatch.setattr(loop, 'time', lambda: time() + LIMIT / 2 * bool(named))
    return LIMIT / 2


def text_of(task: Any) -> str:
    [artifact] = task['artifacts']
    return ''.join(part['text'] for part in artifact['parts'])
