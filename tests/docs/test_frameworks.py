"""The page about other frameworks says what `make interop` has seen."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from interop.tables import HERE, PAGE, RESULTS, write
from interop.verdicts import TEXT, of_data, of_text

CLIENTS: list[dict[str, Any]] = tomllib.loads((HERE / 'clients.toml').read_text())['client']
SEEN: dict[str, Any] = json.loads(RESULTS.read_text())


def test_the_tables_are_those_of_the_results() -> None:
    page = PAGE.read_text()
    assert write(page, SEEN) == page


def test_the_results_are_those_of_the_clients_and_versions_that_are_listed() -> None:
    assert {name: seen['packages'] for name, seen in SEEN.items()} == {
        client['name']: client['packages'] for client in CLIENTS
    }
    assert all((HERE / 'drivers' / client['driver']).exists() for client in CLIENTS)


def test_no_client_loses_text_by_default() -> None:
    for name, client in SEEN.items():
        shown = [seen['answer'] for seen in client['seen'] if seen['server'] == 'replace']
        assert all(TEXT in answer for answer in shown), name


@pytest.mark.parametrize(
    ('shown', 'verdict'),
    [
        (TEXT, 'whole'),
        ('', 'empty'),
        (TEXT.replace(' ', '\n'), 'broken up'),
        (TEXT + TEXT, 'doubled'),
        (f'{TEXT.replace(" ", "  ")} {TEXT}', 'doubled, broken up'),
        ('evening comes.', 'part'),
    ],
)
def test_a_verdict_says_what_became_of_a_text(shown: str, verdict: str) -> None:
    assert of_text(shown) == verdict


def test_a_verdict_says_whether_data_is_read() -> None:
    assert [of_data('{"city": "Rome", "degrees": 21.0}'), of_data('')] == ['read', 'not read']
