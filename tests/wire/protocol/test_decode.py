"""What the codecs of all dialects decode alike."""

from __future__ import annotations

from typing import Any

import pytest

from pydantic_ai_a2a.types import CancelParams, GetParams, ListParams, SubscribeParams

from ...cases import each_case
from .dialect_requests import (
    DIALECTS,
    REQUESTS_0_3,
    REQUESTS_1_0,
    REQUESTS_FASTA2A,
    WAITING_STATES,
    DialectRequests,
    dialect_name,
    rpc,
)

OLDER = [REQUESTS_0_3, REQUESTS_FASTA2A]

every_dialect = pytest.mark.parametrize('requests', DIALECTS, ids=dialect_name)


@every_dialect
def test_null_and_empty_send_fields_count_as_unset(requests: DialectRequests) -> None:
    unset = dict.fromkeys(['raw', 'data', 'file', 'metadata']) | dict.fromkeys(['url', 'filename', 'mediaType'], '')
    fields: dict[str, Any] = {
        'contextId': '',
        'taskId': None,
        'metadata': None,
        'extensions': [],
        'referenceTaskIds': None,
    }
    wishes = ['acceptedOutputModes', 'historyLength', 'returnImmediately', 'blocking']
    hooks = ['taskPushNotificationConfig', 'pushNotificationConfig']
    params: dict[str, Any] = {
        'message': requests.minimal(parts=[{**requests.part('text', ''), **unset}], **fields),
        'configuration': dict.fromkeys([*wishes, *hooks]),
        'metadata': None,
        'tenant': None,
    }

    smallest = requests.sent(message=requests.minimal(parts=[requests.part('text', '')]))
    assert requests.sent(**params) == smallest
    assert smallest.message == {'message_id': 'm', 'role': 'user', 'parts': [{'text': ''}]}
    assert requests.sent(configuration=None) == requests.sent(configuration={}) == requests.sent()


@every_dialect
def test_ids_of_256_characters_are_accepted(requests: DialectRequests) -> None:
    assert requests.message(messageId='é' * 256, contextId='語' * 256, taskId='😀' * 256) == {
        'message_id': 'é' * 256,
        'context_id': '語' * 256,
        'task_id': '😀' * 256,
        'role': 'user',
        'parts': [{'text': 'Hi'}],
    }


@every_dialect
def test_escaped_nul_and_nan_as_text_are_accepted(requests: DialectRequests) -> None:
    text, data = '\\u0000 \\\\u0000 \n\\u0000 "\\u0000', {'x': ['\\u0000', 'NaN', 'Infinity', '-Infinity']}
    parts = [requests.part('text', text), requests.part('data', data)]

    assert requests.message(parts=parts)['parts'] == [{'text': text}, {'data': data}]


@every_dialect
def test_paired_surrogates_are_accepted_as_text(requests: DialectRequests) -> None:
    parts = [requests.part('text', '😀')]

    assert b'\\ud83d\\ude00' in rpc('', parts)
    assert requests.message(parts=parts)['parts'] == [{'text': '😀'}]


@every_dialect
def test_get_and_cancel_params_are_decoded(requests: DialectRequests) -> None:
    get, cancel = requests.method('GetTask'), requests.method('CancelTask')

    assert requests.decoded(get, {'id': 't', 'metadata': {}}) == GetParams(id='t')
    assert requests.decoded(get, {'id': 't', 'historyLength': 3}) == GetParams(id='t', history_length=3)
    assert requests.decoded(cancel, {'id': 't'}) == CancelParams(id='t')
    assert requests.decoded(cancel, {'id': 't', 'metadata': {'why': 1}}) == CancelParams(id='t', metadata={'why': 1})


OLDER_SUBSCRIPTION = SubscribeParams(id='t', also_ends=WAITING_STATES, ended_too=True)


@pytest.mark.parametrize(
    ('requests', 'expected'),
    [
        pytest.param(REQUESTS_1_0, SubscribeParams(id='t'), id='1.0'),
        pytest.param(REQUESTS_0_3, OLDER_SUBSCRIPTION, id='0.3'),
        pytest.param(REQUESTS_FASTA2A, OLDER_SUBSCRIPTION, id='fasta2a'),
    ],
)
def test_only_older_dialects_follow_ended_or_waiting_tasks(
    requests: DialectRequests, expected: SubscribeParams
) -> None:
    assert requests.decoded(requests.method('SubscribeToTask'), {'id': 't'}) == expected


@pytest.mark.parametrize('requests', [REQUESTS_1_0, REQUESTS_FASTA2A], ids=dialect_name)
@each_case('rest', ['', ',"params":null', ',"params":{}', ',"params":{"status":null,"pageSize":null}'])
def test_list_tasks_without_params_is_decoded(requests: DialectRequests, rest: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":1,"method":"{requests.method("ListTasks")}"{rest}}}'

    assert requests.codec.decode(body.encode()).params == ListParams()


@pytest.mark.parametrize('requests', OLDER, ids=dialect_name)
@each_case('length, read', [(0, None), (None, None), (1, 1), (5.0, 5), ('5', 5)])
def test_history_length_zero_means_no_limit_in_older_dialects(
    requests: DialectRequests, length: object, read: int | None
) -> None:
    assert requests.sent(configuration={'historyLength': length}).history_length == read
    params = {'id': 't', 'historyLength': length}
    assert requests.decoded(requests.method('GetTask'), params) == GetParams(id='t', history_length=read)


@pytest.mark.parametrize(
    ('requests', 'default'),
    [pytest.param(REQUESTS_0_3, False, id='0.3'), pytest.param(REQUESTS_FASTA2A, True, id='fasta2a')],
)
def test_blocking_decides_if_older_send_returns_immediately(requests: DialectRequests, default: bool) -> None:
    for unset in (None, {}, {'blocking': None}):
        assert requests.sent(configuration=unset).return_immediately is default
    assert requests.sent(configuration={'blocking': True}).return_immediately is False
    assert requests.sent(configuration={'blocking': False}).return_immediately is True
