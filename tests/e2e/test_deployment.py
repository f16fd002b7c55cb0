"""The example of a deployment: its files agree, and its commands run as they are written, outside of containers."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import tomllib
from collections.abc import Generator
from configparser import ConfigParser, SectionProxy
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from pydantic_ai_a2a import Limits

from ..app_client import message
from ..docs.blocks import blocks, same_text
from ..postgres import Postgres
from .server import LIMIT, ROOT, Process, process

EXAMPLE = ROOT / 'examples' / 'deployment'
COMPOSE = yaml.safe_load((EXAMPLE / 'compose.yaml').read_text())
MANIFESTS = [*yaml.safe_load_all((EXAMPLE / 'kubernetes.yaml').read_text())]
DEPLOYMENTS = [each for each in MANIFESTS if each['kind'] == 'Deployment']
PODS = {each['metadata']['name']: each['spec']['template']['spec'] for each in DEPLOYMENTS}
CONTAINERS = {name: pod['containers'][0] for name, pod in PODS.items()}
PROBES = {
    name: [container[probe]['httpGet'] for probe in ('readinessProbe', 'livenessProbe')]
    for name, container in CONTAINERS.items()
}
DOCKERFILE = (EXAMPLE / 'Dockerfile').read_text()
NGINX = (EXAMPLE / 'nginx.conf').read_text()
README = (EXAMPLE / 'README.md').read_text()
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())


def unit(name: str) -> SectionProxy:
    """Return the section of a systemd unit that says how its process runs."""
    parser = ConfigParser(interpolation=None)
    parser.read_string((EXAMPLE / name).read_text())
    assert parser['Install']['WantedBy'] == 'multi-user.target'
    return parser['Service']


UNITS = {name: unit(name) for name in ('agents-server.service', 'agents-worker@.service')}
PROGRAM = '/srv/agents/.venv/bin/pydantic-ai-a2a'
COMMANDS: dict[str, list[str]] = {
    **{name: shlex.split(unit['ExecStart'].replace(PROGRAM, 'pydantic-ai-a2a')) for name, unit in UNITS.items()},
    **{name: service['command'] for name, service in COMPOSE['services'].items() if 'command' in service},
    **{name: container['command'] for name, container in CONTAINERS.items()},
    'image': json.loads(re.findall(r'^CMD (.+)$', DOCKERFILE, re.MULTILINE)[0]),
}
POD = '10.244.1.7:8000'
"""Host of the requests of a kubelet, which knows only the address of a pod."""
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


def test_dockerfile_copies_all_needed_files() -> None:
    copied = re.findall(r'^COPY (.+) \S+$', DOCKERFILE, re.MULTILINE)
    sources = [source for line in copied for source in shlex.split(line)]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    files = ['README.md', *PROJECT['project']['license-files']]
    modules = PROJECT['tool']['hatch']['build']['targets']['wheel']['only-include']
    assert {'pyproject.toml', *files, *modules, 'examples/deployment/app.py'} <= {*sources}
    build = COMPOSE['services']['server']['build']
    assert (EXAMPLE / build['context']).resolve() == ROOT
    assert (ROOT / build['dockerfile']).exists()


@pytest.mark.parametrize(
    ('provider', 'packages'), [('', []), ('openai,anthropic', ['pydantic-ai-slim[openai,anthropic]'])]
)
def test_provider_build_argument_installs_provider_packages(provider: str, packages: list[str]) -> None:
    [installed] = re.findall(r'^ARG PROVIDER\nRUN pip install (.+)$', DOCKERFILE, re.MULTILINE)
    words = subprocess.check_output(['sh', '-c', f'printf "%s\n" {installed}'], env={'PROVIDER': provider}, text=True)
    assert words.splitlines() == ['--no-cache-dir', '.[postgres]', 'opentelemetry-sdk', *packages]


def test_image_tag_is_equal_in_compose_and_manifests() -> None:
    assert f'docker build --tag {COMPOSE["x-agents"]["image"]} ' in README
    assert {container['image'] for container in CONTAINERS.values()} == {COMPOSE['x-agents']['image']}
    assert {container['imagePullPolicy'] for container in CONTAINERS.values()} == {'IfNotPresent'}


def test_image_runs_tasks_in_its_data_folder(tmp_path: Path) -> None:
    [database] = re.findall(r'^ENV DATABASE_URL=(\S+)$', DOCKERFILE, re.MULTILINE)
    [user] = re.findall(r'^USER (\S+)$', DOCKERFILE, re.MULTILINE)
    assert f'RUN install --directory --owner {user} /data\n' in DOCKERFILE
    url = database.replace('sqlite:////data/', f'sqlite:///{tmp_path}/')
    assert url != database
    with run(COMMANDS['image'], DATABASE_URL=url) as serving:
        with httpx.Client(base_url=local_url(serving.url), timeout=LIMIT) as client:
            assert [send(client, agent) for agent in ('joker', 'poet')] == ['TASK_STATE_COMPLETED'] * 2
        check_probes('image', local_url(serving.url))
        for number in (signal.SIGTERM, signal.SIGINT):  # the second one ends the drain delay
            serving.signal(number)


def test_stop_timeouts_exceed_drain_time() -> None:
    assert 'Workers(drain_delay=5, drain_grace=20)' in (EXAMPLE / 'app.py').read_text()
    assert seconds(COMPOSE['x-agents']['stop_grace_period']) > DRAIN
    assert min(pod['terminationGracePeriodSeconds'] for pod in PODS.values()) > DRAIN
    assert min(int(unit['TimeoutStopSec']) for unit in UNITS.values()) > DRAIN


def test_systemd_units_and_nginx_proxy_agree() -> None:
    for unit in UNITS.values():
        assert unit['KillMode'] == 'mixed'
        assert unit['EnvironmentFile'] == '/etc/agents.env'
        assert unit['ExecStart'].startswith(f'{PROGRAM} ')
        assert unit['WorkingDirectory'] == PROGRAM.partition('/.venv')[0]
    options = dict(pairwise(COMMANDS['agents-server.service']))
    assert f'server 127.0.0.1:{options["--port"]};' in NGINX
    assert f'server_name {options["--allowed-host"]};' in NGINX


def test_nginx_passes_streams_host_and_large_bodies() -> None:
    lines = [line.strip() for line in NGINX.splitlines() if line.strip() and not line.strip().startswith('#')]
    assert [line for line in lines if not line.endswith((';', '{', '}'))] == []
    assert (NGINX.count('{'), lines.count('proxy_buffering off;')) == (NGINX.count('}'), 1)
    assert {'proxy_set_header Host $host;', 'proxy_set_header X-Forwarded-Proto $scheme;'} <= {*lines}
    [megabytes] = re.findall(r'client_max_body_size (\d+)m;', NGINX)
    assert int(megabytes) * 1_000_000 > Limits().body


def test_kubernetes_ports_labels_and_secrets_agree() -> None:
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


def test_kubernetes_deployments_have_resources_and_disruption_budget() -> None:
    for container in CONTAINERS.values():
        assert {*container['resources']['requests']} == {'cpu', 'memory'}
        assert {*container['resources']['limits']} == {'memory'}
    budgets = [each['spec'] for each in MANIFESTS if each['kind'] == 'PodDisruptionBudget']
    assert [budget['selector'] for budget in budgets] == [each['spec']['selector'] for each in DEPLOYMENTS]
    assert {budget['maxUnavailable'] for budget in budgets} == {1}
    assert min(each['spec']['replicas'] for each in DEPLOYMENTS) > 1


Deployed = dict[str, tuple[Process, str]]
"""The processes of a deployment by the names of their commands, each with its URL."""


@pytest.fixture(
    scope='module',
    params=[
        ('server', 'worker'),
        ('agents-server', 'agents-worker'),
        ('agents-server.service', 'agents-worker@.service'),
    ],
    ids=' '.join,
)
def deployed(request: pytest.FixtureRequest, postgres: Postgres) -> Generator[Deployed]:
    """A server and a worker over a database, and a second worker."""
    server, worker = request.param
    with (
        postgres.database() as url,
        run(COMMANDS[server], DATABASE_URL=url) as serving,
        run(COMMANDS[worker], DATABASE_URL=url) as first,
        run(COMMANDS[worker], DATABASE_URL=url) as second,
    ):
        for running in (first, second):
            running.wait_for('the worker runs the tasks')
        health = first.wait_for(r'the health endpoints listen on (\S+)')[1]
        yield {server: (serving, local_url(serving.url)), worker: (first, local_url(health))}
        for number in (signal.SIGTERM, signal.SIGINT):  # the second one ends the drain delay
            for running in (serving, first, second):
                running.signal(number)


def local_url(url: str) -> str:
    """The URL of this machine with the port of a URL."""
    return f'http://127.0.0.1:{httpx.URL(url).port}'


def test_server_and_workers_complete_tasks_over_postgresql(deployed: Deployed) -> None:
    [(_, url), _] = deployed.values()
    with httpx.Client(base_url=url, timeout=LIMIT) as client:
        assert [send(client, agent) for agent in ('joker', 'poet')] == ['TASK_STATE_COMPLETED'] * 2


def test_each_process_answers_its_health_probes(deployed: Deployed) -> None:
    for name, (_, url) in deployed.items():
        check_probes(name, url)


def check_probes(name: str, url: str) -> None:
    """The probes of the manifests. The other files have no probes, and their users ask the same paths."""
    probes = PROBES.get(name) or [{'path': path} for path in ('/health/ready', '/health/live')]
    with httpx.Client(base_url=url, timeout=LIMIT, headers={'Host': POD}) as client:
        answers = [client.get(probe['path']) for probe in probes]
        pages = [client.get(path).status_code for path in ('/', '/docs')]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json()['agents'].keys() == {'/joker', '/poet'}
    assert pages == ([404, 404] if 'worker' in COMMANDS[name] else [200, 200])


def send(client: httpx.Client, agent: str) -> Any:
    body = {'message': message('Hello')}
    answer = client.post(f'/{agent}/message:send', json=body, headers={'A2A-Version': '1.0'})
    return answer.json()['task']['status']['state']


def test_example_prints_metrics_at_exit(tmp_path: Path) -> None:
    env = {'METRICS': 'console', 'DATABASE_URL': f'sqlite:///{tmp_path / "agents.db"}'}
    app = (EXAMPLE / 'app.py').read_text().replace('drain_delay=5', 'drain_delay=0')  # so one signal ends the process
    (tmp_path / 'app.py').write_text(app)
    with process(
        '-m', 'pydantic_ai_a2a', 'serve', 'app:app', '--port', '0', cwd=tmp_path, env=env, fork=False
    ) as server:
        with httpx.Client(base_url=server.url, timeout=LIMIT) as client:
            assert send(client, 'joker') == 'TASK_STATE_COMPLETED'
        server.signal(signal.SIGINT)
        assert server.exit_code() == 0
    assert '"a2a.run.duration"' in server.output


@pytest.mark.parametrize('file', ['nginx.conf'])
def test_deploy_guide_shows_example_file(file: str) -> None:
    [shown] = [block.text for block in blocks(ROOT / 'docs' / 'deploy.md') if block.title == file]
    same_text(statements(shown), statements((EXAMPLE / file).read_text()))


def statements(text: str) -> str:
    return '\n'.join(line for line in text.splitlines() if line.strip() and not line.strip().startswith('#'))


def test_readme_lists_every_file_of_the_example() -> None:
    suffixes = ('.py', '.yaml', '.service', '.conf')
    files = {path.name for path in EXAMPLE.iterdir() if path.suffix in suffixes} | {'Dockerfile'}
    assert {*re.findall(r'^\| `([^`]+)` \|', README, re.MULTILINE)} == files
