"""The routes of the playground: paths, headers, files, and the apps that have no playground."""

from __future__ import annotations

import gzip
import re
import signal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic_ai import Agent
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pydantic_ai_a2a import Access, BearerAuth, Limits, serve, to_a2a
from pydantic_ai_a2a.server.http.playground import page
from pydantic_ai_a2a.server.http.playground.page import FILES

from ..cases import each_case
from ..docs.blocks import ROOT
from ..e2e.server import process
from .pictures import IMAGES, MOVING, MOVING_INBOX, NAMES

STATIC = Path(page.__file__).with_name('static')
SUMS = re.findall(r'^(\w{64})  (\S+)$', (STATIC / 'vendor' / 'SHA256SUMS').read_text(), re.MULTILINE)


async def own(request: Request) -> PlainTextResponse:
    return PlainTextResponse('my own')


def facts(client: TestClient, path: str = '/docs') -> dict[str, str]:
    """What the server tells the page."""
    html = client.get(path).text
    return dict(re.findall(r' data-(\w+)="([^"]*)"', html))


def files(client: TestClient, path: str = '/docs') -> set[int]:
    """The statuses of the files that a page names, as the browser resolves their URLs."""
    names = re.findall(r'(?:href|src)="(\./[^"]+)"', client.get(path).text)
    assert len(names) == 3
    return {client.get(str(client.base_url.join(path).join(name))).status_code for name in names}


def test_page_and_files_have_security_headers() -> None:
    with TestClient(to_a2a(Agent('test'))) as client:
        for path, media_type in {
            '': b'text/html; charset=utf-8',
            **{f'/{name}': FILES[name] for name in FILES},
        }.items():
            answer = client.get(f'/docs{path}')
            assert (answer.status_code, answer.headers['content-type']) == (200, media_type.decode())
            assert answer.headers['x-content-type-options'] == 'nosniff'
            assert answer.headers['referrer-policy'] == 'no-referrer'
            assert answer.headers['content-security-policy'] == (
                "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:;"
                " base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script';"
                ' trusted-types dompurify'
            )
            again = client.get(f'/docs{path}', headers={'If-None-Match': answer.headers['etag']})
            assert (again.status_code, again.content) == (304, b'')


def test_page_and_files_are_read_only() -> None:
    with TestClient(to_a2a(Agent('test'))) as client:
        for path in ('/docs', '/docs/chat.js'):
            assert client.head(path).status_code == 200
            assert client.post(path).status_code == 404


@pytest.mark.parametrize(
    ('path', 'root'),
    [('/docs', './'), ('/', './'), ('/docs/', '../'), ('/try/it', '../'), ('/try/the/page', '../../')],
)
def test_page_finds_files_by_relative_urls(path: str, root: str) -> None:
    with TestClient(to_a2a(Agent('test'), docs_url=path)) as client:
        assert facts(client, path)['root'] == root
        assert files(client, path) == {200}


@pytest.mark.parametrize(('path', 'other'), [('/docs', '/docs/'), ('/docs/', '/docs'), ('/a/b', '/a/b/')])
def test_wrong_trailing_slash_is_redirected(path: str, other: str) -> None:
    with TestClient(to_a2a(Agent('test'), docs_url=path)) as client:
        assert client.get(other).url.path == path
        assert client.get(f'{other}?task=a%20b').url == f'http://testserver{path}?task=a%20b'


def test_page_is_public_and_reveals_only_limits() -> None:
    app = to_a2a(
        Agent('test', name='secret'),
        auth=BearerAuth({'a-long-secret-token-of-ada': 'ada'}),
        limits=Limits(body=8, files=9),
    )
    with TestClient(app) as client:
        told = facts(client)
        assert len(told.pop('process')) == 16
        assert told == {
            'root': './',
            'page': './docs/',
            'anonymous': 'false',
            'steps': 'false',
            'files': '9',
            'body': '8',
        }
        assert 'secret' not in client.get('/docs').text
    with TestClient(to_a2a(Agent('test'))) as client:
        assert facts(client)['anonymous'] == 'true'


def test_each_tenant_has_page() -> None:
    app = to_a2a(Agent('test'), access=Access(tenants=['acme']))
    with TestClient(app) as client:
        statuses = [client.get(path).status_code for path in ('/docs', '/acme/docs', '/tasks/docs')]
        assert statuses == [200, 200, 404]
        assert files(client, '/acme/docs') == {200}
        assert client.get('/acme/docs/').url.path == '/acme/docs'


@pytest.mark.parametrize('name', ['', 'index.html', 'page.py', '../page.py', '%2e%2e/page.py', 'vendor', 'style.css/x'])
def test_unlisted_files_are_not_served(name: str) -> None:
    with TestClient(to_a2a(Agent('test'))) as client:
        answer = client.get(f'/docs/{name}', follow_redirects=False)
    assert answer.status_code == (404 if name else 307)


def test_app_without_docs_url_has_no_page() -> None:
    with TestClient(to_a2a(Agent('test'), docs_url=None)) as client:
        assert client.get('/docs').status_code == 404


@pytest.mark.parametrize('docs_url', ['docs', ''])
def test_docs_url_without_slash_is_refused(docs_url: str) -> None:
    with pytest.raises(ValueError, match='docs_url takes a path that begins with a slash'):
        to_a2a(Agent('test'), docs_url=docs_url)


def test_agent_without_http_json_1_0_has_no_page(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level('INFO')
    for app in (
        to_a2a(Agent('test'), access=Access(versions=('0.3',))),
        to_a2a(Agent('test'), routes=[Route('/tasks', own)]),
    ):
        with TestClient(app) as client:
            assert client.get('/docs').status_code == 404
        assert app.docs_url is None
    said = [record.message for record in caplog.records if 'playground' in record.message]
    assert said == ['There is no playground at /docs: the agent does not serve A2A 1.0 over HTTP+JSON.'] * 2


def test_user_route_takes_precedence_over_page() -> None:
    with TestClient(to_a2a(Agent('test'), routes=[Route('/docs', own)])) as client:
        assert client.get('/docs').text == 'my own'
    app = to_a2a(Agent('test'))
    app.add_route('/docs', own)
    with TestClient(app) as client:
        assert client.get('/docs').text == 'my own'


def test_fastapi_keeps_its_own_docs() -> None:
    parent = FastAPI()
    parent.mount('/joker', to_a2a(Agent('test')))
    parent.mount('/', to_a2a(Agent('test')))
    with TestClient(parent) as client:
        assert 'swagger' in client.get('/docs').text
        assert facts(client, '/joker/docs')['root'] == './'


def test_vendored_files_match_pinned_checksums() -> None:
    sums = {name: digest for digest, name in SUMS}
    folder = STATIC / 'vendor'
    assert {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.name in sums} == sums
    assert {path.name for path in folder.iterdir()} == {*sums, 'SHA256SUMS'}
    assert 'Permission is hereby granted' in (folder / 'marked.LICENSE').read_text()
    assert 'Apache License' in (folder / 'purify.LICENSE').read_text()
    assert 'BSD 3-Clause License' in (folder / 'highlight.LICENSE').read_text()


def test_page_files_are_served_and_small() -> None:
    served = {STATIC / name for name in FILES} | {STATIC / 'index.html'}
    assert {path for path in STATIC.rglob('*') if path.suffix in ('.css', '.html', '.js', '.svg')} == served
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in served) < 94_000
    assert [path.name for path in served if 'vendor' not in path.parts and path.read_bytes().count(b'\n') > 400] == []


def test_server_logs_playground_urls(capfd: pytest.CaptureFixture[str]) -> None:
    own_docs = to_a2a(Agent('test'), routes=[Route('/docs', own)])
    parent = FastAPI()
    parent.mount('/joker', to_a2a(Agent('test', name='joker'), docs_url='/try'))
    parent.mount('/own', own_docs)
    parent.mount('/none', to_a2a(Agent('test', name='none'), docs_url=None))
    parent.mount('/', to_a2a(Agent('test', name='root')))
    with serve(CORSMiddleware(parent), log_level='info') as server:
        assert re.findall(r'Playground: (\S+)', capfd.readouterr().err) == [f'{server.url}joker/try']
        assert server.docs_url == f'{server.url}joker/try'
    with serve(own_docs) as server:
        assert server.docs_url is None


PAGES = """
from contextlib import asynccontextmanager
from fastapi import FastAPI
from pydantic_ai import Agent
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from pydantic_ai_a2a import mount, to_a2a

def agent(**options):
    return to_a2a(Agent('test', name='agent'), **options)

app = agent()
wrapped = CORSMiddleware(agent(docs_url='/try'))
pageless = agent(docs_url=None)
own = agent(routes=[Route('/docs', lambda request: None)])
nested, inner = FastAPI(), FastAPI()
mount(inner, '/a b', agent())
mount(nested, '/inner', inner)
mount(nested, '/', agent())

@asynccontextmanager
async def lifespan(parent):
    async with plain.router.lifespan_context(plain):
        yield

plain = agent()
by_hand = FastAPI(lifespan=lifespan)
by_hand.mount('/agent', plain)
"""
SHARED = """
from pydantic_ai import Agent
from pydantic_ai_a2a import to_a2a

app = to_a2a(Agent('test', name='agent'), backend='sqlite:///agent.db')
"""


@each_case(
    'arguments, paths',
    [
        ('pages:app', '/docs'),
        ('pages:wrapped', '/try'),
        ('pages:pageless', ''),
        ('pages:own', ''),
        ('pages:nested', '/inner/a%20b/docs'),
        ('pages:by_hand', ''),
        ('shared:app --workers 2', '/docs'),
    ],
)
def test_uvicorn_logs_playground_path_of_app_once(arguments: str, paths: str, tmp_path: Path) -> None:
    (tmp_path / 'pages.py').write_text(PAGES)
    (tmp_path / 'shared.py').write_text(SHARED)
    with process('-m', 'uvicorn', *arguments.split(), '--port', '0', cwd=tmp_path) as server:
        server.wait_for('(?s)' + 'startup complete.*' * (2 if '--workers' in arguments else 1))
        server.signal(signal.SIGINT)
        assert server.exit_code() == 0
    assert re.findall(r'The playground is at (\S+)', server.output) == paths.split()


def test_server_logs_missing_card_fields(capfd: pytest.CaptureFixture[str]) -> None:
    joke: Any = {'id': 'joke', 'name': 'Joke', 'description': 'Tells a joke.', 'tags': ['fun']}
    parent = FastAPI()
    parent.mount('/bare', to_a2a(Agent('test', name='bare')))
    parent.mount('/half', to_a2a(Agent('test', name='half'), description='Half.', skills=[joke]))
    whole: Any = {**joke, 'examples': ['Tell me a joke.']}
    parent.mount('/whole', to_a2a(Agent('test', name='whole', description='Whole.'), skills=[whole]))
    with serve(parent, log_level='info'):
        logged = capfd.readouterr().err
    assert re.findall(r'The card of (\w+) has (.+) to tell other agents', logged) == [
        ('bare', 'no description or skills or examples'),
        ('half', 'no examples'),
    ]


@pytest.mark.parametrize(
    ('place', 'name'), [('README.md', MOVING), ('docs/index.md', MOVING), ('docs/decide.md', MOVING_INBOX)]
)
def test_animated_picture_is_small_and_has_alt_text(place: str, name: str) -> None:
    shown = re.findall(r'!\[([^\]]+)\]\(([^)]+\.gif)\)', (ROOT / place).read_text())
    [(text, path)] = shown
    assert len(text) > 100
    picture = (ROOT / place).parent / path
    assert picture == IMAGES / name
    assert picture.read_bytes()[:6] == b'GIF89a'
    assert picture.stat().st_size <= 600_000


def test_documentation_pictures_are_small() -> None:
    sizes = {name: (IMAGES / f'{name}.png').stat().st_size for name in NAMES}
    assert {name: size for name, size in sizes.items() if size > 120_000} == {}
