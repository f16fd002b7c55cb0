"""The search of the site finds the right page for the words that people type."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from ..bounds import LIMIT
from ..e2e.venvs import missing
from ..playground.browser import ARGUMENTS, chromium
from .blocks import ROOT
from .folder_server import served

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
    'human in the loop approval': 'decide',
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
    'human in the loop': 'decide',
    'inbox': 'decide',
    'approver': 'decide',
    'slack notification when approval waits': 'decide',
    'test without api key': 'testing get-started',
}
NEW = {
    'openapi': 'http-json',
    'websocket': 'calls',
    'mock agent pytest': 'testing',
    'install': 'get-started',
    'hello world': 'get-started',
    'docker': 'deploy',
    'logging': 'observe',
    'session id': 'conversations',
    'chat ui': 'playground',
    'background task': 'calls',
    'list tasks': 'calls call-agents',
    'delete task': 'operate',
    'send pdf': 'files',
    'ask user a question': 'approvals',
    'notify when done': 'webhooks',
    'two agents in one server': 'mount',
    'shared secret between agents': 'agents-as-tools',
    'debug failed task': 'errors',
    'https certificate': 'deploy',
    'google adk': 'clients',
    'flask django': 'mount',
    'redis': 'postgresql',
    'jupyter notebook': 'mount',
    'what is a2a': 'a2a',
}
"""What somebody new types."""
SENTENCES = {
    'where do I put my openai key': 'get-started',
    'change port of the server': 'get-started',
    'which python versions are supported': 'get-started',
    'how to run agent without api key': 'get-started testing',
    'address already in use': 'tutorial/tools tutorial/crash',
    'agent forgets previous message': 'conversations',
    'save files from the answer': 'terminal',
    'password protect my agent': 'authentication',
    'login with google': 'authentication',
    'give every user own database session': 'dependencies',
    'stop a running job': 'calls',
    'limit how much a user can spend': 'quotas',
    'too many requests': 'quotas',
    'put agent into existing web app': 'mount',
    'difference between a2a and mcp': 'a2a',
    'use mcp server with token of user': 'credentials',
    'how many users can one server handle': 'performance',
    'the agent is slow': 'performance',
    'which database can I use': 'postgresql',
    'How do I keep tasks after a restart?': 'durability',
    'can a client send a file': 'files',
}
"""Questions as people write them."""


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
    pages = dict(zip(questions, search_results(site, [*questions]), strict=True))
    first = {question: [page.rstrip('/') for page in pages[question][:3]] for question in questions}
    return {
        question: first[question] for question in questions if not {*first[question]} & {*questions[question].split()}
    }


def test_docs_search_finds_page_for_reported_problems(site: Path) -> None:
    misses = _misses(site, ASKED)
    assert len(misses) <= 2, misses


@pytest.mark.parametrize('questions', [ALSO, NEW, SENTENCES], ids=['common', 'new', 'sentences'])
def test_docs_search_finds_page_for_question(site: Path, questions: dict[str, str]) -> None:
    assert _misses(site, questions) == {}


def test_llms_txt_has_line_per_page(site: Path) -> None:
    lines = (site / 'llms.txt').read_text().partition('## Pages\n\n')[2].splitlines()
    assert len(lines) == len([*(ROOT / 'docs').rglob('*.md')])
    assert lines[1].startswith('- [Get started](get-started/): Serve a Pydantic AI agent')


def test_old_page_addresses_redirect(site: Path) -> None:
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


# --- the search as readers do it: the search worker of the site in Chromium

_SEARCH = """async (queries) => {
  const config = JSON.parse(document.getElementById('__config').textContent)
  const worker = new Worker(config.search)
  const ask = (message) => new Promise((resolve) => {
    worker.onmessage = ({data}) => resolve(data)
    worker.postMessage(message)
  })
  const index = await (await fetch('search/search_index.json')).json()
  await ask({type: 0, data: {...index, options: {suggest: false}}})
  const pages = []
  for (const query of queries) {
    const {data} = await ask({type: 2, data: query})
    pages.push(data.items.map(([entry]) => entry.location.split('#')[0]))
  }
  return pages
}"""
"""Asks the worker as the search field does, and returns the pages of each query, best first."""


def search_results(site: Path, queries: Sequence[str]) -> list[list[str]]:
    """Return the addresses of the pages that each query finds, best first."""
    with served(site) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        page = browser.new_page()
        page.set_default_timeout(LIMIT * 1000)
        page.goto(url)
        pages: list[list[str]] = page.evaluate(_SEARCH, list(queries))
        browser.close()
        return pages
