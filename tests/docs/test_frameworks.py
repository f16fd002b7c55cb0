"""The page about other frameworks says what `make interop` has seen."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from interop.tables import HERE, PAGE, REPORT, RESULTS, SERVERS, WAYS, report, write
from interop.verdicts import AFTER, ANSWERS, BEFORE, GRPC_SERVERS, TEXT, of_data, of_live, of_text

LISTED: dict[str, list[dict[str, Any]]] = tomllib.loads((HERE / 'clients.toml').read_text())
CLIENTS = LISTED['client']
SEEN: dict[str, Any] = json.loads(RESULTS.read_text())
CALLED: dict[str, Any] = json.loads(SERVERS.read_text())
READS_NO_ARTIFACTS = '@ag-ui/a2a'


def test_framework_tables_match_interop_results() -> None:
    page = PAGE.read_text()
    assert write(page) == page
    assert report() == REPORT.read_text()


def test_interop_results_match_listed_packages() -> None:
    for seen, listed in ((SEEN, CLIENTS), (CALLED, LISTED['server'])):
        assert {name: shown['packages'] for name, shown in seen.items()} == {
            each['name']: each['packages'] for each in listed
        }
    assert all((HERE / 'drivers' / client['driver']).exists() for client in CLIENTS)
    assert all((HERE / 'servers' / server['driver']).exists() for server in LISTED['server'])


def test_client_gets_whole_text_of_each_server() -> None:
    shown = {
        (name, seen['way']): of_text(seen.get('answer', ''), TEXT)
        for name, server in CALLED.items()
        for seen in server['seen']
    }
    assert set(shown) == {(name, way) for name in CALLED for way in WAYS}
    # The URL on the card of AgentOS takes messages only.
    assert [place for place, text in shown.items() if text != 'whole'] == [('agno (AgentOS)', 'get')]


@pytest.mark.parametrize('agent', ANSWERS)
def test_no_client_loses_or_doubles_text_by_default(agent: str) -> None:
    wrong = {
        name: seen.get('answer', seen.get('error'))
        for name, client in SEEN.items()
        for seen in client['seen']
        if (seen['server'], seen['way']) == (f'{agent} on-request', 'stream')
        and of_text(seen.get('answer', ''), ANSWERS[agent]) != 'whole'
    }
    assert wrong == {READS_NO_ARTIFACTS: ''}


def test_clients_requesting_live_text_get_live_text() -> None:
    asking = [client['name'] for client in CLIENTS if 'extensions' in client]
    live = {
        (name, seen['server'], of_live(seen['live'], TEXT if 'talk' in seen['server'] else AFTER))
        for name in asking
        for seen in SEEN[name]['seen']
        if 'on-request' in seen['server'] and seen['way'] == 'stream'
    }
    assert live == {(name, f'{agent} on-request', 'live') for name in asking for agent in ANSWERS}


def test_google_adk_reads_text_without_grpc_on_card() -> None:
    shown = {
        (seen['server'], of_text(seen['answer'], TEXT))
        for seen in SEEN['google-adk']['seen']
        if seen['server'] in GRPC_SERVERS
    }
    assert shown == {('gRPC on the card', 'empty'), ('gRPC off the card', 'whole')}


@pytest.mark.parametrize(
    ('shown', 'wanted', 'verdict'),
    [
        (TEXT, TEXT, 'whole'),
        ('', TEXT, 'empty'),
        (TEXT.replace(' ', '\n'), TEXT, 'broken up'),
        (TEXT + TEXT, TEXT, 'doubled'),
        (f'{TEXT.replace(" ", "  ")} {TEXT}', TEXT, 'doubled, broken up'),
        ('evening comes.', TEXT, 'wrong'),
        (BEFORE, AFTER, 'wrong'),
        (BEFORE + AFTER, AFTER, 'both texts'),
        (BEFORE + AFTER + AFTER, AFTER, 'both texts, doubled'),
        (f'{BEFORE} It is 21\ndegrees.', AFTER, 'both texts, broken up'),
    ],
)
def test_verdict_classifies_received_text(shown: str, wanted: str, verdict: str) -> None:
    assert of_text(shown, wanted) == verdict


@pytest.mark.parametrize(
    ('pieces', 'verdict'),
    [
        ([AFTER, ''], ''),
        (['It is ', '21 degrees.', ''], 'live'),
        ([BEFORE, 'It is ', '21 degrees.'], 'live'),
        (['It is ', '21 degrees.', AFTER], 'live twice'),
        (['It is ', 'degrees.'], 'live wrong'),
    ],
)
def test_verdict_classifies_live_text(pieces: list[str], verdict: str) -> None:
    assert of_live(pieces, AFTER) == verdict


def test_verdict_classifies_data_as_read_or_unread() -> None:
    assert [of_data('{"city": "Rome", "degrees": 21.0}'), of_data('')] == ['read', 'not read']
