"""Direct replies: a message as the answer to a message, by one run of the agent within the request (§3.1.1).

No task is stored. The run gets a claim that no store has made, so its job and its recorder work as for a task. The
recorder writes to `_ConversationSink`, which drops all events, and stores only the end: one more turn of the
conversation.

- **Places.** The last check for a free place and the count of the run have no `await` between them, so two messages
  never take the same place.
- **Order.** Direct replies of one context wait for each other within an event loop. A task or another process may add a
  turn during the run. Then the run's turn is appended to the newest state of the conversation, which its model has not
  seen.
- **Repeats.** A commit whose answer is lost may have stored the turn. `_heads` has the last entry of each attempt, and
  finds it again.
- **The end of the request.** The request waits for the answer, for the client to disconnect, or for `Limits.max_wait`,
  whichever comes first. In the last two cases and at the end of a drain, the run is cancelled. Its usage is charged all
  the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from inspect import isawaitable
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry
from pydantic_ai.exceptions import RunTimedOut
from pydantic_ai.usage import RunUsage
from pydantic_core import from_json, to_json

from ...clock import STOP_TIME
from ...errors import (
    A2AError,
    InternalError,
    OverloadedError,
    QuotaExceededError,
    StoreUnavailable,
    UnsupportedOperationError,
)
from ...settings.messages import Rule
from ...types.a2a_objects import Message
from ...types.stored_tasks import TaskHeader
from ...wire.extensions import own_extensions
from ...wire.protocol import new_ids
from ..agent.system_exits import Exited
from ..conversion.failures import SHUTDOWN, Failure, classify
from ..quotas import Metering
from ..store.conversation_turns import appended, closed_turn
from ..store.ports import Backend, Claim, Finish, Submission
from ..store.ports.run_writes import Sink
from .ends_without_result import run_failure
from .exception_outcomes import Outcome, outcome_of
from .job import Job
from .observed_run import observed_run
from .recorder import Recorder
from .store_outages import StoreCall, StoreRetries

logger = logging.getLogger('pydantic_ai_a2a')

Disconnected: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
_MESSAGE_STATES = ('completed', 'input-required', 'rejected')
_ATTEMPTS = 20
"""Attempts to append a turn to a conversation to which other processes append at the same time."""


class DirectRuns:
    """Answers messages with messages.

    Args:
        rule: The answer to new messages (`'task'` or `'message'`), or a function of the message, which may be async.
        backend: Stores the conversations.
        make_job: Makes the job that runs the agent.
        metering: Checks and charges the budgets; None for none.
        limit: Maximum number of runs at once.
        max_wait: Seconds for a run; None for no limit.
        check: Raises an `A2AError` if no run may begin now.
    """

    def __init__(
        self,
        rule: Rule,
        backend: Backend,
        make_job: Callable[[], Job],
        *,
        metering: Metering | None,
        limit: int,
        max_wait: float | None,
        check: Callable[[], Awaitable[None]],
    ) -> None:
        self._rule = rule
        self._check_agent = check
        self._backend = backend
        self._job = make_job()
        self._metering = metering
        self._limit = limit
        self._max_wait = max_wait
        self._running: dict[asyncio.Task[bytes], str] = {}
        """The runs by asyncio task, with their owners."""
        self._retries = StoreRetries()
        self._contexts: WeakValueDictionary[tuple[int, str, str], asyncio.Lock] = WeakValueDictionary()

    async def takes(self, message: Message) -> bool:
        """Return True if the server answers a message with a message. Messages to tasks never get a message.

        Raises:
            ValueError: The function `reply=` returned neither `'task'` nor `'message'`.
        """
        if 'task_id' in message:
            return False
        reply: object = self._rule if isinstance(self._rule, str) else await _call_rule(self._rule, message)
        if reply not in ('task', 'message'):
            raise ValueError(f"reply= must say 'task' or 'message', not {reply!r}.")
        return reply == 'message'

    async def answer(self, submission: Submission, correlation_id: str, gone: Disconnected) -> bytes | None:
        """Run the agent. Return the answer as 1.0 JSON, or None if the client disconnects first.

        Args:
            submission: The message, after all checks.
            correlation_id: Names the call.
            gone: Waits for the client to disconnect.

        Raises:
            A2AError: There is no answer.
        """
        await self._check(submission.header('working'))
        self._backend.take_room(submission.size)
        running = asyncio.create_task(self._run(submission, correlation_id))
        watching = asyncio.create_task(gone())
        self._running[running] = submission.owner
        running.add_done_callback(self._ended)  # counts against the limit until the run has stopped
        try:
            await asyncio.wait([running, watching], timeout=self._max_wait, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                if running.cancelled():
                    raise _error(SHUTDOWN)
                return running.result()
            if watching.done():
                return None
            stores = submission.task_id in self._retries.waiting
            running.cancel()  # before the hook, which may take long
            if stores:
                raise StoreUnavailable
            header = submission.header('working')
            raise await self._failed(
                header,
                correlation_id,
                RunTimedOut('The run took longer than Limits.max_wait. Raise max_wait, or answer with tasks.'),
            )
        finally:
            running.cancel()
            watching.cancel()
            await asyncio.wait([running, watching], timeout=STOP_TIME)

    def _ended(self, running: asyncio.Task[bytes]) -> None:
        del self._running[running]
        # A disconnected client gets no error. The run has logged the agent's errors.
        error = None if running.cancelled() else running.exception()
        if isinstance(error, StoreUnavailable) or not isinstance(error, A2AError | None):
            logger.warning(
                'The usage or the messages of a run could not be stored, so a budget or a conversation lacks them: %r',
                error,
            )

    async def drain(self, grace: float) -> None:
        """Let the runs of this loop end within `grace` seconds, and then cancel the rest."""
        loop = asyncio.get_running_loop()
        if running := [run for run in self._running if run.get_loop() is loop]:
            for run in (await asyncio.wait(running, timeout=grace))[1]:
                run.cancel()

    async def _check(self, header: TaskHeader) -> None:
        await self._check_agent()
        owner = header.owner
        await self._backend.housekeeping.check_erasing(owner, header.context_id, at=self._backend.now())
        if self._metering is not None:
            await self._metering.check_budgets(owner)
            limit = self._metering.task_limit
            if limit is not None and list(self._running.values()).count(owner) >= limit:
                raise QuotaExceededError.of('tasks', 1000)
        if len(self._running) >= self._limit:  # no `await` from here until the run counts
            raise OverloadedError(headers={'Retry-After': '1'})

    # --- one run ----------------------------------------------------------------------------------------------------

    async def _run(self, submission: Submission, correlation_id: str) -> bytes:
        header = submission.header('working')
        key = id(asyncio.get_running_loop()), header.owner, header.context_id
        task = asyncio.current_task()
        async with self._contexts.setdefault(key, asyncio.Lock()):
            claim = await self._claim(submission, header)
            turn = _ConversationSink(self._backend, self._retries.of(submission.task_id))
            recorder = Recorder(claim, turn, self._backend.now)
            recorder.state.usage = RunUsage()
            try:
                with observed_run(claim, recorder.state):
                    run = await self._job.prepare(claim, recorder, self._job.token(), header.id)
                    result = await run
                await self._job.record(claim, recorder, result)
            except BaseException as error:  # a PanicException of Rust code, or sys.exit(), too
                if outcome_of(error, task) in (Outcome.EXIT, Outcome.STOPPED, Outcome.UNAVAILABLE):
                    raise
                raise await self._failed(header, correlation_id, error) from None
            finally:
                await self._settle(header.owner, recorder.state.usage)
        assert turn.end is not None, 'the job has recorded it'
        if not turn.answers:
            raise UnsupportedOperationError(
                'The agent needs an answer of the client, and only a task can wait; this agent answers without tasks.'
            )
        return _message(turn.end, header.context_id)

    async def _claim(self, submission: Submission, header: TaskHeader) -> Claim:
        """Return a claim for the run, as for the run of a task."""
        record = await self._backend.conversations(header.owner).read_record(header.context_id)
        return Claim(
            header=header,
            holder='',
            fence=0,
            attempt=1,
            run=1,
            turn=1,
            inbox=0,
            message=submission.body[:-1] + b',"contextId":' + to_json(header.context_id) + b'}',
            head=None if record is None else record.head_id,
            own_messages=None,
            request=submission.request,
            traceparent=submission.traceparent,
        )

    async def _settle(self, owner: str, usage: Any) -> None:
        if self._metering is not None:
            await asyncio.shield(self._metering.charge(owner, usage))

    async def _failed(self, header: TaskHeader, correlation_id: str, error: BaseException) -> A2AError:
        """Log a failure, call the hook, and return the error for the client."""
        failure = classify(error)
        text = 'A message was not answered (%s, correlation id %s).'
        logger.error(text, failure.kind, correlation_id, exc_info=error)
        if self._job.hooks.on_failure is not None:
            await self._job.hooks.failed(run_failure(header, failure.kind, correlation_id, error))
        return _error(failure)


async def _call_rule(rule: Callable[[Message], Any], message: Message) -> object:
    """Call the user's function.

    Raises:
        Exited: The function raised a `BaseException` although neither the request nor the process ends.
    """
    task = asyncio.current_task()
    try:
        reply = rule(message)
        return await reply if isawaitable(reply) else reply
    except BaseException as error:
        if isinstance(error, Exception) or outcome_of(error, task) is not Outcome.FAILED:
            raise
        raise Exited.of(error) from error


class _ConversationSink(Sink):
    """The writes of a recorder for a run without a task: only the end is stored, as a turn of the conversation.

    Args:
        backend: Stores the conversation.
        store: Repeats the write while the store is unavailable, to save the result of the run.
    """

    def __init__(self, backend: Backend, store: StoreCall) -> None:
        self._backend = backend
        self._store = store
        self._heads: set[str | None] = set()
        """Ids of the last entries of all attempts. A commit without an answer may have stored an entry."""
        self.end: Finish | None = None

    @property
    def answers(self) -> bool:
        """True if a message can express the end of the run: an answer, a plain question, or a rejection."""
        end = self.end
        return end is not None and end.pending is None and end.status.state in _MESSAGE_STATES

    async def emit(self, *_: object, **__: object) -> None:
        """Do nothing: events have no readers."""

    async def finish(self, claim: Claim, finish: Finish) -> None:
        """Add the turn to the conversation."""
        self.end = finish
        if self.answers and finish.status.state != 'rejected':
            await self._store(partial(self._append, claim, finish))

    async def _append(self, claim: Claim, finish: Finish) -> None:
        """Append the turn to the newest state of the conversation, like the end of a task."""
        header = claim.header
        store = self._backend.conversations(header.owner)
        attempts = 0
        while True:
            attempts += 1
            before = await store.read_record(header.context_id)
            if before is None and claim.head is not None:
                return  # the conversation was erased meanwhile
            if before is not None and before.head_id in self._heads:
                return
            record, entries = appended(
                before,
                closed_turn(finish.messages),
                rewritten=finish.rewritten,
                read=claim.head,
                conversation_id=header.context_id,
                owner=header.owner,
                run_id=new_ids.new_id(),
                usage=finish.usage,
                at=self._backend.now(),
            )
            self._heads.add(record.head_id)
            new = [ConversationEntry(id=own, parent_id=parent, message=message) for own, parent, message in entries]
            revision = None if before is None else before.revision
            try:
                return await store.write_record(record, new_entries=new, expected_revision=revision)
            except ConversationConflict:
                if attempts == _ATTEMPTS:
                    raise


def _message(end: Finish, context_id: str) -> bytes:
    """Return the answer as a message: the artifacts of a task, or the message of its status."""
    bodies = [body for _, body in end.artifacts or ()]
    if end.status.message is not None:
        bodies = [end.status.message]
    parts = [part for body in bodies for part in from_json(body)['parts']]
    written: dict[str, Any] = {
        'messageId': new_ids.new_id(),
        'contextId': context_id,
        'role': 'ROLE_AGENT',
        'parts': parts or [{'text': '', 'mediaType': 'text/plain'}],
    }
    if end.metadata is not None:
        written |= {'metadata': from_json(end.metadata), 'extensions': [own_extensions.RUN_METADATA_URI]}
    return to_json(written)


def _error(failure: Failure) -> A2AError:
    if failure == SHUTDOWN:
        return OverloadedError('The server shut down before the message was answered.', headers={'Retry-After': '1'})
    return InternalError(failure.sentence.replace('The task', 'The run'), metadata={'failure': failure.kind})
