"""Which names of this machine the command line answers for."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from .server import LIMIT, ROOT, process

APPS = 'tests.e2e.shared_apps'


def statuses(url: str) -> list[int]:
    """What is answered to requests in the name of a proxy, a stranger and this machine."""
    hosts = ('agent.example.com', 'evil.example', 'localhost')
    return [httpx.get(url, headers={'Host': host}, timeout=LIMIT).status_code for host in hosts]


def test_a_server_answers_for_this_machine_and_the_names_that_it_is_given(tmp_path: Path) -> None:
    named = ('--allowed-host', 'agent.example.com', '--allowed-host', '*.example.org', '--anonymous')
    serve = ('-m', 'pydantic_ai_a2a', 'serve', f'{APPS}:agent', '--port', '0', '--app-dir', str(ROOT))
    with process(*serve, *named, cwd=tmp_path) as server:
        assert statuses(f'{server.url}.well-known/agent-card.json') == [200, 421, 200]


@pytest.mark.parametrize('app', ['app', 'wrapped'])
def test_a_worker_tells_its_health_to_this_machine_only(app: str, tmp_path: Path) -> None:
    worker = ('-m', 'pydantic_ai_a2a', 'worker', f'{APPS}:{app}', '--health-port', '0', '--app-dir', str(ROOT))
    with process(*worker, cwd=tmp_path) as running:
        health = running.wait_for(r'the health endpoints listen on (\S+)')[1]
        running.wait_for('the worker runs')
        assert statuses(f'{health}health/live') == [421, 421, 200]
