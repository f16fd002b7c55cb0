"""An agent of the official SDK of A2A 0.3. The program prints the port, and runs in an environment with this SDK.

The agent answers in four pieces. A task that is told `wait` waits after the first piece until a message says `open`.
"""

import asyncio
import socket

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_task


class Talker(AgentExecutor):
    def __init__(self) -> None:
        self._opened = asyncio.Event()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        told = context.get_user_input()
        if told == 'open':
            self._opened.set()
        task = context.current_task or new_task(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        for n, word in enumerate(['The ', 'answer ', 'is ', '42.']):
            parts = [Part(root=TextPart(text=word))]
            await updater.add_artifact(parts, artifact_id='answer', append=n > 0)
            if told == 'wait' and n == 0:
                await self._opened.wait()
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def main() -> None:
    listener = socket.create_server(('127.0.0.1', 0))
    url = f'http://127.0.0.1:{listener.getsockname()[1]}/'
    card = AgentCard(
        name='talker',
        description='Talks.',
        url=url,
        version='1.0.0',
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=['text/plain'],
        default_output_modes=['text/plain'],
        skills=[AgentSkill(id='talk', name='talk', description='Talks.', tags=['talk'])],
    )
    handler = DefaultRequestHandler(agent_executor=Talker(), task_store=InMemoryTaskStore())
    app = A2AStarletteApplication(agent_card=card, http_handler=handler).build()
    print(url, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level='warning')).run(sockets=[listener])


main()
