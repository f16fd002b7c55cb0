"""The forms that the end of a streamed text may have: those that a setting chooses, and others, to compare with.

The others are made of the stream of `stream='mark'` by rewriting its events, in JSON-RPC of A2A 1.0 and 0.3.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

from pydantic_ai import Agent
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pydantic_ai_a2a import Results, to_a2a

Event = dict[str, Any]
"""The `result` of a JSON-RPC response in a stream."""
Rewrite = Callable[[Event], Iterator[Event]]


def _artifact(event: Event) -> Event | None:
    """The artifact update in an event, of whichever version."""
    return event.get('artifactUpdate') or (event if event.get('kind') == 'artifact-update' else None)


def _text(update: Event) -> str:
    return ''.join(part['text'] for part in update['artifact']['parts'])


def no_end() -> Rewrite:
    """No update closes the artifact."""

    def rewrite(event: Event) -> Iterator[Event]:
        update = _artifact(event)
        if update is None or not update.get('lastChunk'):
            yield event

    return rewrite


def held_back() -> Rewrite:
    """The last piece is held back, and closes the artifact."""
    held: list[Event] = []

    def rewrite(event: Event) -> Iterator[Event]:
        update = _artifact(event)
        if update is not None and not update.get('lastChunk'):
            yield from [held.pop()] if held else []
            held.append(event)
        elif update is not None:
            last = held.pop()
            _artifact(last)['lastChunk'] = True
            yield last
        else:
            yield event

    return rewrite


def in_status() -> Rewrite:
    """No update closes the artifact, and the message of the final status has the whole text."""
    texts: list[str] = []
    rest = no_end()

    def rewrite(event: Event) -> Iterator[Event]:
        update = _artifact(event)
        if update is not None:
            texts.append(_text(update))
        status = (event.get('statusUpdate') or event).get('status', {})
        if status.get('state') in ('TASK_STATE_COMPLETED', 'completed'):
            old = 'kind' in event
            part = {'kind': 'text', 'text': ''.join(texts)} if old else {'text': ''.join(texts)}
            role = 'agent' if old else 'ROLE_AGENT'
            status['message'] = {'messageId': 'answer', 'role': role, 'parts': [part]}
            if old:
                status['message']['kind'] = 'message'
        yield from rest(event)

    return rewrite


class Rewritten:
    """An app whose event streams are rewritten; each event is one send of the app's, or several at once."""

    def __init__(self, app: ASGIApp, make: Callable[[], Rewrite]) -> None:
        self._app = app
        self._make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rewrite, streams = self._make(), False

        async def sending(message: Message) -> None:
            nonlocal streams
            if message['type'] == 'http.response.start':
                streams = (b'content-type', b'text/event-stream') in message['headers']
            elif streams and message.get('body'):
                message = {**message, 'body': b''.join(map(partial(_frame, rewrite), message['body'].split(b'\n\n')))}
            await send(message)

        await self._app(scope, receive, sending)


def _frame(rewrite: Rewrite, frame: bytes) -> bytes:
    head, data, body = frame.partition(b'data: ')
    if not data:
        return frame and frame + b'\n\n'
    answer = json.loads(body)
    events = rewrite(deepcopy(answer['result']))
    return b''.join(head + data + json.dumps({**answer, 'result': event}).encode() + b'\n\n' for event in events)


def _served(results: Results, rewrite: Callable[[], Rewrite] | None = None) -> Callable[[Agent[Any, Any]], ASGIApp]:
    def make(agent: Agent[Any, Any]) -> ASGIApp:
        app = to_a2a(agent, results=results)
        return app if rewrite is None else Rewritten(app, rewrite)

    return make


FORMS = {
    'replace': _served(Results(stream='replace')),
    'mark': _served(Results(stream='mark')),
    'whole': _served(Results(stream='whole')),
    'last piece held back': _served(Results(stream='mark'), held_back),
    'no end': _served(Results(stream='mark'), no_end),
    'text in the final status': _served(Results(stream='mark'), in_status),
}
"""How to serve an agent in each form, by its name in the table: the first three are values of `Results.stream`."""
