"""The steps of an examination, in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import httpx2

from ..client.cards import WELL_KNOWN, Interface, RemoteCards, choose, is_local
from ..client.connections import Connections
from ..client.following import START
from ..client.urls import shown
from ..errors import A2AError, CardRefused, MethodNotFoundError, RemoteError, TaskNotFoundError
from ..protocol.answers import AnswerUnreadable, read_event
from ..types import (
    TERMINAL,
    AgentCard,
    AgentInterface,
    CancelParams,
    GetParams,
    Message,
    Part,
    SendParams,
    StreamResponse,
    Task,
    as_object,
)
from .probe import Answer, Finding, Level, Probe, StreamEvent


async def examine(
    url: str, connections: Connections, trusted_origins: Collection[str] = ()
) -> AsyncGenerator[Finding, None]:
    """Examine an agent. The agent gets harmless text only, and running tasks are canceled.

    Args:
        url: URL of the agent or of its card.
        connections: Connections with the credentials of the caller, closed at the end.
        trusted_origins: Origins besides the card's that may get requests and credentials.
    """
    try:
        async with aclosing(examined_card(connections, url)) as steps:
            async for step in steps:
                if isinstance(step, Finding):
                    yield step
                    continue
                card, place = step
                for interface in interfaces(card, place, trusted_origins):
                    if isinstance(interface, Interface):
                        async with aclosing(examined_calls(Probe(interface, connections), card)) as findings:
                            async for finding in findings:
                                yield finding
                    else:
                        yield interface
    finally:
        await connections.close()


# --- interface --------------------------------------------------------------------------------------------------------
# Errors, security, messages, cancellation and streams.

_TEXT = 'Hello. This is a test of the connection. Please answer with one short sentence.'
_TELLING = 0.3
"""Seconds between the first and the last event, by the server's clock, from which a collected stream is noticed."""


async def examined_calls(probe: Probe, card: AgentCard) -> AsyncGenerator[Finding, None]:
    """Yield the findings about an interface."""
    unknown = await probe.ask('GetTask', GetParams(id=uuid4().hex))
    served = _served(probe, unknown)
    yield served
    if served.level == 'fault':
        return
    yield await _security(probe, card, unknown)
    if unknown.status in (401, 403):
        yield Finding(step='calls', level='not checked', text='The agent asks for credentials.', section='7.4')
        return
    for finding in _errors(probe, unknown):
        yield finding
    async for finding in _bad_params(probe):
        yield finding
    async for finding in _messages(probe, card):
        yield finding


def _found(  # noqa: PLR0917 - in the order in which a finding is read
    answer: Answer, step: str, level: Level, text: str, section: str, advice: str = ''
) -> Finding:
    return Finding(
        step=step, level=level, text=text, section=section, sent=answer.sent, came=answer.came, advice=advice
    )


# --- errors and security --------------------------------------------------------------------------------------------


def _served(probe: Probe, unknown: Answer) -> Finding:
    if not unknown.status:
        return _found(
            unknown,
            'interface',
            'fault',
            f'{probe.name} is declared and cannot be reached.',
            '8.3',
            'Serve the interface at the URL on the card, or take the interface from the card.',
        )
    is_absent = unknown.status in (404, 405, 501) and unknown.code is None
    if isinstance(unknown.error, MethodNotFoundError) or is_absent:
        return _found(
            unknown,
            'interface',
            'fault',
            f'{probe.name} is declared and not served.',
            '8.3',
            'Serve this version and binding, or take them from the card.',
        )
    return _found(unknown, 'interface', 'ok', f'{probe.name} is served.', '8.3')


async def _security(probe: Probe, card: AgentCard, with_credentials: Answer) -> Finding:
    declared = bool(card.get('security_schemes')) and bool(card.get('security_requirements'))
    anonymous = probe.without_credentials()
    try:
        answer = await anonymous.ask('GetTask', GetParams(id=uuid4().hex))
    finally:
        await anonymous.close()
    enforced = answer.status in (401, 403)
    if declared and not enforced:
        return _found(
            answer,
            'security',
            'fault',
            'The card asks for credentials, and requests without credentials are served.',
            '7.4',
            'Refuse requests without credentials with HTTP 401.',
        )
    if enforced and not declared:
        return _found(
            answer,
            'security',
            'fault',
            'Requests without credentials are refused, and the card does not say so.',
            '7.3',
            'Declare securitySchemes and securityRequirements on the card.',
        )
    if not enforced:
        return _found(answer, 'security', 'hint', 'Everybody may call the agent: it asks for no credentials.', '7.3')
    if with_credentials.status in (401, 403):
        return _found(
            with_credentials,
            'security',
            'warning',
            'The agent has refused the credentials, or got none.',
            '7.4',
            'Give credentials with --token-env or --header.',
        )
    return _found(answer, 'security', 'ok', 'Requests without credentials are refused, as the card says.', '7.4')


def _errors(probe: Probe, unknown: Answer) -> Iterator[Finding]:
    wanted = 'HTTP 404 with the reason TASK_NOT_FOUND' if probe.interface.binding != 'JSONRPC' else 'the error -32001'
    if unknown.media_type not in ('application/json', 'application/a2a+json'):
        yield _found(
            unknown,
            'content type',
            'fault',
            f'Answers have the media type {unknown.media_type or "of nothing"}.',
            '9.1' if probe.interface.binding == 'JSONRPC' else '11.1',
            'Answer with application/json.',
        )
    if isinstance(unknown.error, TaskNotFoundError):
        yield _found(unknown, 'unknown task', 'ok', f'An unknown task is {wanted}.', '3.3.2')
    else:
        yield _found(
            unknown,
            'unknown task',
            'fault',
            f'GetTask of an unknown task is not {wanted}.',
            '3.3.2',
            f'Answer with {wanted}, also for tasks of other callers.',
        )


async def _bad_params(probe: Probe) -> AsyncGenerator[Finding, None]:
    answer = await probe.ask_wrongly('SendMessage', _message('m'))
    is_rpc = probe.interface.binding == 'JSONRPC'
    is_right = answer.code == -32602 if is_rpc else answer.status == 400
    wanted = 'the error -32602' if is_rpc else 'HTTP 400'
    yield _found(
        answer,
        'bad params',
        'ok' if is_right else 'fault',
        f'SendMessage without a message is {"" if is_right else "not "}{wanted}.',
        '3.3.2',
        '' if is_right else f'Check the params, and answer with {wanted}.',
    )
    if is_rpc:
        answer = await probe.ask_nonsense()
        is_right = answer.code == -32601
        yield _found(
            answer,
            'unknown method',
            'ok' if is_right else 'fault',
            f'An unknown method is {"" if is_right else "not "}the error -32601.',
            '9.5',
            '' if is_right else 'Answer with the error -32601.',
        )


# --- messages -------------------------------------------------------------------------------------------------------


def _message(message_id: str) -> SendParams:
    return SendParams(message=Message(role='user', parts=[Part(text=_TEXT)], message_id=message_id))


async def _messages(probe: Probe, card: AgentCard) -> AsyncGenerator[Finding, None]:
    params = _message(uuid4().hex)
    answer = await probe.ask('SendMessage', params)
    event = _event(answer.result)
    if event is None:
        yield _found(
            answer,
            'message',
            'fault',
            'A message is not answered with a task or a message.',
            '3.1.1',
            'Look at the log of the agent.',
        )
        return
    task = START.followed_by(event).task
    yield _message_finding(answer, task)
    if task is None:
        return
    async for finding in _about_task(probe, answer, task):
        yield finding
    async for finding in _again(probe, params, task):
        yield finding
    async for finding in _stream(probe, card):
        yield finding


def _event(result: object) -> StreamResponse | None:
    try:
        return read_event(result)
    except AnswerUnreadable:
        return None


def _message_finding(answer: Answer, task: Task | None) -> Finding:
    if task is None:
        return _found(answer, 'message', 'ok', 'A message is answered with a message.', '3.1.1')
    state = task['status']['state']
    if state in ('failed', 'rejected'):
        return _found(
            answer,
            'message',
            'warning',
            f'The task of a harmless message is {state}.',
            '3.1.1',
            'Look at the log of the agent.',
        )
    return _found(answer, 'message', 'ok', f'A message is answered with a task, which is {state}.', '3.1.1')


async def _about_task(probe: Probe, answer: Answer, task: Task) -> AsyncGenerator[Finding, None]:
    if not task.get('context_id'):
        yield _found(
            answer,
            'context',
            'fault',
            'The task has no contextId.',
            '3.4.1',
            'Give each task the id of a conversation.',
        )
    if task['status']['state'] not in TERMINAL:
        await probe.ask('CancelTask', CancelParams(id=task['id']))
        return
    canceled = await probe.ask('CancelTask', CancelParams(id=task['id']))
    is_right = canceled.error is not None and (canceled.code == -32002 or canceled.status in (400, 409))
    yield _found(
        canceled,
        'ended task',
        'ok' if is_right else 'fault',
        'An ended task cannot be canceled.' if is_right else 'Canceling an ended task is not the error -32002.',
        '3.1.5',
        '' if is_right else 'Answer with the error TaskNotCancelableError.',
    )


async def _again(probe: Probe, params: SendParams, task: Task) -> AsyncGenerator[Finding, None]:
    repeated = await probe.ask('SendMessage', params)
    event = _event(repeated.result)
    second = None if event is None else START.followed_by(event).task
    if second is not None and second['id'] != task['id']:
        await _cancel(probe, second)
        yield _found(
            repeated,
            'repeated message',
            'hint',
            'A message with the same messageId runs twice, which A2A allows.',
            '3.1.1',
            'Return the first task, so that clients may repeat a message whose answer was lost.',
        )
    else:
        yield _found(repeated, 'repeated message', 'ok', 'A message with the same messageId runs once.', '3.1.1')


async def _cancel(probe: Probe, task: Task) -> None:
    if task['status']['state'] not in TERMINAL:
        await probe.ask('CancelTask', CancelParams(id=task['id']))


# --- streams --------------------------------------------------------------------------------------------------------


async def _stream(probe: Probe, card: AgentCard) -> AsyncGenerator[Finding, None]:
    if not card['capabilities'].get('streaming'):
        yield Finding(step='stream', level='not checked', text='The card declares no streaming.', section='3.1.2')
        return
    answer = await probe.ask('SendStreamingMessage', _message(uuid4().hex), streams=True)
    events = [event for received in answer.events if (event := _event(_result(received))) is not None]
    if not events:
        yield _found(
            answer,
            'stream',
            'fault',
            'Streaming is declared, and SendStreamingMessage is not answered with events.',
            '3.1.2',
            'Serve streams as text/event-stream, or set capabilities.streaming to false.',
        )
        return
    update = START
    for event in events:
        update = update.followed_by(event)
    if update.task is not None:
        await _cancel(probe, update.task)
    yield _found(answer, 'stream', 'ok', f'A message is answered with a stream of {len(events)} events.', '3.1.2')
    yield _collected(answer, events)
    if not any(received.id for received in answer.events):
        yield _found(
            answer,
            'event ids',
            'hint',
            'Events have no ids, so clients cannot resume a cut stream.',
            '3.1.6',
            'Number the events, and accept the header Last-Event-ID.',
        )


def _result(received: StreamEvent) -> object:
    fields = as_object(received.data)
    return fields.get('result', fields)


def _collected(answer: Answer, events: list[StreamResponse]) -> Finding:
    """Return the finding about a proxy that collects the events, by the times of the server and of the arrivals."""
    times = [time for event in events if (time := _time(event)) is not None]
    lasted = max(times) - min(times) if times else 0.0
    arrived = answer.events[-1].at - answer.events[0].at
    if lasted < _TELLING:
        return _found(
            answer,
            'live stream',
            'not checked',
            'The answer was too quick to tell if a proxy collects events.',
            '3.1.2',
        )
    if arrived < lasted / 10:
        return _found(
            answer,
            'live stream',
            'warning',
            f'The agent sent events for {lasted:.1f} seconds, and all arrived at once. A proxy collects them.',
            '3.1.2',
            'Turn buffering off, such as with proxy_buffering off in nginx.',
        )
    return _found(answer, 'live stream', 'ok', 'Events arrive while the agent works.', '3.1.2')


def _time(event: StreamResponse) -> float | None:
    holder: Any = event.get('task') or event.get('status_update') or {}
    try:
        return datetime.fromisoformat(holder['status']['timestamp']).timestamp()
    except (KeyError, TypeError, ValueError):
        return None


# --- agent card -------------------------------------------------------------------------------------------------------
# The place, the content, and the URLs of the interfaces.

_KNOWN = (('JSONRPC', '1.0'), ('HTTP+JSON', '1.0'), ('JSONRPC', '0.3'), ('GRPC', '1.0'))


async def examined_card(connections: Connections, url: str) -> AsyncGenerator[Finding | tuple[AgentCard, str], None]:
    """Yield the findings about the card, and at the end a valid card with the URL of the card."""
    cards = RemoteCards(connections, url)
    try:
        card, place = await cards.get()
    except (A2AError, RemoteError) as error:
        yield Finding(
            step='card',
            level='fault',
            text='There is no agent card that clients can use.',
            section='8.2',
            sent=f'GET {shown(url)}',
            came=str(error),
            advice='Serve the card as JSON at /.well-known/agent-card.json below the URL of the agent.',
        )
        return
    valid = Finding(
        step='card',
        level='ok',
        text=f'The card of {card["name"][:100]} is valid.',
        section='8.2',
        sent=f'GET {shown(place)}',
    )
    yield valid
    if place.endswith(WELL_KNOWN[1]):
        yield replace(
            valid,
            level='warning',
            text='The card is only at the path of older versions of A2A.',
            advice='Serve the card at /.well-known/agent-card.json too.',
        )
    yield card, place


def interfaces(card: AgentCard, place: str, trusted_origins: Collection[str] = ()) -> list[Interface | Finding]:
    """Return the interfaces to call, and a finding for each interface without a usable URL or binding."""
    found = [_interface(card, entry, place, trusted_origins) for entry in card.get('supported_interfaces', ())]
    if any(isinstance(interface, Interface) or interface.level != 'not checked' for interface in found):
        return found
    advice = 'List the URL, the binding and the version of each interface in supportedInterfaces.'
    text = 'The card names no interface that clients can call.' if found else 'The card names no interface.'
    return [*found, Finding(step='interface', level='fault', text=text, section='4.4.6', advice=advice)]


def _interface(
    card: AgentCard, entry: AgentInterface, place: str, trusted_origins: Collection[str]
) -> Interface | Finding:
    binding, version = entry['protocol_binding'], entry.get('protocol_version', '')[:3]
    name = f'{binding} {version}'
    version = '0.3' if version == '0.2' else version
    if (binding, version) not in _KNOWN:
        return Finding(step='interface', level='not checked', text=f'{name[:40]} is a binding that is not examined.')
    alone: AgentCard = {**card, 'supported_interfaces': [entry]}
    fault = Finding(
        step='interface',
        level='fault',
        text=f'The interface {name} has another origin than the card. Clients refuse to call the interface.',
        section='8.2',
        sent=f'GET {shown(place)}',
        advice='Set the public URL of the agent, such as url= of to_a2a.',
    )
    try:
        chosen = choose(alone, place, binding=binding, version=version, trusted_origins=trusted_origins)
    except CardRefused as error:
        return replace(fault, came=str(error))
    if binding == 'GRPC':
        return Finding(step='interface', level='hint', text=f'{name} can be called, and is not examined.')
    if chosen.url != entry['url'] and not is_local(httpx2.URL(place).host):
        text = f'The interface {name} has an address that only the machine of the agent can reach.'
        return replace(fault, text=text, came=shown(entry['url']))
    return chosen
