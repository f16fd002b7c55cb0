"""Servers whose agent makes four steps of a second each, and writes each step into a file.

steps.py NAME PORT FOLDER
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

NAME, PORT, FOLDER = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])


def note(line: str) -> None:
    with (FOLDER / 'steps').open('a') as file:
        file.write(f'{line}\n')


async def steps(text: str) -> str:
    try:
        for step in range(4):
            note(f'{text} {step + 1}')
            await asyncio.sleep(1)
    except asyncio.CancelledError:
        note(f'{text} stopped')
        raise
    note(f'{text} ended')
    return 'done'


def pydantic_agent() -> Any:
    from pydantic_ai import Agent, DeferredToolRequests
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    async def answer(messages: Any, info: Any) -> ModelResponse:
        results = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        text = messages[0].parts[-1].content
        call = ToolCallPart('step', {'text': text, 'number': len(results) + 1}, f'step-{len(results)}')
        if text == 'approve':
            return ModelResponse([ToolCallPart('book', {}, 'book-1')])
        if len(results) == 4:
            note(f'{text} ended')
        return ModelResponse([TextPart('done') if len(results) == 4 else call])

    agent = Agent(FunctionModel(answer), output_type=[str, DeferredToolRequests], name='steps')

    @agent.tool_plain
    async def step(text: str, number: int) -> str:
        note(f'{text} {number}')
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            note(f'{text} stopped')
            raise
        return 'done'

    @agent.tool_plain(requires_approval=True)
    async def book() -> str:
        return 'booked'

    return agent


def pydantic_ai_a2a() -> Any:
    from pydantic_ai_a2a import Workers, to_a2a

    return to_a2a(pydantic_agent(), backend=f'sqlite:///{FOLDER}/tasks.db', workers=Workers(lease=5))


def fasta2a() -> Any:
    from fasta2a.pydantic_ai import agent_to_a2a

    return agent_to_a2a(pydantic_agent())


def a2a_sdk() -> Any:
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
    from a2a.server.tasks import DatabaseTaskStore, TaskUpdater
    from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Task, TaskState, TaskStatus
    from sqlalchemy.ext.asyncio import create_async_engine
    from starlette.applications import Starlette

    class Executor(AgentExecutor):
        async def execute(self, context: Any, event_queue: Any) -> None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(Task(id=context.task_id, context_id=context.context_id, status=status))
            updater = TaskUpdater(event_queue, context.task_id, context.context_id)
            await updater.start_work()
            await steps(context.get_user_input())
            await updater.complete()

        async def cancel(self, context: Any, event_queue: Any) -> None:
            await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    card = AgentCard(
        name='steps',
        description='steps',
        version='1',
        supported_interfaces=[
            AgentInterface(url=f'http://127.0.0.1:{PORT}/', protocol_binding='JSONRPC', protocol_version='1.0')
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=['text/plain'],
        default_output_modes=['text/plain'],
        skills=[AgentSkill(id='steps', name='steps', description='steps', tags=['steps'])],
    )
    store = DatabaseTaskStore(create_async_engine(f'sqlite+aiosqlite:///{FOLDER}/tasks.db'))
    handler = DefaultRequestHandler(agent_executor=Executor(), task_store=store, agent_card=card)
    return Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, '/')])


def a2akit() -> Any:
    from a2akit import A2AServer, AgentCardConfig, Worker

    class Steps(Worker):
        async def handle(self, ctx: Any) -> None:
            await ctx.complete(await steps(ctx.user_text))

    card = AgentCardConfig(name='steps', description='steps', version='1', protocol='jsonrpc')
    return A2AServer(worker=Steps(), agent_card=card, storage=f'sqlite+aiosqlite:///{FOLDER}/tasks.db').as_fastapi_app()


if __name__ == '__main__':
    import uvicorn

    uvicorn.run(globals()[NAME](), port=PORT, log_level='warning')
