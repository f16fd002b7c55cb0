"""The shipped suites in the hands of somebody else: what pytest says there, and what is said without pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pydantic_ai_a2a import testing

from .bounds import LIMIT
from .e2e.forks import PYTEST
from .e2e.server import process

SOMEBODYS = """
import pytest
from pydantic_ai_a2a.backends.memory.backend import MemoryBackend
from pydantic_ai_a2a.ports import TaskReader
from pydantic_ai_a2a.testing import READER_LAG, TaskReaderSuite

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

IMPORTS = """
import sys
sys.modules['hypothesis'] = sys.modules['pytest'] = None
import pydantic_ai_a2a.testing.client
for present in ('pytest', 'hypothesis'):
    del sys.modules[present]
    try:
        from pydantic_ai_a2a.testing import TaskReaderSuite
    except ImportError as error:
        print(error)
    sys.modules[present] = None
"""


def test_a_test_that_fails_elsewhere_says_what_it_compared_or_lacks(tmp_path: Path) -> None:
    (tmp_path / 'test_somebodys.py').write_text(SOMEBODYS)
    options = ['-p', 'no:asyncio', '-p', 'no:cacheprovider', '-k', 'read_by_its_owner']
    with process(*PYTEST, *options, cwd=tmp_path) as tests:
        assert tests.exit_code() == 1, tests.output
    assert 'assert None is not None' in tests.output
    assert "fixture 'make_backend' not found" in tests.output
    assert '1 failed' in tests.output.splitlines()[-1]


def test_without_the_extra_the_kit_works_and_a_suite_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, '-c', IMPORTS], capture_output=True, text=True, timeout=LIMIT, check=True)
    message = 'The suites need pytest and Hypothesis: pip install "pydantic-ai-a2a[testing]"'
    assert done.stdout.splitlines() == [message, message]


def test_a_name_that_is_no_suite_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'TaskRaederSuite'"):
        testing.TaskRaederSuite  # noqa: B018
