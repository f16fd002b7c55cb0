"""Tests of the tasks with open approvals that a store finds for approvers."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

from pydantic_ai_a2a.server.conversion.pending_calls import CallAnswer, Pending, PendingCall, dump
from pydantic_ai_a2a.server.store.ports import Answer, Backend, Pause
from pydantic_ai_a2a.types import TaskState

from .base import PortSuite
from .values import START, claim_and_finish, claim_task, finish_of, message, submit

__all__ = ('OpenApprovalsSuite',)

ANN, BOB = '/ann', '/bob'


def call(call_id: str, kind: str = 'approval', **args: str) -> PendingCall:
    return PendingCall(id=call_id, kind=kind, tool='pay', text='May I?', args=args)  # pyright: ignore[reportArgumentType]


def pending(*calls: PendingCall, answered: str | None = None) -> bytes:
    """The JSON of calls, with an answer to one of them."""
    answers = {} if answered is None else {answered: CallAnswer(decision='deny')}
    return dump(Pending(calls=calls, answers=answers))


ONE = pending(call('c'))


async def wait(
    backend: Backend,
    task_id: str,
    owner: str = ANN,
    *,
    at: int = START,
    calls: bytes | None = ONE,
    state: TaskState = 'input-required',
) -> None:
    """Let a new task wait with calls."""
    await submit(backend, message(new=task_id, owner=owner, at=at))
    await claim_and_finish(backend, task_id, state, at=at, pending=calls)


async def open_ids(backend: Backend, owner: str = BOB, *, limit: int = 100, **options: object) -> list[str]:
    """The ids of the tasks of an owner's tenant with an open approval."""
    listed = await backend.reader.open_approvals(owner, limit=limit, **options)  # pyright: ignore[reportArgumentType]
    return [header.id for header, _ in listed]


async def answer(backend: Backend, task_id: str, calls: bytes, *, rest: bytes | None = None) -> None:
    """Answer a task of Ann."""
    pause = await backend.reader.pause(task_id, ANN)
    assert pause is not None
    text = f'answer {len(calls)}'
    submission = message(text, to=task_id, owner=ANN, at=START + 50)
    answered = Answer(pause=pause, pending=calls, rest=rest)
    await submit(backend, replace(submission, answers_calls=True, answer=answered))


class OpenApprovalsSuite(PortSuite):
    """Tests of `TaskReader.open_approvals`: tasks of the other owners of a tenant, in pages without gap or overlap."""

    async def test_open_approvals_have_headers_and_pauses_of_waiting_tasks(self, backend: Backend) -> None:
        await wait(backend, 'a')
        [(header, pause)] = await backend.reader.open_approvals(BOB, limit=1)
        task = await backend.reader.load('a', ANN, history_length=0)
        assert task is not None
        assert (header, pause) == (task.header, await backend.reader.pause('a', ANN))
        assert pause == Pause(header.last_event, 'context of a', ONE, first=True)

    async def test_only_calls_for_approval_are_open_approvals(self, backend: Backend) -> None:
        await wait(backend, 'a', calls=pending(call('q', 'question'), call('c')))
        await wait(
            backend, 'b', calls=pending(call('q', 'question'), call('x', 'external'), call('s', 'authorization'))
        )
        await wait(backend, 'c', calls=pending())
        await wait(backend, 'd', calls=None)
        await wait(backend, 'e', state='auth-required')
        await wait(backend, 'f', calls=pending(call('q', 'question', note='"kind":"approval"')))
        await submit(backend, message(new='g', owner=ANN))
        assert await open_ids(backend) == ['a']

    async def test_answered_approval_is_no_longer_open(self, backend: Backend) -> None:
        two = call('one'), call('two')
        await wait(backend, 'a', calls=pending(*two))
        await answer(backend, 'a', pending(*two, answered='one'), rest=b'{"messageId":"r","parts":[]}')
        assert await open_ids(backend) == ['a']
        answers = {'one': CallAnswer(decision='deny'), 'two': CallAnswer(decision='approve')}
        await answer(backend, 'a', dump(Pending(calls=two, answers=answers)))
        assert await open_ids(backend) == []
        claimed = await claim_task(backend, 'a', at=START + 50)
        assert await open_ids(backend) == []
        await backend.queue.finish(claimed, finish_of(claimed, 'input-required', at=START + 60, pending=ONE))
        assert await open_ids(backend) == ['a']

    async def test_task_with_only_question_left_needs_no_approval(self, backend: Backend) -> None:
        calls = call('c'), call('q', 'question')
        await wait(backend, 'a', calls=pending(*calls))
        await answer(backend, 'a', pending(*calls, answered='c'), rest=b'{"messageId":"r","parts":[]}')
        assert await open_ids(backend) == []

    async def test_escapes_in_calls_hide_no_approval(self, backend: Backend) -> None:
        odd = 'a\\u0000"\\\0\ud83d\N{PILE OF POO}\\'.encode('utf-8', 'replace').decode()
        await wait(backend, 'a', calls=pending(call(odd, text=odd), call('\0b')))
        await wait(backend, 'b', calls=pending(call(odd, text=odd), answered=odd))
        assert await open_ids(backend) == ['a']

    async def test_infinite_numbers_in_calls_hide_no_approval(self, backend: Backend) -> None:
        odd = PendingCall(id='c', kind='approval', tool='pay', text='"Infinity"', args={'a': inf, 'b': [-inf, nan]})
        await wait(backend, 'a', calls=pending(odd))
        await wait(backend, 'b', calls=pending(odd, answered='c'))
        await wait(backend, 'c', calls=pending(replace(odd, kind='question'), call('q', 'question', note=':Infinity')))
        assert await open_ids(backend) == ['a']

    async def test_task_with_damaged_calls_can_be_canceled(self, backend: Backend) -> None:
        await wait(backend, 'a', calls=b'{"calls":')
        assert await open_ids(backend) == []
        await backend.queue.cancel('a', ANN, at=START + 1)
        assert await backend.reader.count_open_approvals(BOB) == 0

    async def test_ended_or_erased_task_has_no_open_approval(self, backend: Backend) -> None:
        for task_id in 'abc':
            await wait(backend, task_id)
        await backend.queue.cancel('a', ANN, at=START + 1)
        await backend.housekeeping.erase_task('b', ANN, at=START + 1)
        assert await open_ids(backend) == ['c']
        assert await backend.reader.count_open_approvals(BOB) == 1

    async def test_open_approvals_are_limited_to_tenant(self, backend: Backend) -> None:
        for owner in (ANN, BOB, 'acme/ann', 'acme/bob', 'acm/ann', 'acmes/ann', '/acme'):
            await wait(backend, owner.replace('/', ' of '), owner)
        assert await open_ids(backend, ANN) == [' of bob', ' of ann', ' of acme']
        assert await open_ids(backend, 'acm/bob') == ['acm of ann']
        assert await open_ids(backend, 'acme/eve') == ['acme of bob', 'acme of ann']

    async def test_number_of_open_approvals_leaves_out_own_tasks(self, backend: Backend) -> None:
        for n, owner in enumerate((ANN, BOB, ANN, 'acme/ann', 'acm/ann')):
            await wait(backend, f't{n}', owner, at=START + n)
        count = backend.reader.count_open_approvals
        assert [await count(owner) for owner in (ANN, BOB, '/eve', 'acme/ann', 'acm/eve')] == [1, 2, 3, 0, 1]
        assert [await count('/eve', since=START + n) for n in range(4)] == [3, 2, 1, 0]

    async def test_pages_of_open_approvals_have_no_gap_or_overlap(self, backend: Backend) -> None:
        for n in range(7):
            await wait(backend, f't{n}', at=START + n // 3)
        newest_first = ['t6', 't5', 't4', 't3', 't2', 't1', 't0']
        assert await open_ids(backend) == newest_first
        pages: list[list[str]] = []
        before = None
        while page := await backend.reader.open_approvals(BOB, limit=3, before=before):
            pages.append([header.id for header, _ in page])
            before = page[-1][0].status_at, page[-1][0].id
        assert pages == [newest_first[:3], newest_first[3:6], newest_first[6:]]
        assert await open_ids(backend, since=START + 2) == ['t6']

    async def test_page_key_is_random_and_persistent(self, backend: Backend) -> None:
        key = await backend.reader.page_key()
        assert len(key) == 32
        assert len(set(key)) > 1
        assert await backend.reader.page_key() == key
