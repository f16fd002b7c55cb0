"""How the targets of notifications are stored."""

from __future__ import annotations

import sys

import pytest
from cryptography.fernet import Fernet

from pydantic_ai_a2a.push.registration import Cipher, Unreadable
from pydantic_ai_a2a.types import PushTarget

TARGET = PushTarget(id='c', url='https://example.com/hook', token='token', scheme='Bearer', credentials='credentials')
OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))


@pytest.mark.parametrize('keys', [[], [OLD], [NEW, OLD]])
@pytest.mark.parametrize('target', [TARGET, PushTarget(id='d', url='https://example.com/')])
def test_what_is_written_is_read(keys: list[str], target: PushTarget) -> None:
    cipher = Cipher(keys)
    assert cipher.load(cipher.dump(target)) == target


def test_with_a_key_nothing_of_it_can_be_seen() -> None:
    sealed = Cipher([NEW]).dump(TARGET)
    assert not [word for word in (b'example', b'token', b'Bearer', b'credentials') if word in sealed]


def test_keys_are_rotated() -> None:
    before, with_both, after = Cipher([OLD]), Cipher([NEW, OLD]), Cipher([NEW])
    assert with_both.load(before.dump(TARGET)) == TARGET
    assert after.load(with_both.dump(TARGET)) == TARGET


def test_what_was_stored_before_there_were_keys_is_read() -> None:
    assert Cipher([NEW]).load(Cipher([]).dump(TARGET)) == TARGET


@pytest.mark.parametrize('keys', [[], [NEW]])
def test_what_was_encrypted_with_a_key_that_is_gone_cannot_be_read(keys: list[str]) -> None:
    with pytest.raises(Unreadable, match=r'no key of Push\.keys decrypts the webhook'):
        Cipher(keys).load(Cipher([OLD]).dump(TARGET))


def test_what_is_no_key_is_refused_without_being_told() -> None:
    with pytest.raises(
        ValueError, match=r'^Push\.keys must be keys of cryptography\.fernet\.Fernet\.generate_key\(\)\.$'
    ):
        Cipher(['password'])


def test_no_secret_is_in_what_is_printed_of_a_target() -> None:
    assert repr(TARGET) == "PushTarget(id='c', scheme='Bearer')"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'cryptography.fernet', None)
    with pytest.raises(ImportError, match=r"pip install 'pydantic-ai-a2a\[push\]'"):
        Cipher([NEW])
