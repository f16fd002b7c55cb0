"""The calls of the hook `on_waiting`, one for each pause of a task, beside the runs of a worker.

In a store that other processes share, the transaction of a pause also stores the call, with a lease. The worker that
has stored the pause calls the hook at once, and then deletes the stored call. Meanwhile, its heartbeats renew the
lease, and take the calls whose lease has expired.

| what happens | the stored call |
|---|---|
| the hook returns, raises, or takes too long | is deleted |
| the pause has ended before the call, or waits only for external results | is deleted, without a call |
| the stored pause is damaged | the same, and the log says so |
| the process dies, or the worker stops | stays until its lease expires, and another worker takes it |
| the store is unavailable | the same |

So the hook is called at least once for a pause that lasts, and may be called again: the task and the number of the run
tell. In memory, nothing is stored, because the tasks end with the process.

A call that takes too long keeps its place among the calls that go on at once until it has returned, because nothing
can stop a thread. Without a free place, further calls of the process wait, and it takes none of others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

from pydantic_core import from_json

from ...base_exceptions import ends_task
from ...types.callers import Caller
from ...types.stored_tasks import TaskHeader
from ..agent.hooks import Hooks, OpenCall, TaskPause
from ..conversion import pending_calls
from ..conversion.edited_arguments import as_run
from ..conversion.pending_calls import Pending, PendingCall
from ..service.approvers import sender_of_run
from ..store.ports import Backend, HookCall, Pause

logger = logging.getLogger('pydantic_ai_a2a')

HOOK_TIME = 30.0
"""Seconds for one call of the hook."""
_AT_ONCE = 10
"""The most calls at once. Others wait, with their leases."""
_MOST_TAKEN = 100
"""The most calls of other processes that a worker takes at a heartbeat."""

TaskLink: TypeAlias = Callable[[str, str], str | None]
"""Returns the URL of a task in the playground, by the id of the task and its tenant; None without a URL."""


class PauseHook:
    """Calls `on_waiting` for the pauses of one worker.

    Args:
        hooks: Hooks with `on_waiting`.
        backend: Stores the pauses.
        lease: Milliseconds after which another worker may take a call.
        link: Returns the link of a task.
        beside: Starts a coroutine beside the runs of the worker.
    """

    def __init__(
        self,
        hooks: Hooks,
        backend: Backend,
        lease: int,
        *,
        link: TaskLink,
        beside: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        assert backend.hook_calls is not None, '`check_waiting` refuses such backends'
        self._hooks = hooks
        self._calls = backend.hook_calls
        self.lease = lease if backend.durable else None
        """See `Finish.hook_lease`."""
        self._link = link
        self._beside = beside
        self._held = set[HookCall]()
        """The calls of this worker that have not returned, also those that wait for others."""
        self._places = asyncio.Semaphore(_AT_ONCE)

    def begin(self, call: HookCall) -> None:
        """Call the hook soon."""
        self._held.add(call)
        self._beside(self._run(call))

    async def beat(self) -> None:
        """Renew the leases of the calls, and take calls of dead processes."""
        if self.lease is None:
            return
        if self._held:
            await self._calls.renew([*self._held], lease=self.lease)
        if self._places.locked():  # a call would wait here, though another process may have a free place
            return
        taken = await self._calls.take(lease=self.lease, limit=_MOST_TAKEN)
        for call in {*taken} - self._held:  # not one of its own whose lease has just expired
            self.begin(call)

    async def _run(self, call: HookCall) -> None:
        """Call the hook if the pause lasts, and delete the stored call."""
        current = asyncio.current_task()
        try:
            await self._places.acquire()
            with ExitStack() as place:
                place.callback(self._places.release)
                found = await self._calls.pause(call)
                pause = None if found is None else self._pause(*found, call.run)
                if pause is not None and _needs_person(pause):
                    await self._call(pause, place.pop_all())
            if self.lease is not None:
                await self._calls.done(call)
        except BaseException as error:  # a user's store may raise anything, and may work once the lease has expired
            if ends_task(error, current):
                raise
            logger.exception(
                'The store failed around the call of on_waiting for task %s; a worker may call it again in a moment.',
                call.task_id,
            )
        finally:
            self._held.discard(call)

    def _pause(self, header: TaskHeader, pause: Pause, run: int) -> TaskPause | None:
        """Return the argument of the hook; None if the stored pause is damaged."""
        try:
            return pause_of_task(header, pause, run, self._link)
        except Exception as error:
            text = 'The pause of task %s is damaged in the store, so on_waiting is not called for it.'
            logger.error(text, header.id, exc_info=error)
            return None

    async def _call(self, pause: TaskPause, place: ExitStack) -> None:
        # In an asyncio task of its own: a hook may not heed that its call is cancelled.
        call = asyncio.ensure_future(self._hooks.paused(pause))
        call.add_done_callback(lambda _: place.close())
        try:
            await asyncio.wait([call], timeout=HOOK_TIME)
            if not call.done():
                logger.error(
                    'The hook on_waiting of task %s has not returned within %g seconds; the task stays as it is. '
                    'At most %d calls go on at once, and this call is one of them until it returns.',
                    pause.task_id,
                    HOOK_TIME,
                    _AT_ONCE,
                )
        finally:
            call.cancel()


def pause_of_task(header: TaskHeader, pause: Pause, run: int, link: TaskLink) -> TaskPause:
    """Return the argument of `on_waiting`."""
    pending = Pending() if pause.pending is None else pending_calls.load(pause.pending)
    calls = [_open_call(call) for call in pending.calls if call.id not in pending.answers]
    owner = Caller.of(header.owner)
    return TaskPause(
        task_id=header.id,
        context_id=header.context_id,
        number=run,
        state=header.state,
        question=None if calls else pending.question or _text(header.status_message),
        calls=calls,
        owner=owner,
        caller=sender_of_run(pause) or owner,
        link=link(header.id, owner.tenant),
    )


def _needs_person(pause: TaskPause) -> bool:
    """Return True for a question, an approval or a sign-in: programs send the results of external calls."""
    return not pause.calls or any(call.kind != 'external' for call in pause.calls)


def _open_call(call: PendingCall) -> OpenCall:
    args = call.args
    if call.kind == 'approval' and args is not None:
        args = as_run(args, call.schema or {})
    return OpenCall(id=call.shown_id, kind=call.kind, tool=call.tool, text=call.text, args=args)


def _text(message: bytes | None) -> str | None:
    """Return the text of a status message."""
    parts: Sequence[dict[str, Any]] = () if message is None else from_json(message)['parts']
    return '\n'.join(part['text'] for part in parts if 'text' in part) or None
