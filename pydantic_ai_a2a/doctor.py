"""Examines a remote agent as a client meets the agent, and names violations of the specification.

The URL of an agent comes in. Findings go out, as soon as each step is done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import uuid4

import httpx2
from pydantic_core import to_json

from .client.answer_limits import read_json
from .client.cards import WELL_KNOWN, RemoteCards
from .client.connections import Connections
from .client.event_reader import EventReader
from .client.interfaces import Interface, choose, is_local, spoken
from .client.transport import Request, Transport
from .client.updates import START
from .client.urls import shown
from .errors import (
    A2AError,
    CardRefused,
    MethodNotFoundError,
    RemoteError,
    RemoteProtocolError,
    TaskNotFoundError,
)
from .protocol.codec import Params
from .protocol.lenient_reading import AnswerUnreadable
from .protocol.operations import OPERATIONS
from .protocol.received_tasks import read_event
from .protocol.value_count import count_values
from .types import (
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

Level: TypeAlias = Literal['ok', 'hint', 'warning', 'fault', 'not checked']
"""`ok`; `hint`, allowed but worth to know; `warning`, some clients will fail; `fault`, against the specification."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of a step."""

    step: str
    level: Level
    text: str
    """The result in words."""
    section: str = ''
    """Section of the A2A specification."""
    sent: str = ''
    """The request."""
    came: str = ''
    """The answer."""
    advice: str = ''
    """The necessary change; empty for a good result."""


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
        try:
            card, place = await RemoteCards(connections, url).get()
        except (A2AError, RemoteError) as error:
            yield _no_card(url, error)
            return
        for finding in _about_card(card, place):
            yield finding
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


@dataclass(frozen=True)
class _ExaminationStep:
    """A step of the examination of an interface."""

    name: str
    section: str
    answer: HttpAnswer

    def ok(self, text: str) -> Finding:
        return self.found('ok', text)

    def fault(self, text: str, advice: str) -> Finding:
        return self.found('fault', text, advice)

    def found(self, level: Level, text: str, advice: str = '') -> Finding:
        sent, came = self.answer.sent, self.answer.came
        return Finding(
            step=self.name, level=level, text=text, section=self.section, sent=sent, came=came, advice=advice
        )


# --- errors and security --------------------------------------------------------------------------------------------


def _served(probe: Probe, unknown: HttpAnswer) -> Finding:
    step = _ExaminationStep('interface', '8.3', unknown)
    if not unknown.status:
        return step.fault(
            f'{probe.name} is declared and cannot be reached.',
            'Serve the interface at the URL on the card, or take the interface from the card.',
        )
    is_absent = unknown.status in (404, 405, 501) and unknown.code is None
    if isinstance(unknown.error, MethodNotFoundError) or is_absent:
        return step.fault(
            f'{probe.name} is declared and not served.',
            'Serve this version and binding, or take them from the card.',
        )
    return step.ok(f'{probe.name} is served.')


async def _security(probe: Probe, card: AgentCard, with_credentials: HttpAnswer) -> Finding:
    declared = bool(card.get('security_schemes')) and bool(card.get('security_requirements'))
    anonymous = probe.without_credentials()
    try:
        answer = await anonymous.ask('GetTask', GetParams(id=uuid4().hex))
    finally:
        await anonymous.close()
    enforced = answer.status in (401, 403)
    declares, asks = _ExaminationStep('security', '7.3', answer), _ExaminationStep('security', '7.4', answer)
    if declared and not enforced:
        return asks.fault(
            'The card asks for credentials, and requests without credentials are served.',
            'Refuse requests without credentials with HTTP 401.',
        )
    if enforced and not declared:
        return declares.fault(
            'Requests without credentials are refused, and the card does not say so.',
            'Declare securitySchemes and securityRequirements on the card.',
        )
    if not enforced:
        return declares.found('hint', 'Everybody may call the agent: it asks for no credentials.')
    if with_credentials.status in (401, 403):
        text = 'The agent has refused the credentials, or got none.'
        advice = 'Give credentials with --token-env or --header.'
        return replace(asks, answer=with_credentials).found('warning', text, advice)
    return asks.ok('Requests without credentials are refused, as the card says.')


def _errors(probe: Probe, unknown: HttpAnswer) -> Iterator[Finding]:
    is_rpc = probe.interface.binding == 'JSONRPC'
    if unknown.media_type not in ('application/json', 'application/a2a+json'):
        yield _ExaminationStep('content type', '9.1' if is_rpc else '11.1', unknown).fault(
            f'Answers have the media type {unknown.media_type or "of nothing"}.', 'HttpAnswer with application/json.'
        )
    wanted = 'the error -32001' if is_rpc else 'HTTP 404 with the reason TASK_NOT_FOUND'
    step = _ExaminationStep('unknown task', '3.3.2', unknown)
    if isinstance(unknown.error, TaskNotFoundError):
        yield step.ok(f'An unknown task is {wanted}.')
    else:
        advice = f'Answer with {wanted}, also for tasks of other callers.'
        yield step.fault(f'GetTask of an unknown task is not {wanted}.', advice)


async def _bad_params(probe: Probe) -> AsyncGenerator[Finding, None]:
    answer = await probe.ask_wrongly('SendMessage', _message('m'))
    is_rpc = probe.interface.binding == 'JSONRPC'
    wanted = 'the error -32602' if is_rpc else 'HTTP 400'
    step = _ExaminationStep('bad params', '3.3.2', answer)
    if answer.code == -32602 if is_rpc else answer.status == 400:
        yield step.ok(f'SendMessage without a message is {wanted}.')
    else:
        advice = f'Check the params, and answer with {wanted}.'
        yield step.fault(f'SendMessage without a message is not {wanted}.', advice)
    if is_rpc:
        step = _ExaminationStep('unknown method', '9.5', await probe.ask_nonsense())
        if step.answer.code == -32601:
            yield step.ok('An unknown method is the error -32601.')
        else:
            yield step.fault('An unknown method is not the error -32601.', 'HttpAnswer with the error -32601.')


# --- messages -------------------------------------------------------------------------------------------------------


def _message(message_id: str) -> SendParams:
    return SendParams(message=Message(role='user', parts=[Part(text=_TEXT)], message_id=message_id))


async def _messages(probe: Probe, card: AgentCard) -> AsyncGenerator[Finding, None]:
    params = _message(uuid4().hex)
    step = _ExaminationStep('message', '3.1.1', await probe.ask('SendMessage', params))
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


def _event(result: object) -> StreamResponse | None:
    try:
        return read_event(result)
    except AnswerUnreadable:
        return None


async def _about_task(probe: Probe, answer: HttpAnswer, task: Task) -> AsyncGenerator[Finding, None]:
    if not task.get('context_id'):
        yield _ExaminationStep('context', '3.4.1', answer).fault(
            'The task has no contextId.', 'Give each task the id of a conversation.'
        )
    canceled = await probe.ask('CancelTask', CancelParams(id=task['id']))
    if task['status']['state'] not in TERMINAL:
        return
    step = _ExaminationStep('ended task', '3.1.5', canceled)
    if canceled.error is not None and (canceled.code == -32002 or canceled.status in (400, 409)):
        yield step.ok('An ended task cannot be canceled.')
    else:
        yield step.fault(
            'Canceling an ended task is not the error -32002.', 'HttpAnswer with the error TaskNotCancelableError.'
        )


async def _again(probe: Probe, params: SendParams, task: Task) -> Finding:
    step = _ExaminationStep('repeated message', '3.1.1', await probe.ask('SendMessage', params))
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


# --- streams --------------------------------------------------------------------------------------------------------


async def _stream(probe: Probe, card: AgentCard) -> AsyncGenerator[Finding, None]:
    if not card['capabilities'].get('streaming'):
        yield Finding(step='stream', level='not checked', text='The card declares no streaming.', section='3.1.2')
        return
    answer = await probe.ask('SendStreamingMessage', _message(uuid4().hex), streams=True)
    step = _ExaminationStep('stream', '3.1.2', answer)
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
    yield _collected(answer, events)
    if not any(received.id for received in answer.events):
        yield _ExaminationStep('event ids', '3.1.6', answer).found(
            'hint',
            'Events have no ids, so clients cannot resume a cut stream.',
            'Number the events, and accept the header Last-Event-ID.',
        )


def _result(received: StreamEvent) -> object:
    fields = as_object(received.data)
    return fields.get('result', fields)


def _collected(answer: HttpAnswer, events: list[StreamResponse]) -> Finding:
    """Return the finding about a proxy that collects the events, by the times of the server and of the arrivals."""
    step = _ExaminationStep('live stream', '3.1.2', answer)
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


# --- agent card -------------------------------------------------------------------------------------------------------
# The place, the content, and the URLs of the interfaces.


def _no_card(url: str, error: A2AError | RemoteError) -> Finding:
    return Finding(
        step='card',
        level='fault',
        text='There is no agent card that clients can use.',
        section='8.2',
        sent=f'GET {shown(url)}',
        came=str(error),
        advice='Serve the card as JSON at /.well-known/agent-card.json below the URL of the agent.',
    )


def _about_card(card: AgentCard, place: str) -> Iterator[Finding]:
    text, sent = f'The card of {card["name"][:100]} is valid.', f'GET {shown(place)}'
    valid = Finding(step='card', level='ok', text=text, section='8.2', sent=sent)
    yield valid
    if place.endswith(WELL_KNOWN[1]):
        yield replace(
            valid,
            level='warning',
            text='The card is only at the path of older versions of A2A.',
            advice='Serve the card at /.well-known/agent-card.json too.',
        )


_MOST_INTERFACES = 20


def interfaces(card: AgentCard, place: str, trusted_origins: Collection[str] = ()) -> list[Interface | Finding]:
    """Return the interfaces to call, and a finding for each interface without a usable URL or binding."""
    entries = card.get('supported_interfaces', [])
    found = [_interface(card, entry, place, trusted_origins) for entry in entries[:_MOST_INTERFACES]]
    if more := len(entries) - len(found):
        text = f'The card names {more} more interfaces, which are not examined.'
        found.append(Finding(step='interface', level='not checked', text=text, section='4.4.6'))
    if any(isinstance(interface, Interface) or interface.level != 'not checked' for interface in found):
        return found
    advice = 'List the URL, the binding and the version of each interface in supportedInterfaces.'
    text = 'The card names no interface that clients can call.' if found else 'The card names no interface.'
    return [*found, Finding(step='interface', level='fault', text=text, section='4.4.6', advice=advice)]


def _interface(
    card: AgentCard, entry: AgentInterface, place: str, trusted_origins: Collection[str]
) -> Interface | Finding:
    name = f'{entry["protocol_binding"]} {entry.get("protocol_version", "")[:3]}'
    if spoken(entry, place) is None:
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
        chosen = choose(alone, place, trusted_origins=trusted_origins)
    except CardRefused as error:
        return replace(fault, came=str(error))
    if chosen.binding == 'GRPC':
        return Finding(step='interface', level='hint', text=f'{name} can be called, and is not examined.')
    if chosen.url != entry['url'] and not is_local(httpx2.URL(place).host):
        text = f'The interface {name} has an address that only the machine of the agent can reach.'
        return replace(fault, text=text, came=shown(entry['url']))
    return chosen


# --- requests to an interface of an agent, with the unchanged answers -------------------------------------------------

_LONGEST = 10_000_000
"""Longest accepted answer, in bytes."""
_MOST_VALUES = 100_000
"""Most JSON values of a stream. The answer is one short sentence."""
_SHOWN = 200


@dataclass(frozen=True, kw_only=True)
class StreamEvent:
    """An event of a stream."""

    at: float
    """Time of the arrival, in seconds."""
    id: str
    data: Any
    """The parsed data; None for broken JSON."""


@dataclass(kw_only=True)
class HttpAnswer:
    """The answer to a request."""

    sent: str
    status: int = 0
    """HTTP status; 0 without an answer."""
    media_type: str = ''
    result: Any = None
    """The result of an accepted request."""
    error: A2AError | RemoteError | None = None
    """The refusal, or the reason why there is no answer."""
    code: int | None = None
    """The JSON-RPC error code, or the HTTP status of a refusal over HTTP+JSON."""
    events: list[StreamEvent] = field(default_factory=list[StreamEvent])

    @property
    def came(self) -> str:
        """The answer in a few words."""
        if not self.status:
            return str(self.error)
        refusal = '' if self.error is None else f', {self.error}'
        return f'HTTP {self.status} {self.media_type}{refusal}'[:_SHOWN]


class Probe:
    """Sends requests to an interface.

    Args:
        interface: The interface.
        connections: Connections with the credentials of the caller.
    """

    def __init__(self, interface: Interface, connections: Connections) -> None:
        self.interface = interface
        self._connections = connections
        self._transport = Transport(connections, interface)

    @property
    def name(self) -> str:
        """The binding and the version."""
        return f'{self.interface.binding} {self.interface.version}'

    def without_credentials(self) -> Probe:
        """Return a probe of the same interface, without credentials."""
        return Probe(self.interface, Connections(timeout=self._connections.timeout))

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def ask(self, name: str, params: Params, *, streams: bool = False) -> HttpAnswer:
        """Perform an operation."""
        request = self._transport.request(self._transport.codec, OPERATIONS[name], params)
        return await self._send(request, name, streams=streams)

    async def ask_wrongly(self, name: str, params: Params) -> HttpAnswer:
        """Perform an operation with an empty object as params, to be refused by every agent."""
        request = self._transport.request(self._transport.codec, OPERATIONS[name], params)
        body: dict[str, Any] = {}
        if self.interface.binding == 'JSONRPC':
            body = {'jsonrpc': '2.0', 'id': 1, 'method': self._transport.codec.method(OPERATIONS[name]), 'params': {}}
        return await self._send(request._replace(content=to_json(body)), f'{name} with empty params')

    async def ask_nonsense(self) -> HttpAnswer:
        """Call an unknown method, over JSON-RPC."""
        body = to_json({'jsonrpc': '2.0', 'id': 1, 'method': 'NoSuchMethod', 'params': {}})
        headers = {'content-type': 'application/json', 'a2a-version': self.interface.version}
        return await self._send(Request('POST', self.interface.url, headers, body), 'NoSuchMethod')

    async def _send(self, request: Request, name: str, *, streams: bool = False) -> HttpAnswer:
        answer = HttpAnswer(sent=f'{request.method} {shown(request.url)} ({name})')
        # Some servers close a kept connection after an HTTP 500, perhaps while the next request is on its way.
        headers = {**request.headers, 'connection': 'close', **({'accept': 'text/event-stream'} if streams else {})}
        try:
            async with self._connections.open(*request._replace(headers=headers)) as response:
                answer.status = response.status_code
                answer.media_type = response.headers.get('content-type', '').partition(';')[0].strip().lower()
                if streams and answer.media_type == 'text/event-stream':
                    await _read_events(response, answer, self._connections.timeout)
                    return answer
                body = await self._connections.read(response, _LONGEST)
            answer.code = _code(body)
            answer.result = self._transport.result(response, body)
        except (A2AError, RemoteError) as error:
            answer.error = error
        return answer


async def _read_events(response: httpx2.Response, answer: HttpAnswer, patience: float) -> None:
    """Read a stream until its end, within the bytes and the time of an answer that comes as a whole.

    Raises:
        TimeoutError: The stream takes too long. The context of `open` makes it a `RemoteUnavailable`.
        RemoteProtocolError: The stream has too many bytes or JSON values.
    """
    reader, size, values = EventReader(_LONGEST), 0, 0
    async with asyncio.timeout(2 * patience):
        async for piece in response.aiter_bytes():
            size += len(piece)
            events = [(data, event_id) for data, event_id in reader.read(piece) if data] if size <= _LONGEST else []
            values += sum(count_values(data, _MOST_VALUES) for data, _ in events)
            if size > _LONGEST or values > _MOST_VALUES:
                raise RemoteProtocolError(
                    f'It has more than {_LONGEST} bytes, or more than {_MOST_VALUES} JSON values.'
                )
            answer.events += [
                StreamEvent(at=time.monotonic(), id=event_id.decode(errors='replace'), data=_parsed(data))
                for data, event_id in events
            ]


def _parsed(text: str | bytes) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return None


def _code(body: bytes) -> int | None:
    try:
        code: Any = _parsed(body)['error']['code']
    except (KeyError, TypeError):
        return None
    return code if isinstance(code, int) else None
