"""The suites for backends, run by the author of another backend from a clone of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from .e2e.forks import PYTEST
from .e2e.server import process
from .package import ROOT

SOMEBODYS = """
import pytest
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.server.store.ports import TaskReader
from tests.suites import READER_LAG, TaskReaderSuite

class Empty(TaskReader):
    async def load(self, task_id, owner, **options):
        return None

    async def list(self, query):
        return await self.reader.list(query)

    async def pause(self, task_id, owner):
        return None

    async def unread(self, task_id, after):
        return []

class TestEmpty(TaskReaderSuite):
    @pytest.fixture
    def make_backend(self):
        def make():
            backend = MemoryBackend('agent', reader_lag=READER_LAG)
            backend.reader = Empty()
            return backend
        return make

class TestWithoutBackend(TaskReaderSuite):
    pass
"""


def test_failed_suite_shows_comparison_and_missing_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PYTHONPATH', str(ROOT))
    (tmp_path / 'test_somebodys.py').write_text(SOMEBODYS)
    options = ['-p', 'no:asyncio', '-p', 'no:cacheprovider', '-k', 'another_owner_is_not_readable']
    with process(*PYTEST, *options, cwd=tmp_path) as tests:
        assert tests.exit_code() == 1, tests.output
    assert 'assert None is not None' in tests.output
    assert "fixture 'make_backend' not found" in tests.output
    assert '1 failed' in tests.output.splitlines()[-1]
