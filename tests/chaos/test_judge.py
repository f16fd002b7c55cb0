"""The judge finds each thing that can be wrong, and nothing where all is well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ..cases import each_case
from .facts import (
    AnswerWord,
    Event,
    Facts,
    FinalTask,
    LedgerRow,
    ObservedState,
    Outage,
    ReaderConnection,
    Recovery,
    SentMessage,
)
from .judge import judge


def status(n: int, state: str) -> Event:
    return Event(n, {'statusUpdate': {'status': {'state': f'TASK_STATE_{state}'}}})


def chunk(n: int, *words: AnswerWord, append: bool = True) -> Event:
    parts = [{'text': ''.join(word.text for word in words)}]
    return Event(n, {'artifactUpdate': {'artifact': {'parts': parts}, 'append': append}})


def answer_words(speaker: str, turns: Sequence[str], steps: Sequence[str]) -> list[AnswerWord]:
    return [
        *(AnswerWord(speaker, 'turn', each) for each in turns),
        *(AnswerWord(speaker, 'step', each) for each in steps),
    ]


def completed(task: str, message: str, words: Sequence[AnswerWord]) -> FinalTask:
    """A task whose answer was streamed word by word."""
    text = ''.join(word.text for word in words)
    chunks = [chunk(n, word, append=n > 2) for n, word in enumerate(words, 2)]
    log = [status(1, 'WORKING'), *chunks, status(len(words) + 2, 'COMPLETED')]
    return FinalTask(task, 'c', 'COMPLETED', None, [message], [text], [text], log)


def row(identity: str, task: str, turn: int, step: int, *, attempt: int = 1, call: str = 'call') -> LedgerRow:
    """An attempt begins each second, in another process."""
    return LedgerRow(
        identity, task, 'c', turn, step, call, attempt, pid=attempt, at=float(attempt), until=attempt + 0.5
    )


FIRST = completed('t1', 'm1', answer_words('a', ['c/1'], ['r1', 'r2']))
SECOND = completed('t2', 'm2', answer_words('b', ['c/1', 'c/2'], ['r3']))
LOG = list(FIRST.log)
CORRECT_RUN = Facts(
    [row('r1', 't1', 1, 1), row('r2', 't1', 1, 2), row('r3', 't2', 2, 1), row('late', 't1', 1, 2)],
    [SentMessage('m1', 'c', 1, 2, tasks=['t1', 't1']), SentMessage('m2', 'c', 2, 1, tasks=['t2'])],
    [FIRST, SECOND],
    {
        't1': [
            [
                ReaderConnection(None, (0, 'SUBMITTED'), LOG[:2]),
                ReaderConnection(2),
                ReaderConnection(2, None, LOG[2:], closed=True),
            ]
        ]
    },
    [ObservedState('t1', 'WORKING'), ObservedState('t1', 'COMPLETED')],
)


def with_first(**fields: Any) -> Facts:
    return replace(CORRECT_RUN, tasks=[replace(FIRST, **fields), SECOND], readers={}, sightings=[])


def with_second(turns: Sequence[str] = ('c/1', 'c/2'), steps: Sequence[str] = ('r3',), **first: Any) -> Facts:
    return replace(
        with_first(**first), tasks=[replace(FIRST, **first), completed('t2', 'm2', answer_words('b', turns, steps))]
    )


def with_rows(*more: LedgerRow, away: Sequence[Outage] = (Outage(1, 1.2),)) -> Facts:
    return replace(CORRECT_RUN, ledger=[*CORRECT_RUN.ledger, *more], away=away)


def recovered(*away: Outage, begun: float | None) -> Facts:
    """A task whose process is lost at 10; the deadline is 5."""
    return replace(CORRECT_RUN, recoveries=[Recovery('c/1', 10.0, begun)], away=away, deadline=5.0)


def with_log(*events: Event) -> Facts:
    return with_first(log=events)


def with_readings(*readings: ReaderConnection) -> Facts:
    return replace(CORRECT_RUN, readers={'t1': [readings]})


def canceled(*, by_client: bool) -> Facts:
    log = [status(1, 'WORKING'), status(2, 'CANCELED')]
    facts = with_first(state='CANCELED', answers=[], artifacts=[], log=log)
    return replace(facts, sent=[replace(CORRECT_RUN.sent[0], cancelled=by_client), CORRECT_RUN.sent[1]])


def failed(failure: str, *turns: str) -> Facts:
    log = [status(1, 'WORKING'), status(2, 'FAILED')]
    return with_second(turns, state='FAILED', failure=failure, answers=[], artifacts=[], log=log)


CORRECT_RUNS: dict[str, Callable[[], Facts]] = {
    'all': lambda: CORRECT_RUN,
    'a step that a lost worker did late': lambda: with_rows(row('x', 't2', 2, 2, attempt=2), row('y', 't2', 2, 1)),
    'a canceled turn that is remembered': lambda: canceled(by_client=True),
    'a task that is taken over while the store is away': lambda: with_rows(
        row('x', 't2', 2, 2, attempt=2), away=[Outage(None, 0.0, 1.1)]
    ),
    'a task that is taken over from a worker that was stopped before it called': lambda: with_rows(
        row('x', 't2', 2, 2, attempt=2), away=[Outage(1, 0.0, 1.1)]
    ),
    'a task that is taken over soon': lambda: recovered(begun=14.0),
    'a task that is taken over late, since the store was away': lambda: recovered(
        Outage(1, 10.0), Outage(None, 9.0, 13.0), begun=17.0
    ),
    'a dead letter where attempts are few': lambda: replace(failed('attempts', 'c/2'), dead_letters=True),
    'an attempt that was lost while it spoke': lambda: with_log(
        status(1, 'WORKING'), chunk(2, *answer_words('x', ['c/1'], []), append=False), *renumbered(LOG[1:], 1)
    ),
    'an answer that nobody watched': lambda: with_log(
        status(1, 'WORKING'), chunk(2, *AnswerWord.all(FIRST.artifacts[0]), append=False), status(3, 'COMPLETED')
    ),
}


def renumbered(events: Sequence[Event], by: int) -> list[Event]:
    return [event._replace(n=event.n + by) for event in events]


@pytest.mark.parametrize('name', CORRECT_RUNS)
def test_judge_reports_no_violation_in_correct_run(name: str) -> None:
    assert judge(CORRECT_RUNS[name]()) == []


VIOLATIONS: dict[str, tuple[Callable[[], Facts], list[str]]] = {
    'not all was done': (
        lambda: replace(CORRECT_RUN, undone=['twice: kill a server']),
        ['not done twice: kill a server '],
    ),
    'a client is refused': (lambda: replace(CORRECT_RUN, refusals=[('m1', '-32001')]), ['refused m1 -32001']),
    'a message has got lost': (
        lambda: replace(CORRECT_RUN, sent=[*CORRECT_RUN.sent, SentMessage('m3', 'c', 3, 1, tasks=['t3'])]),
        ["not one task m3 is in [], answered with ['t3']"],
    ),
    'a message was run twice': (
        lambda: replace(CORRECT_RUN, tasks=[*CORRECT_RUN.tasks, replace(FIRST, id='t3')], ledger=[*CORRECT_RUN.ledger]),
        [
            "not one task m1 is in ['t1', 't3'], answered with ['t1']",
            "steps lost t3 [('t1', 1), ('t1', 2)] of 2",
        ],
    ),
    'a client was told of another task': (
        lambda: replace(CORRECT_RUN, sent=[replace(CORRECT_RUN.sent[0], tasks=['t1', 't2']), CORRECT_RUN.sent[1]]),
        ["not one task m1 is in ['t1'], answered with ['t1', 't2']"],
    ),
    'a task that nobody wanted': (
        lambda: replace(CORRECT_RUN, tasks=[*CORRECT_RUN.tasks, replace(FIRST, id='t3', messages=['m3'])]),
        ["not one message t3 has ['m3']"],
    ),
    'a task in another context': (lambda: with_first(context='d'), ['other context t1 is in d instead of c']),
    'a task that nobody has canceled': (lambda: canceled(by_client=False), ['canceled by nobody t1 ']),
    'a task that has not ended': (
        lambda: with_second(('c/2',), state='WORKING', answers=[], artifacts=[]),
        ['not ended t1 WORKING'],
    ),
    'a task that has failed': (lambda: failed('internal', 'c/2'), ['failed t1 internal']),
    'a dead letter': (lambda: failed('attempts', 'c/2'), ['failed t1 attempts']),
    'a failure where attempts are few': (
        lambda: replace(failed('internal', 'c/2'), dead_letters=True),
        ['failed t1 internal'],
    ),
    'a task without an answer': (
        lambda: with_first(artifacts=[], answers=[], log=[status(1, 'WORKING'), status(2, 'COMPLETED')]),
        ['not one answer t1 0 artifacts, 0 answers', 'streamed another answer t1 '],
    ),
    'an answer in the history that is not the result': (
        lambda: with_first(answers=[*FIRST.answers, 'late']),
        ['not one answer t1 1 artifacts, 2 answers'],
    ),
    'an answer of a task that was not completed': (
        lambda: replace(canceled(by_client=True), tasks=[replace(FIRST, state='CANCELED', log=LOG[:1]), SECOND]),
        ['answer without completion t1 CANCELED', 'log without end t1 1 events'],
    ),
    'a terminal state that has changed': (
        lambda: replace(CORRECT_RUN, sightings=[ObservedState('t1', 'FAILED')]),
        ['end has changed t1 FAILED was seen, and it is COMPLETED'],
    ),
    'another end in the log': (
        lambda: with_log(*LOG[:-1], status(5, 'FAILED')),
        ['end has changed t1 FAILED in the log, and it is COMPLETED'],
    ),
    'a turn that is forgotten': (lambda: with_second(('c/2',)), ['turn lost t2 c/1']),
    'a turn that is there twice': (lambda: with_second(('c/1', 'c/1', 'c/2')), ['turn doubled t2 c/1']),
    'turns in another order': (lambda: with_second(('c/2', 'c/1')), ['turns out of order t2 c/2 c/1']),
    'a turn of somebody else': (lambda: with_second(('c/1', 'd/1', 'c/2')), ['turn of another t2 d/1']),
    'a turn that has failed': (
        lambda: replace(failed('attempts', 'c/1', 'c/2'), dead_letters=True),
        ['turn of another t2 c/1'],
    ),
    'a step that was left out': (lambda: with_second(steps=()), ['steps lost t2 [] of 1']),
    'a step that is in no ledger': (lambda: with_second(steps=('r9',)), ['steps lost t2 [None] of 1']),
    'a step of another task': (lambda: with_second(steps=('r1',)), ["steps lost t2 [('t1', 1)] of 1"]),
    'two tasks of a context at once': (
        lambda: replace(CORRECT_RUN, ledger=[CORRECT_RUN.ledger[n] for n in (0, 2, 1)]),
        ['out of order t2 began at row 1, before row 2'],
    ),
    'a step that was done again after its checkpoint': (
        lambda: with_rows(row('x', 't1', 1, 1, attempt=2)),
        [
            'result of a lost attempt t1 1 of attempt 1',
            'step done again t1 1 after 2',
            'step done again t1 1 after 2',
        ],
    ),
    'a step that was done again as another call': (
        lambda: with_rows(row('x', 't2', 2, 1, attempt=2, call='new')),
        ['result of a lost attempt t2 1 of attempt 1', 'another call t2 new after call'],
    ),
    'a result that was stored for an attempt that was lost': (
        lambda: with_rows(row('x', 't2', 2, 1, attempt=2)),
        ['result of a lost attempt t2 1 of attempt 1'],
    ),
    'a task that is taken while its worker lives': (
        lambda: with_rows(row('x', 't2', 2, 2, attempt=2), away=[]),
        ['taken while held t2 attempt 2 of 1 by 2'],
    ),
    'a task that is taken before its worker is lost': (
        lambda: with_rows(row('x', 't2', 2, 2, attempt=2), away=[Outage(1, 2.1)]),
        ['taken while held t2 attempt 2 of 1 by 2'],
    ),
    'a task that is taken after its worker has come back': (
        lambda: with_rows(row('x', 't2', 2, 2, attempt=2), away=[Outage(1, 0.0, 0.9)]),
        ['taken while held t2 attempt 2 of 1 by 2'],
    ),
    'a task that is taken while another worker is lost': (
        lambda: with_rows(row('x', 't2', 2, 2, attempt=2), away=[Outage(2, 1.1)]),
        ['taken while held t2 attempt 2 of 1 by 2'],
    ),
    'a task that nobody takes over': (lambda: recovered(begun=None), ['not recovered c/1 ']),
    'a task that is taken over late': (
        lambda: recovered(Outage(None, 9.0, 11.0), begun=17.0),
        ['recovered late c/1 after 6.0 s'],
    ),
    'an answer of two attempts': (
        lambda: with_first(artifacts=['a|turn|c/1 b|step|r1 b|step|r2 '], answers=['a|turn|c/1 b|step|r1 b|step|r2 ']),
        ['several speakers t1 a|turn|c/1 b|step|r1 b|step|r2 ', f'streamed another answer t1 {FIRST.artifacts[0]}'],
    ),
    'an event that is missing in the log': (
        lambda: with_log(*LOG[:3], *renumbered(LOG[3:], 1)),
        ['log with gaps t1 [1, 2, 3, 5, 6]'],
    ),
    'two ends': (lambda: with_log(*LOG, status(6, 'COMPLETED')), ['several ends t1 COMPLETED COMPLETED']),
    'an event after the end': (lambda: with_log(*LOG, status(6, 'WORKING')), ['log without end t1 6 events']),
    'words of an attempt that was lost': (
        lambda: with_log(
            status(1, 'WORKING'),
            chunk(2, AnswerWord('x', 'turn', 'c/1'), append=False),
            *renumbered(LOG[1:4], 1),
            chunk(6, AnswerWord('x', 'step', 'r1')),
            status(7, 'COMPLETED'),
        ),
        ['late words t1 x|step|r1 '],
    ),
    'an attempt that begins anew after it was lost': (
        lambda: with_log(
            status(1, 'WORKING'),
            chunk(2, AnswerWord('x', 'turn', 'c/1'), append=False),
            chunk(3, AnswerWord('a', 'turn', 'c/1'), append=False),
            chunk(4, AnswerWord('x', 'turn', 'c/1'), append=False),
            status(5, 'COMPLETED'),
        ),
        ['late words t1 x|turn|c/1 '],
    ),
    'an event that a reader did not get': (
        lambda: with_readings(ReaderConnection(None, (0, 'SUBMITTED'), [*LOG[:2], *LOG[3:]], closed=True)),
        ['lost event t1 reader 0: 4 after 2'],
    ),
    'an event that a reader got twice': (
        lambda: with_readings(
            ReaderConnection(None, (0, 'SUBMITTED'), LOG[:3]),
            ReaderConnection(3, None, [LOG[2], *LOG[3:]], closed=True),
        ),
        ['doubled event t1 reader 0: 3 after 3'],
    ),
    'events in another order': (
        lambda: with_readings(ReaderConnection(None, (0, 'SUBMITTED'), [LOG[1], LOG[0], *LOG[2:]], closed=True)),
        [
            'lost event t1 reader 0: 2 after 0',
            'doubled event t1 reader 0: 1 after 2',
            'lost event t1 reader 0: 3 after 1',
        ],
    ),
    'an event that was never stored': (
        lambda: with_readings(ReaderConnection(None, (0, 'SUBMITTED'), [*LOG[:4], status(5, 'FAILED')], closed=True)),
        [
            'unstored event t1 reader 0: 5: {"statusUpdate": {"status": {"state": "TASK_STATE_FAILED"}}}',
        ],
    ),
    'a reader that is told to begin anew': (
        lambda: with_readings(ReaderConnection(2, (3, 'WORKING'), LOG[3:], closed=True)),
        ['resumed anew t1 reader 0: after 2, with a snapshot at 3'],
    ),
    'a snapshot that shows another state': (
        lambda: with_readings(ReaderConnection(None, (0, 'WORKING'), LOG, closed=True)),
        ['wrong snapshot t1 reader 0: WORKING at 0'],
    ),
    'a reader that has not seen the end': (
        lambda: with_readings(ReaderConnection(None, (0, 'SUBMITTED'), LOG[:4])),
        ['end not seen t1 reader 0: has 4 of 5 events'],
    ),
    'a stream that was closed too early': (
        lambda: with_readings(
            ReaderConnection(None, (0, 'SUBMITTED'), LOG[:4], closed=True),
            ReaderConnection(4, None, LOG[4:], closed=True),
        ),
        ['closed before the end t1 reader 0: after 4 of 5 events'],
    ),
    'a stream that is not closed after the end': (
        lambda: with_readings(ReaderConnection(None, (0, 'SUBMITTED'), LOG)),
        ['not closed t1 reader 0: after 5 of 5 events'],
    ),
}


@each_case('name', VIOLATIONS)
def test_judge_reports_each_violation(name: str) -> None:
    facts, found = VIOLATIONS[name]
    assert [' '.join(violation) for violation in judge(facts())] == found
