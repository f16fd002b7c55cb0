"""Every example of the documentation is run: those of a page together, and each docstring's alone."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import pytest

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.store import PostgresBackend

from ..e2e.venvs import missing
from ..engines import skip_without_dbos
from ..suites import READER_LAG
from .blocks import ROOT, Block, blocks, in_order
from .page import open_page

TUTORIAL = ROOT / 'docs' / 'tutorial'
SKILL = ROOT / 'pydantic_ai_a2a' / '.agents' / 'skills' / 'serving-agents-over-a2a' / 'SKILL.md'
PAGES = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', SKILL, *sorted((ROOT / 'docs').glob('*.md'))]
DOCSTRINGS = [block for path in sorted((ROOT / 'pydantic_ai_a2a').rglob('*.py')) for block in blocks(path)]


@pytest.mark.parametrize('path', PAGES, ids=lambda path: path.stem)
def test_page_examples_run_as_documented(path: Path, tmp_path: Path) -> None:
    examples = list(blocks(path))
    if any('import DBOS' in block.text for block in examples):
        skip_without_dbos()
    if any('pydantic_evals' in block.text for block in examples) and find_spec('pydantic_evals') is None:
        missing('pydantic-evals is not installed')
    with open_page(tmp_path) as page:
        page.read(examples)


def test_tutorial_examples_run_in_page_order(tmp_path: Path) -> None:
    with open_page(tmp_path) as page:
        page.read([block for path in in_order(TUTORIAL) for block in blocks(path)])


@pytest.mark.parametrize('block', DOCSTRINGS, ids=lambda block: str(block.place))
def test_docstring_example_runs(block: Block, tmp_path: Path) -> None:
    with open_page(tmp_path) as page:
        page.read([block])


ROWS = """
    INSERT INTO a2a.entry (agent, owner, id, message)
    SELECT 'agent', '/', lpad(to_hex(n), 12, '0') || md5(n::text), '{}' FROM generate_series(1, 30000) n
"""
OLD = "DELETE FROM a2a.entry WHERE ('x' || substr(id, 1, 12))::bit(48)::bigint % 25 <> 0"


SIZE = "SELECT pg_relation_size('a2a.entry_pkey')"


async def test_documented_reindex_shrinks_bloated_index(postgres_url: str) -> None:
    [repair] = re.findall('`(REINDEX .+?)`', (ROOT / 'docs' / 'postgresql.md').read_text())
    backend = PostgresBackend(Postgres(postgres_url), 'agent', reader_lag=READER_LAG)
    connection = await asyncpg.connect(postgres_url)
    try:
        await backend.queued()
        await connection.execute(ROWS)
        await connection.execute(OLD)
        await connection.execute('VACUUM a2a.entry')
        bloated = await connection.fetchval(SIZE)
        await connection.execute(repair)
        assert await connection.fetchval(SIZE) < bloated / 4
    finally:
        await connection.close()
        backend.close()
