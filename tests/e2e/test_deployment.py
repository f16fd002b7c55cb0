"""The example of a deployment: its files agree, and its commands run as they are written, outside of containers."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from ..client import message
from ..postgres import Postgres
from .server import LIMIT, ROOT, Process, process

EXAMPLE = ROOT / 'examples' / 'deployment'
COMPOSE = yaml.safe_load((EXAMPLE / 'compose.yaml').read_text())
MANIFESTS = [*yaml.safe_load_all((EXAMPLE / 'kubernetes.yaml').read_text())]
DEPLOYMENTS = [each for each in MANIFESTS if each['kind'] == 'Deployment']
PODS = {each['metadata']['name']: each['spec']['template']['spec'] for each in DEPLOYMENTS}
CONTAINERS = {name: pod['containers'][0] for name, pod in PODS.items()}
DOCKERFILE = (EXAMPLE / 'Dockerfile').read_text()
COMMANDS: dict[str, list[str]] = {
    **{name: service['command'] for name, service in COMPOSE['services'].items() if 'command' in service},
    **{name: container['command'] for name, container in CONTAINERS.items()},
    'image': json.loads(re.findall(r'^CMD (.+)$', DOCKERFILE, re.MULTILINE)[0]),
}
DRAIN = 5 + 20
"""Seconds that a process of app.py may take to end."""


@contextmanager
def run(command: list[str], **env: str) -> Generator[Process]:
    """A command of a container on free ports of this machine."""
    assert command[0] == 'pydantic-ai-a2a'
    words = ['0' if option in ('--port', '--health-port') else word for option, word in pairwise(command)]
    with process('-m', 'pydantic_ai_a2a', *words, cwd=EXAMPLE, env=env) as running:
        yield running


def seconds(text: str) -> int:
    return int(text.removesuffix('s'))


def test_the_image_has_what_its_commands_need() -> None:
    copied = re.findall(r'^COPY (.+) \S+$', DOCKERFILE, re.MULTILINE)
    sources = [source for line in copied for source in shlex.split(line)]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {'pyproject.toml', 'README.md', 'LICENSE', 'pydantic_ai_a2a', 'examples/deployment/app.py'} <= {*sources}
    build = COMPOSE['x-agents']['build']
    assert (EXAMPLE / build['context']).resolve() == ROOT
    assert (ROOT / build['dockerfile']).exists()


def test_a_process_has_more_time_to_end_than_it_needs() -> None:
    assert 'Workers(drain_delay=5, drain_grace=20)' in (EXAMPLE / 'app.py').read_text()
    assert seconds(COMPOSE['x-agents']['stop_grace_period']) > DRAIN
    assert min(pod['terminationGracePeriodSeconds'] for pod in PODS.values()) > DRAIN


def test_the_ports_labels_and_secrets_of_the_manifests_agree() -> None:
    for container in CONTAINERS.values():
        [port] = container['ports']
        assert str(port['containerPort']) in container['command']
        assert {container[probe]['httpGet']['port'] for probe in ('readinessProbe', 'livenessProbe')} == {port['name']}
        assert container['envFrom'] == [{'secretRef': {'name': 'agents'}}]
    [service] = [each for each in MANIFESTS if each['kind'] == 'Service']
    labels = service['spec']['selector']
    [server] = [each for each in DEPLOYMENTS if each['spec']['selector']['matchLabels'] == labels]
    assert server['metadata']['name'] == 'agents-server'
    assert service['spec']['ports'][0]['targetPort'] == CONTAINERS['agents-server']['ports'][0]['name']
    assert service['metadata']['name'] in CONTAINERS['agents-server']['command']


@pytest.mark.parametrize(
    ('server', 'worker'), [('server', 'worker'), ('agents-server', 'agents-worker'), ('image', 'worker')]
)
def test_a_server_and_two_workers_of_the_example_answer_over_postgresql(
    server: str, worker: str, postgres: Postgres
) -> None:
    with (
        postgres.database() as url,
        run(COMMANDS[server], DATABASE_URL=url) as serving,
        run(COMMANDS[worker], DATABASE_URL=url) as first,
        run(COMMANDS[worker], DATABASE_URL=url) as second,
    ):
        for running in (first, second):
            running.wait_for('the worker runs the tasks')
        port = serving.wait_for(r'Uvicorn running on http://0\.0\.0\.0:(\d+)')[1]
        with httpx.Client(base_url=f'http://127.0.0.1:{port}', timeout=LIMIT) as client:
            answers = [send(client, agent) for agent in ('joker', 'poet')]
            ready = client.get(CONTAINERS['agents-server']['readinessProbe']['httpGet']['path'])
            live = client.get(CONTAINERS['agents-server']['livenessProbe']['httpGet']['path'])
    assert answers == ['TASK_STATE_COMPLETED'] * 2
    assert (ready.status_code, live.status_code) == (200, 200)


def send(client: httpx.Client, agent: str) -> Any:
    body = {'message': message('Hello')}
    answer = client.post(f'/{agent}/message:send', json=body, headers={'A2A-Version': '1.0'})
    return answer.json()['task']['status']['state']


def test_the_example_prints_its_metrics_at_the_end(tmp_path: Path) -> None:
    env = {'METRICS': 'console', 'DATABASE_URL': f'sqlite:///{tmp_path / "agents.db"}'}
    with process(
        '-m', 'pydantic_ai_a2a', 'serve', 'app:app', '--port', '0', cwd=EXAMPLE, env=env, fork=False
    ) as server:
        with httpx.Client(base_url=server.url, timeout=LIMIT) as client:
            assert send(client, 'joker') == 'TASK_STATE_COMPLETED'
        server.signal(signal.SIGINT)
        assert server.exit_code() == 0
    assert '"a2a.run.duration"' in server.output


def test_the_readme_names_every_file_of_the_example() -> None:
    text = (EXAMPLE / 'README.md').read_text()
    files = {path.name for path in EXAMPLE.iterdir() if path.suffix in ('.py', '.yaml')} | {'Dockerfile'}
    assert {*re.findall(r'^\| `([^`]+)` \|', text, re.MULTILINE)} == files
