"""The steps about messages: the task of a message, its cancellation, a repeated message, and streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any
from uuid import uuid4

from ...json_values import as_object
from ...task_states import TERMINAL
from ...types.a2a_objects import AgentCard, Message, Part, StreamResponse, Task
from ...types.operation_params import CancelParams, SendParams
from ...wire.extensions.own_extensions import LIVE_TEXT_URI
from ...wire.protocol.lenient_reading import AnswerUnreadable
from ...wire.protocol.received_tasks import read_event
from ..interfaces import extensions_of
from ..updates import START
from .findings import ExaminationStep, Finding
from .interface_probe import HttpAnswer, Probe, StreamEvent

_TEXT = 'Hello. This is a test of the connection. Please answer with one short sentence.'
_TELLING = 0.3
"""Seconds between the first and the last event, by the server's clock, from which a collected stream is noticed."""


async def messages(probe: Probe, card: AgentCard) -> AsyncGenerator[Finding, None]:
    """Yield the findings about messages, their tasks and their streams."""
    params = harmless_message(uuid4().hex)
    step = ExaminationStep('message', '3.1.1', await probe.ask('SendMessage', params))
    event = _event(step.answer.result)
    if event is None:
        yield step.fault('A message is not answered with a task or a message.', 'Look at the log of the agent.')
        return
    task = START.followed_by(event).task
    if task is None:
        yield step.ok('A message is answered with a message.')
        return
    state = task['status']['state']
    if state in ('failed', 'rejected'):
        yield step.found('warning', f'The task of a harmless message is {state}.', 'Look at the log of the agent.')
    else:
        yield step.ok(f'A message is answered with a task, which is {state}.')
    async for finding in _about_task(probe, step.answer, task):
        yield finding
    yield await _again(probe, params, task)
    async for finding in _stream(probe, card):
        yield finding


def harmless_message(message_id: str) -> SendParams:
    """Return a message that asks for one short sentence."""
    return SendParams(message=Message(role='user', parts=[Part(text=_TEXT)], message_id=message_id))


def _event(result: object) -> StreamResponse | None:
    try:
        return read_event(result)
    except AnswerUnreadable:
        return None


async def _about_task(probe: Probe, answer: HttpAnswer, task: Task) -> AsyncGenerator[Finding, None]:
    if not task.get('context_id'):
        yield ExaminationStep('context', '3.4.1', answer).fault(
            'The task has no contextId.', 'Give each task the id of a conversation.'
        )
    canceled = await probe.ask('CancelTask', CancelParams(id=task['id']))
    if task['status']['state'] not in TERMINAL:
        return
    step = ExaminationStep('ended task', '3.1.5', canceled)
    if canceled.error is not None and (canceled.code == -32002 or canceled.status in (400, 409)):
        yield step.ok('An ended task cannot be canceled.')
    else:
        yield step.fault(
            'Canceling an ended task is not the error -32002.', 'Answer with the error TaskNotCancelableError.'
        )


async def _again(probe: Probe, params: SendParams, task: Task) -> Finding:
    step = ExaminationStep('repeated message', '3.1.1', await probe.ask('SendMessage', params))
    event = _event(step.answer.result)
    second = None if event is None else START.followed_by(event).task
    if second is None or second['id'] == task['id']:
        return step.ok('A message with the same messageId runs once.')
    await _cancel(probe, second)
    return step.found(
        'hint',
        'A message with the same messageId runs twice, which A2A allows.',
        'Return the first task, so that clients may repeat a message whose answer was lost.',
    )


async def _cancel(probe: Probe, task: Task) -> None:
    if task['status']['state'] not in TERMINAL:
        await probe.ask('CancelTask', CancelParams(id=task['id']))


async def _stream(probe: Probe, card: AgentCard) -> AsyncGenerator[Finding, None]:
    if not card['capabilities'].get('streaming'):
        yield Finding(step='stream', level='not checked', text='The card declares no streaming.', section='3.1.2')
        return
    answer = await probe.ask('SendStreamingMessage', harmless_message(uuid4().hex), streams=True)
    step = ExaminationStep('stream', '3.1.2', answer)
    events = [event for received in answer.events if (event := _event(_result(received))) is not None]
    if not events:
        yield step.fault(
            'Streaming is declared, and SendStreamingMessage is not answered with events.',
            'Serve streams as text/event-stream, or set capabilities.streaming to false.',
        )
        return
    update = START
    for event in events:
        update = update.followed_by(event)
    if update.task is not None:
        await _cancel(probe, update.task)
    if answer.error is None:
        yield step.ok(f'A message is answered with a stream of {len(events)} events.')
    else:
        yield step.found(
            'warning',
            f'The stream was left before its end. {answer.error}',
            'End the stream when its task has ended or waits. A slow agent needs a longer --timeout.',
        )
    if LIVE_TEXT_URI in extensions_of(card) and not any(_is_piece(event) for event in events):
        yield ExaminationStep('live text', '4.6', answer).found(
            'hint',
            'The text of the answer came in one piece, because the request did not activate an extension.',
            f'To get text while the model writes it, send {LIVE_TEXT_URI} in A2A-Extensions (0.3: X-A2A-Extensions).',
        )
    yield _collected(answer, events)
    if not any(received.id for received in answer.events):
        yield ExaminationStep('event ids', '3.1.6', answer).found(
            'hint',
            'Events have no ids, so clients cannot resume a cut stream.',
            'Number the events, and accept the header Last-Event-ID.',
        )


def _is_piece(event: StreamResponse) -> bool:
    return event.get('artifact_update', {}).get('append') is True


def _result(received: StreamEvent) -> object:
    fields = as_object(received.data)
    return fields.get('result', fields)


def _collected(answer: HttpAnswer, events: list[StreamResponse]) -> Finding:
    """Return the finding about a proxy that collects the events, by the times of the server and of the arrivals."""
    step = ExaminationStep('live stream', '3.1.2', answer)
    times = [time for event in events if (time := _time(event)) is not None]
    lasted = max(times) - min(times) if times else 0.0
    arrived = answer.events[-1].at - answer.events[0].at
    if lasted < _TELLING:
        return step.found('not checked', 'The answer was too quick to tell if a proxy collects events.')
    if arrived < lasted / 10:
        return step.found(
            'warning',
            f'The agent sent events for {lasted:.1f} seconds, and all arrived at once. A proxy collects them.',
            'Turn buffering off, such as with proxy_buffering off in nginx.',
        )
    return step.ok('Events arrive while the agent works.')


def _time(event: StreamResponse) -> float | None:
    holder: Any = event.get('task') or event.get('status_update') or {}
    try:
        return datetime.fromisoformat(holder['status']['timestamp']).timestamp()
    except (KeyError, TypeError, ValueError):
        return None
