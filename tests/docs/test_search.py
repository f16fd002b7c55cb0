"""The search of the site finds the right page for the words that people type."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ..bounds import LIMIT
from ..e2e.venvs import missing
from .blocks import ROOT
from .search import found

ASKED = {
    'call agent from client': 'call-agents',
    'fasta2a or a2a-sdk': 'clients migrate',
    'dependency injection deps_type': 'dependencies',
    'forward bearer token to mcp server': 'credentials',
    'client api key header': 'call-agents authentication',
    'card url behind proxy https': 'cards mount deploy',
    'enable streaming': 'calls',
    'duplicated text in stream': 'clients calls',
    'timeout long running task': 'calls limits',
    'input-required': 'approvals',
    'restart lost tasks': 'durability',
    'custom task store': 'bring-your-own architecture',
    'replicas load balancer': 'postgresql deploy',
    'task ownership per user': 'authorization authentication',
    'cancel running task': 'calls',
    'push notification localhost': 'webhooks',
    'CORS': 'cors',
    'multiple agents fastapi': 'mount',
    'stream tool calls': 'results',
    'structured output pydantic model': 'results tutorial/typed-results',
}
"""Questions of public issues about servers and clients of A2A, with the pages that answer them."""
ALSO = {
    'human in the loop approval': 'approvals',
    'upload image file': 'files',
    'jwt keycloak': 'authentication',
    'rate limit per user': 'quotas',
    'kubernetes deployment': 'deploy',
    'conversation history memory': 'conversations',
    'opentelemetry traces logfire': 'observe',
    'unit test agent pytest': 'testing',
    'typescript javascript client': 'clients',
    'grpc server': 'http-json',
    'agent card skills': 'cards',
    'error -32602': 'errors',
    'retry on rate limit 429 model': 'durability',
    'nginx reverse proxy': 'deploy',
    'evaluate agent quality': 'evaluate',
    'gdpr delete user data': 'operate',
    'websocket streaming': 'calls',
    'idempotency key retry payment': 'durability',
    'resume stream after disconnect': 'calls',
    'test without api key': 'testing get-started',
}


@pytest.fixture(scope='module')
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    if find_spec('mkdocs') is None:
        missing('MkDocs is not installed (the extra `docs`), so the search is not tested')
    folder = tmp_path_factory.mktemp('site')
    command = [sys.executable, '-m', 'mkdocs', 'build', '--quiet', '--strict', '--site-dir', str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=LIMIT)
    return folder


def _misses(site: Path, questions: dict[str, str]) -> dict[str, list[str]]:
    """Return the questions whose page is not among the first three, with these three."""
    pages = dict(zip(questions, found(site, [*questions]), strict=True))
    first = {question: [page.rstrip('/') for page in pages[question][:3]] for question in questions}
    return {
        question: first[question] for question in questions if not {*first[question]} & {*questions[question].split()}
    }


def test_the_search_answers_questions_of_public_issues(site: Path) -> None:
    misses = _misses(site, ASKED)
    assert len(misses) <= 2, misses


def test_the_search_answers_other_questions(site: Path) -> None:
    assert _misses(site, ALSO) == {}


def test_language_models_get_a_line_for_each_page(site: Path) -> None:
    lines = (site / 'llms.txt').read_text().partition('## Pages\n\n')[2].splitlines()
    assert len(lines) == len([*(ROOT / 'docs').rglob('*.md')])
    assert lines[1].startswith('- [Get started](get-started/): Serve a Pydantic AI agent')


def test_each_earlier_address_leads_to_a_page(site: Path) -> None:
    moved = [line.split(': ') for line in (ROOT / 'mkdocs.yml').read_text().splitlines() if '.md: ' in line]
    assert moved
    for old, new in moved:
        page, _, anchor = new.partition('#')
        text = (site / page.removesuffix('.md') / 'index.html').read_text()
        assert f'id="{anchor}"' in text
        assert (
            f'{page.removesuffix(".md")}/#{anchor}'
            in (site / old.strip().removesuffix('.md') / 'index.html').read_text()
        )
