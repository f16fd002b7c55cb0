"""A directory with an app whose tasks are in a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

APP_MODULE = """
from pydantic_ai import Agent
from starlette.applications import Starlette
from pydantic_ai_a2a import Retention, mount, to_a2a
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.connect import SqliteFile

agent = Agent('test', name='joker')
app = to_a2a(agent, backend='sqlite:///agent.db')
memory = to_a2a(agent)
entered = []


class OwnBackend(SqliteFileBackend):
    async def __aenter__(self):
        entered.append('in')

    async def __aexit__(self, *_):
        entered.append('out')


own = to_a2a(agent, backend=OwnBackend(SqliteFile.of('sqlite:///agent.db'), 'joker', reader_lag=1000))
parent = Starlette()
for name in ('ann', 'bob'):
    mount(parent, f'/{name}', to_a2a(agent, backend='sqlite:///agent.db', retention=Retention(namespace=name)))
"""


@pytest.fixture(autouse=True)
def app_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with a module that is forgotten afterwards."""
    (tmp_path / 'joker.py').write_text(APP_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', [each for each in sys.path if each])
    yield tmp_path
    sys.modules.pop('joker', None)
