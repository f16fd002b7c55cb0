"""The shipped suites in the hands of somebody else: what pytest says there, and what is said without pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pydantic_ai_a2a import testing

from .bounds import LIMIT

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


def test_a_test_that_fails_elsewhere_says_what_it_compared_or_lacks(tmp_path: Path) -> None:
    (tmp_path / 'test_somebodys.py').write_text(SOMEBODYS)
    command = [sys.executable, '-m', 'pytest', '-p', 'no:cacheprovider', '-k', 'read_by_its_owner']
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert 'assert None is not None' in done.stdout
    assert "fixture 'make_backend' not found" in done.stdout
    assert '1 failed' in done.stdout.splitlines()[-1]


@pytest.mark.parametrize('missing', ['hypothesis', 'pytest'])
def test_without_the_extra_the_import_says_what_to_install(missing: str) -> None:
    code = (
        f'import sys\nsys.modules[{missing!r}] = None\nimport pydantic_ai_a2a.testing.client\n'
        'from pydantic_ai_a2a.testing import TaskReaderSuite'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.stderr.splitlines()[-1] == (
        'ImportError: The suites need pytest and Hypothesis: pip install "pydantic-ai-a2a[testing]"'
    )


def test_a_name_that_is_no_suite_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'TaskRaederSuite'"):
        testing.TaskRaederSuite  # noqa: B018
