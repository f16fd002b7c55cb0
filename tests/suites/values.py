"""Plain values for the ports, and the first steps of most tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord, ConversationStore
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from pydantic_ai_a2a.server.store.ports import Accepted, Backend, Claim, Erased, Finish, Slot, Status, Submission
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import StoredTask, TaskEvent, TaskQuery, TaskState

__all__ = (
    'EXPIRED',
    'LEASE',
    'OWNER',
    'QUEUE_LIMIT',
    'READER_LAG',
    'START',
    'WAIT_LIMIT',
    'WINDOW',
    'artifact_chunk',
    'claim_all',
    'claim_and_finish',
    'claim_task',
    'claim_up_to',
    'conversation_texts',
    'entries_of',
    'erase',
    'events',
    'expire_lease',
    'finish_and_continue',
    'finish_of',
    'history_texts',
    'ignore',
    'load',
    'message',
    'model_texts',
    'model_turn',
    'record_of',
    'state_of',
    'status_event',
    'submit',
    'sweep',
    'task_ids',
    'text_of_body',
)

START = 1_700_000_000_000
"""The start time of the tests (ms)."""
WINDOW = 600_000
"""Milliseconds of recognition of a repeated message without an owner."""
QUEUE_LIMIT = 100
LEASE = 3_600_000
"""Validity of a claim in milliseconds: longer than any test takes."""
EXPIRED = -1
"""Length of a lease with immediate expiry."""
READER_LAG = 10_000
"""Allowed backlog of the readers of the backend under test, in bytes."""
OWNER = '/ada'
WAIT_LIMIT = 86_400.0
"""Seconds of waiting before a test fails: a day, because clocks go on while a machine is stopped."""


def message(
    text: str = 'hello',
    *,
    new: str | None = None,
    to: str | None = None,
    context: str | None = None,
    owner: str = OWNER,
    message_id: str | None = None,
    at: int = START,
) -> Submission:
    """A message for the new task `new` or the task `to`. The default context of a new task has the name of the task."""
    task_id = new or to
    assert task_id is not None
    message_id = message_id or f'message {text} for {task_id}'
    return Submission(
        owner=owner,
        anonymous=owner == '/',
        message_id=message_id,
        digest=sha256(f'{text} {context} {to}'.encode()).digest(),
        body=json.dumps({'messageId': message_id, 'role': 'ROLE_USER', 'parts': [{'text': text}]}).encode(),
        task_id=task_id,
        new=new is not None,
        context_id=context or (f'context of {new}' if new else None),
        at=at,
        logged=True,
    )


def ignore(*_: object) -> None:
    """A callback that does nothing. A process must have one before hints reach its listeners and readers."""


async def submit(
    backend: Backend, submission: Submission, *, queue_limit: int = QUEUE_LIMIT, slot: Slot | None = None
) -> Accepted:
    """Store a message, with a slot for the task."""
    return await backend.queue.submit(submission, queue_limit=queue_limit, idempotency_window=WINDOW, slot=slot)


async def claim_all(
    backend: Backend, holder: str = 'holder', *, at: int = START, lease: int = LEASE, limit: int = 100
) -> list[Claim]:
    """Claim all runnable tasks."""
    return await backend.queue.claim(Slot(holder, lease), at=at, limit=limit)


async def claim_up_to(
    backend: Backend,
    count: int,
    holder: str = 'holder',
    *,
    limit: int,
    at: int = START,
    lease: int = LEASE,
    task_id: str | None = None,
) -> list[Claim]:
    """Claim once, and again until there are `count` tasks. A claim skips a task with a lock of the database."""
    claims: list[Claim] = []
    async with asyncio.timeout(WAIT_LIMIT):
        while True:
            rest = limit - len(claims)
            claims += await backend.queue.claim(Slot(holder, lease), at=at, limit=rest, task_id=task_id)
            if len(claims) >= count:
                return claims
            await asyncio.sleep(0)  # a backend in memory never waits, and the timeout could not end the loop


async def claim_task(
    backend: Backend, task_id: str, holder: str = 'holder', *, at: int = START, lease: int = LEASE
) -> Claim:
    """Claim a runnable task."""
    [claimed] = await claim_up_to(backend, 1, holder, limit=1, at=at, lease=lease, task_id=task_id)
    return claimed


async def expire_lease(backend: Backend, task_id: str, holder: str = 'holder') -> None:
    """Let the lease of a holder expire, as if it had not been renewed for long."""
    marks = await backend.queue.renew(holder, [task_id], lease=EXPIRED)
    assert not marks.lost, f'{holder} does not hold {task_id}'


def status_event(n: int, state: TaskState) -> TaskEvent:
    """Return the event of a status."""
    return TaskEvent(n, state, json.dumps({'statusUpdate': {'n': n, 'state': state}}).encode())


def artifact_chunk(n: int, text: str, *, append: bool = True) -> TaskEvent:
    """An event with a piece of the artifact `a`."""
    update = {'artifact': {'artifactId': 'a', 'parts': [{'text': text}]}, 'append': append}
    return TaskEvent(n, None, json.dumps({'artifactUpdate': update}).encode())


def finish_of(
    claimed: Claim,
    state: TaskState = 'completed',
    *,
    after: int | None = None,
    at: int = START,
    status_message: bytes | None = None,
    **rest: Any,
) -> Finish:
    """The end of a run whose newest event has the number `after`."""
    n = 1 + (claimed.header.last_event if after is None else after)
    return Finish(status=Status(state, at, status_message), final=status_event(n, state), **rest)


async def claim_and_finish(
    backend: Backend, task_id: str, state: TaskState = 'completed', *, at: int = START, **rest: Any
) -> Claim:
    """Claim a task and end the run at once."""
    claimed = await claim_task(backend, task_id, at=at)
    assert await backend.queue.finish(claimed, finish_of(claimed, state, at=at, **rest)) is None
    return claimed


async def finish_and_continue(backend: Backend, claimed: Claim, end: Finish) -> Claim:
    """End a run of a task that goes on with the next message, and return the claim of the next run."""
    following = await backend.queue.finish(claimed, end)
    assert following is not None
    return following


def model_turn(prompt: str, answer: str) -> list[ModelMessage]:
    """The model messages of a run."""
    return [ModelRequest(parts=[UserPromptPart(prompt)]), ModelResponse(parts=[TextPart(answer)])]


def model_texts(messages: Sequence[ModelMessage]) -> list[str]:
    """The texts of model messages."""
    return [
        str(part.content)
        for message in messages
        for part in message.parts
        if isinstance(part, (UserPromptPart, TextPart))
    ]


def text_of_body(body: bytes) -> str:
    """The text of a stored message or artifact."""
    return ' '.join(part['text'] for part in json.loads(body)['parts'])


async def load(backend: Backend, task_id: str = 't', owner: str | None = OWNER, **options: Any) -> StoredTask:
    """Load an existing task."""
    task = await backend.reader.load(task_id, owner, **options)
    assert task is not None
    return task


async def state_of(backend: Backend, task_id: str) -> TaskState:
    """Return the state of an existing task."""
    return (await load(backend, task_id, None)).header.state


async def history_texts(backend: Backend, task_id: str) -> list[str]:
    """The texts of a task's messages."""
    task = await load(backend, task_id, None)
    assert task.history is not None
    return [text_of_body(body) for body in task.history]


async def record_of(store: ConversationStore, context_id: str) -> ConversationRecord:
    """Read the record of an existing conversation."""
    record = await store.read_record(context_id)
    assert record is not None
    return record


async def entries_of(store: ConversationStore, context_id: str) -> list[ConversationEntry]:
    """Load the entries of an existing conversation."""
    entries = await store.load_entries(context_id)
    assert entries is not None
    return entries


async def conversation_texts(backend: Backend, context_id: str, owner: str = OWNER) -> list[str]:
    """The texts of a context's model messages."""
    loaded = await backend.conversations(owner).load(context_id)
    return [] if loaded is None else model_texts(loaded.messages)


async def events(backend: Backend, task_id: str, after: int = 0) -> list[TaskEvent]:
    """Return the events after a number, and wait for the first."""
    subscription = backend.events.subscribe(task_id, lambda: None)
    try:
        subscription.start(after)
        async with asyncio.timeout(WAIT_LIMIT):
            return list(await subscription.next())
    finally:
        subscription.close()


async def task_ids(backend: Backend) -> list[str]:
    """Return the ids of all tasks, sorted."""
    page = await backend.reader.list(TaskQuery(owner=None, page_size=2000, history_length=0))
    return sorted(task.header.id for task in page.tasks)


async def sweep(backend: Backend, retention: Retention, *, at: int = START) -> None:
    """Sweep until no row is due."""
    async with asyncio.timeout(WAIT_LIMIT):
        while await backend.housekeeping.sweep(retention, at=at):
            pass


async def erase(backend: Backend, owner: str = OWNER, context: str | None = None, *, at: int = START) -> Erased:
    """Erase batch by batch, and return the deleted rows."""
    erased = Erased()
    while batch := await backend.housekeeping.erase(owner, context, at=at):
        erased += batch
    return erased
