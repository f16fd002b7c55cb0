"""What a hostile agent writes to the terminal of a command: no control characters, and none that turn text around."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from starlette.responses import Response

from pydantic_ai_a2a.wire.extensions.pending_calls_extension import MEDIA_TYPE

from ..client.canned_agent import (
    CARD,
    TASK,
    CannedAgent,
    error_response,
    list_response,
    result_response,
    serve_canned,
    stream_response,
)
from .command import add_completed_task, run_at_terminal, run_command, with_store

CONTROL_TEXT = '\x1b]0;x\x07\x1b[2J\x9b2J\x7f\u061c\u200e\u202e\u2066\u206a'
UNESCAPED = re.compile('\x1b]0|\x1b\\[2J|[\x07\x7f\x9b\u061c\u200e\u202e\u2066\u206a]')
"""The Markdown of `send` uses other control sequences."""
INTERFACE = CARD['supportedInterfaces'][0]


def status(state: str, *parts: Any, **metadata: Any) -> dict[str, Any]:
    message = {'messageId': CONTROL_TEXT, 'role': 'ROLE_AGENT', 'parts': [*parts], 'metadata': metadata}
    return {**TASK, 'id': CONTROL_TEXT, 'contextId': CONTROL_TEXT, 'status': {'state': state, 'message': message}}


def question_response(*, schema: Any = None, **fields: Any) -> Response:
    """A question at the prompt."""
    return stream_response({'task': waiting_task(schema=schema, **fields)})


def waiting_task(*, schema: Any = None, **fields: Any) -> dict[str, Any]:
    call = {
        'id': CONTROL_TEXT,
        'kind': 'question',
        'tool': CONTROL_TEXT,
        'text': CONTROL_TEXT,
        'args': {CONTROL_TEXT: CONTROL_TEXT},
        **fields,
    }
    if schema is not None:
        call['answerSchema'] = {'oneOf': [{'properties': {'result': schema}}]}
    data = {'data': {'pending': [call]}, 'mediaType': MEDIA_TYPE}
    return status('TASK_STATE_INPUT_REQUIRED', {'text': CONTROL_TEXT}, data)


def sign_in_response() -> Response:
    data: Any = {'data': {'pending': [], 'authorization': {'url': CONTROL_TEXT}}, 'mediaType': MEDIA_TYPE}
    return stream_response({'task': status('TASK_STATE_AUTH_REQUIRED', {'text': CONTROL_TEXT}, data)})


def answer_response() -> Response:
    parts = [
        {'text': CONTROL_TEXT},
        {'data': {CONTROL_TEXT: CONTROL_TEXT}},
        {'url': CONTROL_TEXT, 'filename': CONTROL_TEXT, 'mediaType': CONTROL_TEXT},
    ]
    return stream_response(
        {
            'task': {
                **TASK,
                'id': CONTROL_TEXT,
                'artifacts': [{'artifactId': CONTROL_TEXT, 'name': CONTROL_TEXT, 'parts': parts}],
            }
        }
    )


def task_list_response() -> Response:
    task = {
        **TASK,
        'id': CONTROL_TEXT,
        'contextId': CONTROL_TEXT,
        'status': {**TASK['status'], 'timestamp': '2026-01-01T00:00:00Z'},
    }
    return list_response(task)


def inbox_response() -> Response:
    return list_response(waiting_task())


def html_response(status: int = 200) -> Response:
    return Response('<p>', status, {'content-type': 'text/\x9b2J'})


CARDS: dict[str, Any] = {
    'texts': {
        'name': CONTROL_TEXT,
        'version': CONTROL_TEXT,
        'skills': [{'id': CONTROL_TEXT, 'name': CONTROL_TEXT, 'description': CONTROL_TEXT}],
    },
    'key': {'securitySchemes': {CONTROL_TEXT: 5}},
    'key of a scheme': {
        'securitySchemes': {CONTROL_TEXT: {'apiKeySecurityScheme': {'name': 'x', 'location': 'header'}}}
    },
    'extension': {'capabilities': {'extensions': [{'uri': CONTROL_TEXT}]}},
    'binding': {
        'supportedInterfaces': [{**INTERFACE, 'protocolBinding': CONTROL_TEXT, 'protocolVersion': CONTROL_TEXT}]
    },
    'url': {'supportedInterfaces': [{**INTERFACE, 'url': f'http://x/{CONTROL_TEXT}'}]},
}


@pytest.mark.parametrize('arguments', [('card',), ('doctor',), ('send', 'hello', '--debug')])
@pytest.mark.parametrize('name', CARDS)
def test_hostile_card_writes_no_control_characters(
    name: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    canned = CannedAgent(answer_response())
    with serve_canned(canned) as server:
        canned.card = {**canned.card, **CARDS[name]}
        _, terminal = run_at_terminal(monkeypatch, arguments[0], server.url, *arguments[1:])
    assert not UNESCAPED.search(terminal.raw)


@pytest.mark.parametrize(
    ('answer', 'arguments', 'typed'),
    [
        (answer_response, ('send', 'hello'), ''),
        (answer_response, ('send', 'hello', '--json'), ''),
        (answer_response, ('send', 'hello', '--jsonl'), ''),
        (lambda: result_response(status('TASK_STATE_FAILED', {'text': CONTROL_TEXT})), ('watch', CONTROL_TEXT), ''),
        (
            lambda: stream_response(
                {'task': status('TASK_STATE_FAILED', {'text': CONTROL_TEXT}, correlationId=CONTROL_TEXT)}
            ),
            ('send', 'x'),
            '',
        ),
        (lambda: question_response(schema={'type': CONTROL_TEXT}), ('send', 'hello'), '5\n'),
        (lambda: question_response(schema={'type': 'string', 'enum': [CONTROL_TEXT]}), ('send', 'hello'), 'x\n'),
        (lambda: question_response(answerSchema={'type': 5, CONTROL_TEXT: 5}), ('send', 'hello'), '5\n'),
        (lambda: question_response(answerSchema={'properties': {CONTROL_TEXT: {'type': 5}}}), ('send', 'hello'), '5\n'),
        (lambda: question_response(kind='approval', description=CONTROL_TEXT), ('send', 'hello'), 'n\nx\n'),
        (sign_in_response, ('send', 'hello'), 'n\n'),
        (task_list_response, ('tasks',), ''),
        (inbox_response, ('inbox',), ''),
        (inbox_response, ('inbox', '--json'), ''),
        (lambda: error_response(-32000, CONTROL_TEXT), ('send', 'hello'), ''),
        (lambda: error_response(-32000, CONTROL_TEXT), ('send', 'hello', '--debug'), ''),
        (lambda: error_response(-32000, CONTROL_TEXT), ('tasks',), ''),
        (lambda: error_response(-32000, CONTROL_TEXT), ('cancel', CONTROL_TEXT), ''),
        (lambda: error_response(-32000, CONTROL_TEXT), ('doctor',), ''),
        (html_response, ('send', 'hello'), ''),
        (html_response, ('cancel', 't'), ''),
    ],
)
def test_hostile_answer_writes_no_control_characters(
    answer: Callable[[], Response], arguments: tuple[str, ...], typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_canned(CannedAgent(answer())) as server:
        _, terminal = run_at_terminal(monkeypatch, arguments[0], server.url, *arguments[1:], typed=typed)
    assert not UNESCAPED.search(terminal.raw)
    assert ']0;x' in terminal.raw or answer is html_response


def test_control_characters_in_log_messages_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    run_command(capsys, 'card', 'http://127.0.0.1:1')
    assert logging.lastResort is not None
    text = logging.lastResort.format(logging.makeLogRecord({'msg': 'The task %s', 'args': (CONTROL_TEXT,)}))
    assert text.startswith('The task \\u001b]0;x')
    assert not UNESCAPED.search(text)


def test_control_characters_in_exported_text_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    context = '\x9b2J\u202e'
    with_store(lambda backend: add_completed_task(backend, 'a', context=context))
    exported = run_command(capsys, 'export', 'joker:app', '--caller', 'ann')
    assert not UNESCAPED.search(exported.out)
    assert exported.lines[0]['task']['contextId'] == context


def test_hostile_inbox_on_screen_writes_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('TERM', 'xterm')
    task = waiting_task(kind='approval', description=CONTROL_TEXT)
    task['status']['timestamp'] = CONTROL_TEXT
    steps = [('1 in the inbox', '\r'), ('Approve?', '\x04'), ('1 in the inbox', 'q')]
    with serve_canned(CannedAgent(list_response(task))) as server:
        _, terminal = run_at_terminal(monkeypatch, 'inbox', server.url, '--watch', steps=steps)
    assert not UNESCAPED.search(terminal.raw)
    assert terminal.text.count(']0;x') > 2
