"""Choosing the codec by `A2A-Version`."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pydantic_ai_a2a.errors import InvalidRequestError, VersionNotSupportedError
from pydantic_ai_a2a.protocol.versions import CODECS, DEFAULT, SUPPORTED, choose


def test_the_supported_versions_are_those_of_the_codecs() -> None:
    assert snapshot(('1.0',)) == SUPPORTED
    assert tuple(codec.version for codec in CODECS.values()) == SUPPORTED


@pytest.mark.parametrize('version', ['1.0', '1', '1.0.0', '1.0.3', ' 1.0\t', '01.0', '1.0, 1.0', '1.0,1.0.1', ',1.0,'])
def test_a_version_is_compared_by_major_and_minor(version: str) -> None:
    assert choose(version) is CODECS['1.0']


@pytest.mark.parametrize('version', [None, '', '  ', ','])
def test_a_request_without_a_version_is_served_by_the_default_codec(version: str | None) -> None:
    assert choose(version) is DEFAULT is CODECS['1.0']


@pytest.mark.parametrize(
    'version',
    ['9.9', '0.3', '0.3.0', '1.1', '2', 'v1.0', '1.', '.1', '1.0.', '1.0-rc1', '1.0.0.0', '-1.0', '١.٠', 'latest', '*'],
)
def test_a_version_that_no_codec_has_is_refused(version: str) -> None:
    with pytest.raises(VersionNotSupportedError) as refused:
        choose(version)

    assert refused.value.metadata == {'supportedVersions': '1.0'}


def test_the_refusal_names_the_version_and_what_is_supported() -> None:
    with pytest.raises(VersionNotSupportedError) as refused:
        choose('9.9')

    assert refused.value.message == snapshot("A2A version '9.9' is not supported; use 1.0.")


def test_the_refusal_repeats_only_the_beginning_of_what_was_sent_and_in_ascii() -> None:
    with pytest.raises(VersionNotSupportedError) as refused:
        choose('\x1b\xe9' + 'x' * 10_000)

    assert refused.value.message == snapshot(
        "A2A version '\\x1b\\xe9xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' is not supported; use 1.0."
    )


def test_several_versions_at_once_are_refused() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        choose('1.0, 0.3')

    assert refused.value.message == snapshot('Invalid request: A2A-Version must name one version')


@given(st.text())
def test_any_value_chooses_a_codec_or_is_refused(version: str) -> None:
    with suppress(VersionNotSupportedError, InvalidRequestError):
        assert choose(version) in CODECS.values()
