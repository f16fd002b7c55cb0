"""The inbox of a client: the tasks of a remote agent that wait for the caller, over the pages of both states."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

from ..types.a2a_objects import AgentCard, Task
from ..types.operation_params import ListParams
from ..wire.extensions.pending_calls_extension import PENDING_CALLS_URI
from .interfaces import extensions_of
from .transport import Transport


async def waiting_tasks(card: AgentCard, transport: Transport) -> AsyncGenerator[Task, None]:
    """Yield the tasks that wait, the newest status first. A task whose state changes meanwhile comes once.

    The status message of an agent with the pending calls extension has the whole question. The question of another
    agent may also be in the artifacts and in the history.
    """
    lacks_calls = PENDING_CALLS_URI not in extensions_of(card)
    seen, newest = set[str](), dict[AsyncGenerator[Task, None], Task]()
    async with AsyncExitStack() as exits:
        for state in ('input-required', 'auth-required'):
            params = ListParams(state=state, history_length=None if lacks_calls else 0, include_artifacts=lacks_calls)
            tasks = await exits.enter_async_context(aclosing(transport.items('ListTasks', params)))
            if (task := await anext(tasks, None)) is not None:
                newest[tasks] = task
        while newest:
            tasks = max(newest, key=lambda tasks: newest[tasks]['status'].get('timestamp', ''))
            task = newest.pop(tasks)
            if task['id'] not in seen:
                seen.add(task['id'])
                yield task
            if (task := await anext(tasks, None)) is not None:
                newest[tasks] = task
