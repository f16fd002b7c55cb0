"""Which store a command works on, and whose of what is in it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.commands.stores import owner_of, owner_or_anonymous

from .command import STORE, command, die, in_store

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize('store', [('joker:app',), STORE, ('joker:agent', '--backend', 'sqlite:///agent.db')])
def test_a_store_is_that_of_an_app_or_of_an_agent_or_is_named_by_itself(
    store: tuple[str, ...], capsys: Capture
) -> None:
    in_store(lambda backend: die(backend, 't'))
    assert [line['taskId'] for line in command(capsys, 'dead-letters', 'list', *store, '--json').lines] == ['t']


def test_a_backend_that_wants_to_be_entered_is(capsys: Capture) -> None:
    in_store(lambda backend: die(backend, 't'))
    assert len(command(capsys, 'dead-letters', 'list', 'joker:own', '--json').lines) == 1
    assert sys.modules['joker'].entered == ['in', 'out']


def test_what_is_no_store_is_refused(capsys: Capture, directory: Path) -> None:
    stores = (
        (),
        ('--backend', 'sqlite:///agent.db'),
        ('--namespace', 'joker'),
        ('joker:app', '--namespace', 'joker'),
        ('joker:memory',),
        ('joker:parent',),
        ('--backend', 'sqlite:///mistyped.db', '--namespace', 'joker'),
        ('--backend', 'sqlite://', '--namespace', 'joker'),
        ('--backend', 'memory', '--namespace', 'joker'),
    )
    outcomes = [command(capsys, 'dead-letters', 'list', *store).why for store in stores]
    assert {code for code, _ in outcomes} == {2}
    assert [why.replace(str(directory), '')[:70] for _, why in outcomes] == snapshot(
        [
            'Name the agent: give an app, such as joker:app, or both --backend and ',
            'Name the agent: give an app, such as joker:app, or both --backend and ',
            'Name the agent: give an app, such as joker:app, or both --backend and ',
            '--namespace cannot be combined with an app, which has its own namespac',
            'joker:memory keeps its tasks in the memory of one process, which has t',
            'joker:parent holds 2 apps: name one of them, or its --backend and --na',
            'There is no file /mistyped.db.',
            "'sqlite://' names no file: write 'sqlite:///relative/path.db' or 'sqli",
            "backend must be 'memory', 'sqlite:///agent.db', 'postgresql://host/dat",
        ]
    )


def test_an_owner_is_named_by_its_key_or_by_its_caller_and_tenant() -> None:
    names = (
        (None, None, None),
        ('/', None, None),
        ('acme/ann', None, None),
        (None, 'ann', None),
        (None, 'a/b', 'ac me'),
        (None, None, 'acme'),
    )
    assert [owner_of(*name) for name in names] == [None, '/', 'acme/ann', '/ann', 'ac%20me/a%2Fb', 'acme/']


def test_a_context_without_an_owner_belongs_to_anonymous_callers() -> None:
    assert owner_or_anonymous(None, 'c') == '/'
    assert owner_or_anonymous('/ann', 'c') == '/ann'
    assert owner_or_anonymous('/', None) == '/'


@pytest.mark.parametrize(
    ('options', 'text'),
    [
        ((), 'Name an owner with --owner or --caller'),
        (('--owner', 'ann'), "'ann' is not an owner: write TENANT/CALLER, such as /ann, or --caller ann"),
        (('--owner', '/ann', '--caller', 'ann'), 'or with --caller and --tenant, not with both'),
        (('--owner', '/ann', '--tenant', 'acme'), 'or with --caller and --tenant, not with both'),
    ],
)
def test_an_owner_that_could_be_a_mistake_is_refused(capsys: Capture, options: tuple[str, ...], text: str) -> None:
    code, why = command(capsys, 'export', 'joker:app', *options).why
    assert code == 2
    assert text in why
