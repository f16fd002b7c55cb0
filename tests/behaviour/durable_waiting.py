"""An agent that asks what its user says, with the hook `on_waiting`; runs in the servers' processes.

The ledger has a line for each call of the hook, and one for each call that is deleted. A run and the hook wait at the
gates `run` and `hook` if the question names them. A process dies at once after it has stored a question with `die`.
"""

from __future__ import annotations

import os
import signal
from os import environ
from typing import Any

from pydantic_ai import Agent

from pydantic_ai_a2a import InputRequired, TaskPause, to_a2a
from pydantic_ai_a2a.store import Claim, Finish, HookCall, WrappedQueue

from ..agents import call_output_tool, scripted_model, user_prompts
from ..e2e.gates import ROUTES
from .durable_steps import RETENTION, WORKERS, note, stop_at

__all__ = ('app',)


async def ask(question: str) -> InputRequired:
    await stop_at('run', question)
    return InputRequired(question)


def question_of_user(messages: Any, info: Any) -> Any:
    return call_output_tool(question=user_prompts(messages)[-1])(messages, info)


async def on_waiting(pause: TaskPause) -> None:
    assert pause.question is not None
    note(f'{pause.task_id} {pause.number} {pause.question}')
    await stop_at('hook', pause.question)


class Dying(WrappedQueue):
    """A queue whose process dies after it has stored a question with `die`."""

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        following = await super().finish(claim, finish)
        if finish.status.message is not None and b'die' in finish.status.message:
            os.kill(os.getpid(), signal.SIGKILL)
        return following


agent: Agent[object, Any] = Agent(scripted_model(question_of_user), output_type=[ask], name='agent')
app = to_a2a(
    agent,
    backend=environ['A2A_TEST_BACKEND'],
    routes=ROUTES,
    workers=WORKERS,
    retention=RETENTION,
    on_waiting=on_waiting,
)
app.backend.queue = Dying(app.backend.queue)
calls: Any = app.backend.hook_calls
delete = calls.done


async def done(call: HookCall) -> None:
    await delete(call)
    note(f'{call.task_id} {call.run} is done')


calls.done = done
