"""What a hostile agent writes to the terminal of a command: no control characters, and none that turn text around."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from starlette.responses import Response

from pydantic_ai_a2a.commands.cli import main
from pydantic_ai_a2a.wire.extensions.pending_calls_extension import MEDIA_TYPE

from ..client.canned import CARD, TASK, Canned, refusal, result, served, stream
from .command import command, finish, in_store, in_terminal

EVIL = '\x1b]0;x\x07\x1b[2J\x9b2J\x7f\u061c\u200e\u202e\u2066\u206a'
HARM = re.compile('\x1b]0|\x1b\\[2J|[\x07\x7f\x9b\u061c\u200e\u202e\u2066\u206a]')
"""The Markdown of `send` uses other control sequences."""
INTERFACE = CARD['supportedInterfaces'][0]


def status(state: str, *parts: Any, **metadata: Any) -> dict[str, Any]:
    message = {'messageId': EVIL, 'role': 'ROLE_AGENT', 'parts': [*parts], 'metadata': metadata}
    return {**TASK, 'id': EVIL, 'contextId': EVIL, 'status': {'state': state, 'message': message}}


def asks(*, schema: Any = None, **fields: Any) -> Response:
    """A question at the prompt."""
    call = {'id': EVIL, 'kind': 'question', 'tool': EVIL, 'text': EVIL, 'args': {EVIL: EVIL}, **fields}
    if schema is not None:
        call['answerSchema'] = {'oneOf': [{'properties': {'result': schema}}]}
    data = {'data': {'pending': [call]}, 'mediaType': MEDIA_TYPE}
    return stream({'task': status('TASK_STATE_INPUT_REQUIRED', {'text': EVIL}, data)})


def signs_in() -> Response:
    data: Any = {'data': {'pending': [], 'authorization': {'url': EVIL}}, 'mediaType': MEDIA_TYPE}
    return stream({'task': status('TASK_STATE_AUTH_REQUIRED', {'text': EVIL}, data)})


def answers() -> Response:
    parts = [{'text': EVIL}, {'data': {EVIL: EVIL}}, {'url': EVIL, 'filename': EVIL, 'mediaType': EVIL}]
    return stream({'task': {**TASK, 'id': EVIL, 'artifacts': [{'artifactId': EVIL, 'name': EVIL, 'parts': parts}]}})


def page() -> Response:
    task = {**TASK, 'id': EVIL, 'contextId': EVIL, 'status': {**TASK['status'], 'timestamp': '2026-01-01T00:00:00Z'}}
    return result({'tasks': [task], 'nextPageToken': ''})


def html(status: int = 200) -> Response:
    return Response('<p>', status, {'content-type': 'text/\x9b2J'})


CARDS: dict[str, Any] = {
    'texts': {'name': EVIL, 'version': EVIL, 'skills': [{'id': EVIL, 'name': EVIL, 'description': EVIL}]},
    'key': {'securitySchemes': {EVIL: 5}},
    'key of a scheme': {'securitySchemes': {EVIL: {'apiKeySecurityScheme': {'name': 'x', 'location': 'header'}}}},
    'extension': {'capabilities': {'extensions': [{'uri': EVIL}]}},
    'binding': {'supportedInterfaces': [{**INTERFACE, 'protocolBinding': EVIL, 'protocolVersion': EVIL}]},
    'url': {'supportedInterfaces': [{**INTERFACE, 'url': f'http://x/{EVIL}'}]},
}


def shown(monkeypatch: pytest.MonkeyPatch, url: str, typed: str, name: str, *arguments: str) -> str:
    """What a command writes to a terminal."""
    with in_terminal(monkeypatch, typed) as terminal, pytest.raises(SystemExit):
        main((name, url, *arguments))
    terminal.close()
    return terminal.raw


@pytest.mark.parametrize('arguments', [('card',), ('doctor',), ('send', 'hello', '--debug')])
@pytest.mark.parametrize('name', CARDS)
def test_hostile_card_writes_no_control_characters(
    name: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    canned = Canned(answers())
    with served(canned) as server:
        canned.card = {**canned.card, **CARDS[name]}
        assert not HARM.search(shown(monkeypatch, server.url, '', *arguments))


@pytest.mark.parametrize(
    ('answer', 'arguments', 'typed'),
    [
        (answers, ('send', 'hello'), ''),
        (answers, ('send', 'hello', '--json'), ''),
        (answers, ('send', 'hello', '--jsonl'), ''),
        (lambda: result(status('TASK_STATE_FAILED', {'text': EVIL})), ('watch', EVIL), ''),
        (lambda: stream({'task': status('TASK_STATE_FAILED', {'text': EVIL}, correlationId=EVIL)}), ('send', 'x'), ''),
        (lambda: asks(schema={'type': EVIL}), ('send', 'hello'), '5\n'),
        (lambda: asks(schema={'type': 'string', 'enum': [EVIL]}), ('send', 'hello'), 'x\n'),
        (lambda: asks(answerSchema={'type': 5, EVIL: 5}), ('send', 'hello'), '5\n'),
        (lambda: asks(answerSchema={'properties': {EVIL: {'type': 5}}}), ('send', 'hello'), '5\n'),
        (lambda: asks(kind='approval'), ('send', 'hello'), 'n\nx\n'),
        (signs_in, ('send', 'hello'), 'n\n'),
        (page, ('tasks',), ''),
        (lambda: refusal(-32000, EVIL), ('send', 'hello'), ''),
        (lambda: refusal(-32000, EVIL), ('send', 'hello', '--debug'), ''),
        (lambda: refusal(-32000, EVIL), ('tasks',), ''),
        (lambda: refusal(-32000, EVIL), ('cancel', EVIL), ''),
        (lambda: refusal(-32000, EVIL), ('doctor',), ''),
        (html, ('send', 'hello'), ''),
        (html, ('cancel', 't'), ''),
    ],
)
def test_hostile_answer_writes_no_control_characters(
    answer: Callable[[], Response], arguments: tuple[str, ...], typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(Canned(answer())) as server:
        text = shown(monkeypatch, server.url, typed, *arguments)
    assert not HARM.search(text)
    assert ']0;x' in text or answer is html


def test_control_characters_in_log_messages_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    command(capsys, 'card', 'http://127.0.0.1:1')
    assert logging.lastResort is not None
    text = logging.lastResort.format(logging.makeLogRecord({'msg': 'The task %s', 'args': (EVIL,)}))
    assert text.startswith('The task \\u001b]0;x')
    assert not HARM.search(text)


def test_control_characters_in_exported_text_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    context = '\x9b2J\u202e'
    in_store(lambda backend: finish(backend, 'a', context=context))
    exported = command(capsys, 'export', 'joker:app', '--caller', 'ann')
    assert not HARM.search(exported.out)
    assert exported.lines[0]['task']['contextId'] == context
