"""Says what is wrong with the facts of a run. Pure: knows no process, no client, and nothing of how the package works.

A tool may have been called again where it was cut off, also by a process that had lost its task: that is what *at least
once* means. Whatever else was promised must hold.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from .facts import ENDED, AnswerWord, Event, Facts, FinalTask, LedgerRow, Outage, ReaderConnection, SentMessage

__all__ = ('Violation', 'judge')


class Violation(NamedTuple):
    """Something that must not be."""

    kind: str
    subject: str
    """The task, or the message if it has none."""
    details: str = ''


def judge(facts: Facts) -> list[Violation]:
    """All violations."""
    logged = [task for task in facts.tasks if task.logged]
    return [
        *(Violation('not done', each) for each in facts.undone),
        *(Violation('refused', *refusal) for refusal in facts.refusals),
        *_messages(facts),
        *_conversations(facts),
        *_order(facts),
        *_repeated(facts),
        *_holders(facts),
        *_recoveries(facts),
        *_sightings(facts),
        *(violation for task in facts.tasks for violation in _end(facts, task)),
        *(violation for task in logged for violation in (*_log(task), *_streamed(task))),
        *(
            Violation(kind, task.id, f'reader {number}: {details}')
            for task in logged
            if task.state in ENDED
            for number, readings in enumerate(facts.readers.get(task.id, ()))
            for kind, details in _reader(task, readings)
        ),
    ]


# --- messages and tasks -----------------------------------------------------------------------------------------------


def _messages(facts: Facts) -> Iterator[Violation]:
    """Each message has one task, and is said to have that one; each task has one message."""
    known = {sent.message: sent for sent in facts.sent}
    for sent in facts.sent:
        tasks = [task.id for task in facts.tasks if sent.message in task.messages]
        if len(tasks) != 1 or {*sent.tasks} - {*tasks}:
            yield Violation('not one task', sent.message, f'is in {tasks}, answered with {sorted({*sent.tasks})}')
    for task in facts.tasks:
        if len(task.messages) != 1 or task.messages[0] not in known:
            yield Violation('not one message', task.id, f'has {list(task.messages)}')
            continue
        sent = known[task.messages[0]]
        if sent.context != task.context:
            yield Violation('other context', task.id, f'is in {task.context} instead of {sent.context}')
        if task.state == 'CANCELED' and not sent.cancelled:
            yield Violation('canceled by nobody', task.id)


def _end(facts: Facts, task: FinalTask) -> Iterator[Violation]:
    """It has ended, and not failed; what it says is said once."""
    if task.state not in ENDED:
        yield Violation('not ended', task.id, task.state)
    if task.state == 'FAILED' and not (facts.dead_letters and task.failure == 'attempts'):
        yield Violation('failed', task.id, str(task.failure))
    if task.state == 'COMPLETED':
        if len(task.artifacts) != 1 or list(task.answers) != list(task.artifacts):
            yield Violation('not one answer', task.id, f'{len(task.artifacts)} artifacts, {len(task.answers)} answers')
    elif task.answers:
        yield Violation('answer without completion', task.id, task.state)


def _sightings(facts: Facts) -> Iterator[Violation]:
    states = {task.id: task.state for task in facts.tasks}
    for task_id, state in dict.fromkeys(facts.sightings):
        if state in ENDED and states.get(task_id) != state:
            yield Violation('end has changed', task_id, f'{state} was seen, and it is {states.get(task_id)}')


# --- conversations ----------------------------------------------------------------------------------------------------


def _conversations(facts: Facts) -> Iterator[Violation]:
    """Each answer knows all turns before it and all its steps, once each, and has one speaker."""
    by_message = {message: task for task in facts.tasks for message in task.messages}
    rows = {row.id: row for row in facts.ledger}
    for _, group in groupby(facts.sent, lambda sent: sent.context):
        before: list[tuple[str, str]] = []
        """The turns before, with their states."""
        for sent in group:
            task = by_message.get(sent.message)
            if task is None:
                continue
            name = f'{sent.context}/{sent.turn}'
            if task.state == 'COMPLETED':
                for text in task.artifacts:
                    words = AnswerWord.all(text)
                    yield from _turns(task, [word.value for word in words if word.kind == 'turn'], [*before], name)
                    yield from _steps(task, sent, [word.value for word in words if word.kind == 'step'], rows)
                    if len({word.speaker for word in words}) > 1:
                        yield Violation('several speakers', task.id, text)
            before.append((name, task.state))


def _turns(task: FinalTask, seen: Sequence[str], before: Sequence[tuple[str, str]], name: str) -> Iterator[Violation]:
    """A completed turn is seen, a failed one is not; a canceled one is, if its run had begun."""
    must = [turn for turn, state in before if state == 'COMPLETED'] + [name]
    may = [turn for turn, state in before if state in ('COMPLETED', 'CANCELED')] + [name]
    if doubled := sorted(turn for turn, times in Counter(seen).items() if times > 1):
        yield Violation('turn doubled', task.id, ' '.join(doubled))
    if lost := [turn for turn in must if turn not in seen]:
        yield Violation('turn lost', task.id, ' '.join(lost))
    if alien := [turn for turn in dict.fromkeys(seen) if turn not in may]:
        yield Violation('turn of another', task.id, ' '.join(alien))
    once = [*dict.fromkeys(seen)]
    if [turn for turn in once if turn in may] != [turn for turn in may if turn in once]:
        yield Violation('turns out of order', task.id, ' '.join(seen))


def _steps(task: FinalTask, sent: SentMessage, seen: Sequence[str], rows: dict[str, LedgerRow]) -> Iterator[Violation]:
    """The results that the answer is made of are those of its own task's steps, in the ledger, in order."""
    wanted = [(task.id, step) for step in range(1, sent.steps + 1)]
    used = [(rows[each].task, rows[each].step) if each in rows else None for each in seen]
    if used != wanted:
        yield Violation('steps lost', task.id, f'{used} of {sent.steps}')
    newest = {(row.task, row.step): row.attempt for row in sorted(rows.values(), key=lambda row: row.attempt)}
    for row in (rows[each] for each in seen if each in rows):
        if newest[row.task, row.step] > row.attempt:
            yield Violation('result of a lost attempt', task.id, f'{row.step} of attempt {row.attempt}')


def _order(facts: Facts) -> Iterator[Violation]:
    """No later task of a context has called a tool before the steps that an earlier one's answer is made of."""
    place = {row.id: n for n, row in enumerate(facts.ledger)}
    first: dict[str, int] = {}
    for n, row in enumerate(facts.ledger):
        first.setdefault(row.task, n)
    by_message = {message: task for task in facts.tasks for message in task.messages}
    for _, group in groupby(facts.sent, lambda sent: sent.context):
        done = -1
        for task in (by_message[sent.message] for sent in group if sent.message in by_message):
            if first.get(task.id, len(place)) < done:
                yield Violation('out of order', task.id, f'began at row {first[task.id]}, before row {done}')
            used = [word.value for text in task.artifacts for word in AnswerWord.all(text) if word.kind == 'step']
            done = max([done, *(place[each] for each in used if each in place and task.state == 'COMPLETED')])


def _repeated(facts: Facts) -> Iterator[Violation]:
    """A step is called anew only where it was cut off, and then as the same call; what came before it is not."""
    for task, group in groupby(sorted(facts.ledger, key=lambda row: row.task), lambda row: row.task):
        rows = list(group)
        for n, row in enumerate(rows):
            for before in rows[:n]:
                if before.step > row.step and before.attempt <= row.attempt:
                    yield Violation('step done again', task, f'{row.step} after {before.step}')
                if before.step == row.step and before.call != row.call:
                    yield Violation('another call', task, f'{row.call} after {before.call}')


# --- holders ----------------------------------------------------------------------------------------------------------


def _holders(facts: Facts) -> Iterator[Violation]:
    """A task goes to another process only if its process was lost, or the store away."""
    for task, group in groupby(sorted(facts.ledger, key=lambda row: row.task), lambda row: row.task):
        first: dict[tuple[int, int], LedgerRow] = {}
        for row in sorted(group, key=lambda row: (row.attempt, row.at)):
            first.setdefault((row.attempt, row.pid), row)
        for before, after in pairwise(first.values()):
            if not any(_lost(before, after, away) for away in facts.away):
                yield Violation('taken while held', task, f'attempt {after.attempt} of {before.pid} by {after.pid}')


def _lost(before: LedgerRow, after: LedgerRow, away: Outage) -> bool:
    return away.pid in (None, before.pid) and away.begin < after.at and before.at < away.end


def _recoveries(facts: Facts) -> Iterator[Violation]:
    """A task whose process was lost is soon taken over, as far as the store is there."""
    outages = [(away.begin, away.end) for away in facts.away if away.pid is None]
    for turn, lost, begun in facts.recoveries:
        if begun is None:
            yield Violation('not recovered', turn)
            continue
        seconds = begun - lost - sum(max(0.0, min(begun, end) - max(lost, begin)) for begin, end in outages)
        if seconds > facts.deadline:
            yield Violation('recovered late', turn, f'after {seconds:.1f} s')


# --- events -----------------------------------------------------------------------------------------------------------


def _log(task: FinalTask) -> Iterator[Violation]:
    """It is numbered from 1 without gaps, and ends with the one end of the task."""
    if task.state not in ENDED:
        return
    numbers = [event.n for event in task.log]
    if numbers != [*range(1, len(numbers) + 1)]:
        yield Violation('log with gaps', task.id, str(numbers))
    ends = [event for event in task.log if event.state in ENDED]
    if len(ends) > 1:
        yield Violation('several ends', task.id, ' '.join(str(event.state) for event in ends))
    if not ends or task.log[-1] is not ends[-1]:
        yield Violation('log without end', task.id, f'{len(task.log)} events')
    elif ends[-1].state != task.state:
        yield Violation('end has changed', task.id, f'{ends[-1].state} in the log, and it is {task.state}')


def _streamed(task: FinalTask) -> Iterator[Violation]:
    """What readers put together is never of two attempts, and in the end the answer."""
    text, silenced = '', set[str]()
    for update in (event.body['artifactUpdate'] for event in task.log if 'artifactUpdate' in event.body):
        chunk = ''.join(part['text'] for part in update['artifact']['parts'])
        before = {word.speaker for word in AnswerWord.all(text)}
        text = text + chunk if update.get('append') else chunk
        speakers = {word.speaker for word in AnswerWord.all(text)}
        silenced |= before - speakers
        if len(speakers) > 1 or speakers & silenced:
            yield Violation('late words', task.id, chunk)
            return
    if task.state == 'COMPLETED' and [text] != list(task.artifacts):
        yield Violation('streamed another answer', task.id, text)


def _reader(task: FinalTask, readings: Sequence[ReaderConnection]) -> Iterator[tuple[str, str]]:
    """A reader gets the log from its first snapshot on, each event once, to the end, whatever it reconnects to."""
    last: int | None = None
    for reading in readings:
        last, violations = _read(task, reading, last)
        yield from violations
    if last != len(task.log):
        yield 'end not seen', f'has {last} of {len(task.log)} events'
    elif not readings[-1].closed:
        yield 'not closed', f'after {last} of {len(task.log)} events'


def _read(task: FinalTask, reading: ReaderConnection, last: int | None) -> tuple[int | None, list[tuple[str, str]]]:
    """The last event that the reader has now, and what is wrong with what came."""
    violations: list[tuple[str, str]] = []
    if reading.snapshot is not None:
        n, state = reading.snapshot
        if reading.after is not None:
            violations.append(('resumed anew', f'after {reading.after}, with a snapshot at {n}'))
        if state != _state_at(task.log, n):
            violations.append(('wrong snapshot', f'{state} at {n}'))
        last = n
    elif reading.after is not None:
        last = reading.after
    for event in reading.events:
        if last is None or event.n != last + 1:
            violations.append(('doubled event' if event.n <= (last or 0) else 'lost event', f'{event.n} after {last}'))
        elif event.n > len(task.log) or _text(event.body) != _text(task.log[event.n - 1].body):
            violations.append(('unstored event', f'{event.n}: {_text(event.body)}'))
        last = event.n
    if reading.closed and last != len(task.log):
        violations.append(('closed before the end', f'after {last} of {len(task.log)} events'))
    return last, violations


def _state_at(log: Sequence[Event], n: int) -> str:
    return next((event.state for event in reversed(log[:n]) if event.state is not None), 'SUBMITTED')


def _text(body: Any) -> str:
    return json.dumps(body, sort_keys=True)
