"""A server of the official Python SDK, 1.x, that offers only gRPC. Its card is served over HTTP.

Prints the URL of its card. The argument is the text that it answers, in pieces.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys

import grpc
import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Task, TaskState, TaskStatus
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from starlette.applications import Starlette


class Writer(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task_id, context_id = context.task_id or '', context.context_id or ''
        status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        await event_queue.enqueue_event(Task(id=task_id, context_id=context_id, status=status))
        updater = TaskUpdater(event_queue, task_id, context_id)
        await updater.start_work()
        for n, word in enumerate(re.findall(r'\S+ ?', sys.argv[1])):
            await updater.add_artifact([Part(text=word)], artifact_id='answer', append=n > 0)
            await asyncio.sleep(0.05)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


async def main() -> None:
    over_grpc = grpc.aio.server()
    port = over_grpc.add_insecure_port('127.0.0.1:0')
    card = AgentCard(
        name='writer',
        description='Writes a sentence.',
        version='1.0.0',
        supported_interfaces=[AgentInterface(protocol_binding='GRPC', url=f'127.0.0.1:{port}', protocol_version='1.0')],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=['text/plain'],
        default_output_modes=['text/plain'],
        skills=[AgentSkill(id='write', name='write', description='Writes.', tags=['text'])],
    )
    handler = DefaultRequestHandler(agent_executor=Writer(), task_store=InMemoryTaskStore(), agent_card=card)
    add_A2AServiceServicer_to_server(GrpcHandler(handler), over_grpc)
    await over_grpc.start()
    bound = socket.create_server(('127.0.0.1', 0))
    print(f'http://127.0.0.1:{bound.getsockname()[1]}', flush=True)
    app = Starlette(routes=create_agent_card_routes(card))
    await uvicorn.Server(uvicorn.Config(app, log_level='warning')).serve([bound])


asyncio.run(main())
