"""`hash-key`: makes keys that callers are known by, and the hashes that they are configured as."""

from __future__ import annotations

from io import StringIO

import pytest

from pydantic_ai_a2a import BearerAuth, hash_key

from .command import command

Capture = pytest.CaptureFixture[str]


def test_a_new_key_comes_with_its_hash(capsys: Capture) -> None:
    keys: set[str] = set()
    for _ in range(2):
        outcome = command(capsys, 'hash-key')
        (key_name, key), (hash_name, hashed) = (line.split() for line in outcome.out.splitlines())
        assert (outcome.code, key_name, hash_name) == (0, 'key:', 'hash:')
        assert (len(key), hashed) == (43, hash_key(key))
        BearerAuth({hashed: 'ann'})
        keys.add(key)
    assert len(keys) == 2


def test_a_key_that_there_is_already_is_hashed(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('sys.stdin', StringIO('the-token-of-ann-1234\n'))
    outcome = command(capsys, 'hash-key', '--stdin')
    assert (outcome.code, outcome.out) == (0, f'{hash_key("the-token-of-ann-1234")}\n')


def test_a_key_that_can_be_guessed_is_refused(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('sys.stdin', StringIO('hunter2\n'))
    outcome = command(capsys, 'hash-key', '--stdin')
    assert outcome.code == 2
    assert 'at least 16 characters' in outcome.err
    assert 'hunter2' not in outcome.err
