"""Choosing the codec by `A2A-Version`, and by the request where it is not there."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pydantic_ai_a2a.errors import InvalidRequestError, VersionNotSupportedError
from pydantic_ai_a2a.wire.protocol.versions import SUPPORTED, CodecChoice, Versions, codec_of, in_dialect_of

from ...cases import each_case

BOTH_VERSIONS = Versions()
choose, before_reading, DEFAULT = BOTH_VERSIONS.choose, BOTH_VERSIONS.before_reading, BOTH_VERSIONS.default
CODECS = {name: codec_of(name) for name in SUPPORTED}

SENT_1_0 = b'{"method":"SendMessage"}'
PART_0_3 = {'kind': 'text', 'text': 'hi'}
PART_1_0 = {'text': 'hi'}


def request(method: object, params: object = None) -> bytes:
    return json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}).encode()


def with_parts(parts: object) -> dict[str, Any]:
    return {'message': {'messageId': 'm', 'role': 'user', 'parts': parts}}


def test_supported_versions_match_the_codecs() -> None:
    assert snapshot(('1.0', '0.3')) == SUPPORTED
    assert tuple(codec.dialect for codec in CODECS.values()) == SUPPORTED == BOTH_VERSIONS.served


@each_case('body', [SENT_1_0, b'{"method":"message/send"}', b'{'])
@pytest.mark.parametrize(
    ('version', 'dialect'),
    [(each, '1.0') for each in ('1.0', '1', '1.0.0', '1.0.3', ' 1.0\t', '01.0', '1.0, 1.0', '1.0,1.0.1', ',1.0,')]
    + [(each, '0.3') for each in ('0.3', '0.3.0', '0.3.26', '0.3, 0.3.0')],
)
def test_version_header_chooses_codec_by_major_and_minor(version: str, dialect: str, body: bytes) -> None:
    assert choose(version, body) == CodecChoice(CODECS[dialect])


@pytest.mark.parametrize('version', [None, '', '  ', ','])
def test_without_version_the_method_chooses_the_codec(version: str | None) -> None:
    assert choose(version, SENT_1_0) == CodecChoice(DEFAULT) == CodecChoice(CODECS['1.0'])
    assert choose(version, request('message/send', with_parts([PART_0_3]))) == CodecChoice(CODECS['0.3'])


@pytest.mark.parametrize(
    'body',
    [b'', b'{', b'42', b'[]', b'\xff', b'{}', request(7), request('nonsense'), request('GetTask', {'id': 'x'})],
)
def test_unrecognized_request_uses_the_default_codec(body: bytes) -> None:
    assert choose(None, body) == CodecChoice(DEFAULT)


@pytest.mark.parametrize('parts', [[PART_0_3, PART_1_0], [PART_1_0]])
def test_message_part_without_kind_chooses_fasta2a(parts: list[object]) -> None:
    assert choose(None, request('message/send', with_parts(parts))).codec.dialect == 'fasta2a'
    assert choose(None, request('message/stream', with_parts(parts))).codec.dialect == 'fasta2a'


@pytest.mark.parametrize('parts', [[PART_0_3, PART_1_0], [PART_1_0], [], 'x'])
@pytest.mark.parametrize('kind', ['message', 'task', '', None, 7])
def test_message_with_kind_chooses_0_3(kind: object, parts: object) -> None:
    params = with_parts(parts)
    params['message']['kind'] = kind
    assert choose(None, request('message/send', params)) == CodecChoice(CODECS['0.3'])


@pytest.mark.parametrize('parts', [[], None, {}, 'x', ['x'], [PART_0_3, 7]])
def test_malformed_message_parts_choose_0_3(parts: object) -> None:
    assert choose(None, request('message/send', with_parts(parts))) == CodecChoice(CODECS['0.3'])


@pytest.mark.parametrize('method', ['tasks/list', 'tasks/pushNotification/set', 'tasks/pushNotification/get'])
def test_fasta2a_only_method_chooses_fasta2a(method: str) -> None:
    assert choose(None, request(method, {'id': 'x'})).codec.dialect == 'fasta2a'


@pytest.mark.parametrize('method', ['tasks/get', 'tasks/cancel', 'tasks/resubscribe', 'no/method', 'message/send'])
@pytest.mark.parametrize('params', [{'id': 'x'}, None, {'message': 'x'}])
def test_request_without_message_uses_dialect_of_its_task(method: str, params: object) -> None:
    choice = choose(None, request(method, params))

    assert choice == CodecChoice(CODECS['0.3'], task_decides=True)
    assert in_dialect_of(choice, 'fasta2a').dialect == 'fasta2a'
    assert in_dialect_of(choice, '0.3') is in_dialect_of(choice, '1.0') is CODECS['0.3']


@pytest.mark.parametrize('method', ['tasks/get', 'tasks/cancel', 'tasks/resubscribe'])
def test_task_request_with_null_id_chooses_fasta2a(method: str) -> None:
    body = json.dumps({'jsonrpc': '2.0', 'id': None, 'method': method, 'params': {'id': 'x'}}).encode()

    assert choose(None, body).codec.dialect == 'fasta2a'
    assert choose('0.3', body) == CodecChoice(CODECS['0.3'])


def test_notification_about_webhooks_is_of_0_3() -> None:
    body = b'{"jsonrpc":"2.0","method":"tasks/pushNotificationConfig/set","params":{"taskId":"x"}}'

    assert choose(None, body) == CodecChoice(CODECS['0.3'], task_decides=True)


def test_version_header_overrides_dialect_of_the_task() -> None:
    choice = choose('0.3', request('tasks/get', {'id': 'x'}))

    assert in_dialect_of(choice, 'fasta2a') is CODECS['0.3']


def test_lone_surrogate_does_not_prevent_codec_choice() -> None:
    body = b'{"method":"message/send","params":{"message":{"parts":[{"kind":"text","text":"\\ud800"}]}}}'

    assert choose(None, body) == CodecChoice(CODECS['0.3'])


@pytest.mark.parametrize(
    'version', ['9.9', '1.1', '2', 'v1.0', '1.', '.1', '1.0.', '1.0-rc1', '1.0.0.0', '-1.0', '١.٠', 'latest', '*']
)
def test_unsupported_version_is_refused(version: str) -> None:
    with pytest.raises(VersionNotSupportedError) as refused:
        choose(version, SENT_1_0)

    assert refused.value.metadata == {'supportedVersions': '1.0, 0.3'}


def test_version_error_names_supported_versions() -> None:
    with pytest.raises(VersionNotSupportedError) as refused:
        choose('9.9', SENT_1_0)

    assert refused.value.message == snapshot("A2A version '9.9' is not supported; use 1.0 or 0.3.")


def test_version_error_echoes_header_shortened_in_ascii() -> None:
    with pytest.raises(VersionNotSupportedError) as refused:
        choose('\x1b\xe9' + 'x' * 10_000, SENT_1_0)

    assert refused.value.message == snapshot(
        "A2A version '\\x1b\\xe9xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' is not supported; use 1.0 or 0.3."
    )


def test_conflicting_versions_in_header_are_refused() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        choose('1.0, 0.3', SENT_1_0)

    assert refused.value.message == snapshot('Invalid request: A2A-Version must name one version')


@pytest.mark.parametrize(
    ('version', 'dialect'),
    [(None, '1.0'), ('', '1.0'), ('1.0', '1.0'), ('0.3.0', '0.3'), ('9.9', '1.0'), ('1.0, 0.3', '1.0')],
)
def test_refusal_before_reading_body_uses_header_version(version: str | None, dialect: str) -> None:
    assert before_reading(version) == CodecChoice(CODECS[dialect])


@given(st.text(), st.binary())
def test_any_request_chooses_codec_or_is_refused(version: str, body: bytes) -> None:
    with suppress(VersionNotSupportedError, InvalidRequestError):
        assert choose(version, body).codec.dialect


# One version only.

NEWER, OLDER = Versions(['1.0']), Versions(('0.3',))
BARE_SEND, OLDER_SEND = request('message/send', with_parts([PART_1_0])), request('message/send', with_parts([PART_0_3]))


@pytest.mark.parametrize(
    ('version', 'body'),
    [
        ('0.3', SENT_1_0),
        (None, OLDER_SEND),
        (None, BARE_SEND),
        (None, request('tasks/list')),
        (None, request('tasks/get', {'id': 'x'})),
        ('', request('no/method')),
    ],
)
def test_1_0_server_refuses_0_3_and_fasta2a(version: str | None, body: bytes) -> None:
    with pytest.raises(VersionNotSupportedError) as refused:
        NEWER.choose(version, body)
    assert refused.value.message == "A2A version '0.3' is not supported; use 1.0."
    assert refused.value.metadata == {'supportedVersions': '1.0'}
    assert NEWER.choose(None, SENT_1_0) == NEWER.choose('1.0', OLDER_SEND) == CodecChoice(CODECS['1.0'])
    assert NEWER.before_reading('0.3') == NEWER.choose(None, b'{') == CodecChoice(CODECS['1.0'])


@pytest.mark.parametrize(('version', 'body'), [('1.0', OLDER_SEND), (None, SENT_1_0), ('', request('ListTasks'))])
def test_server_of_0_3_only_refuses_1_0(version: str | None, body: bytes) -> None:
    with pytest.raises(VersionNotSupportedError) as refused:
        OLDER.choose(version, body)
    assert refused.value.message == "A2A version '1.0' is not supported; use 0.3."
    assert refused.value.metadata == {'supportedVersions': '0.3'}
    for other in (b'', b'{', request(7), request('NoSuchMethod')):  # of no version: refused as what they are
        assert OLDER.choose(None, other) == CodecChoice(CODECS['0.3'])
    assert OLDER.choose(None, BARE_SEND).codec.dialect == 'fasta2a'
    assert OLDER.choose(None, request('tasks/get', {'id': 'x'})) == CodecChoice(CODECS['0.3'], task_decides=True)


@pytest.mark.parametrize('version', [None, '', ' ,', '1.0', '0.3', '9.9'])
def test_server_of_0_3_only_refuses_http_json(version: str | None) -> None:
    with pytest.raises(VersionNotSupportedError, match=r'is not supported; use 0\.3 over JSON-RPC\.$'):
        OLDER.choose_http(version)
    assert OLDER.http is None


@pytest.mark.parametrize(
    ('versions', 'error', 'text'),
    [
        ('1.0', TypeError, r"versions= takes a list of protocol versions, such as \['1\.0'\], not a string\."),
        ([], ValueError, r"versions= is empty\. Name at least one of '1\.0' and '0\.3'\."),
        (['1.0', '1.1'], ValueError, r"versions= takes '1\.0' and '0\.3', not '1\.1'\."),
        ({'0.2'}, ValueError, r"versions= takes '1\.0' and '0\.3', not '0\.2'\."),
    ],
)
def test_invalid_versions_option_is_refused(versions: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Versions(versions)
