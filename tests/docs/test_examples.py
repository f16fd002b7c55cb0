"""Every example of the documentation is run: those of a page together, each docstring's alone."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from ..e2e.venvs import missing
from ..engines import need_dbos
from .blocks import ROOT, Block, blocks, in_order
from .page import opened

TUTORIAL = ROOT / 'docs' / 'tutorial'
SKILL = ROOT / 'pydantic_ai_a2a' / '.agents' / 'skills' / 'serving-agents-over-a2a' / 'SKILL.md'
PAGES = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', SKILL, *sorted((ROOT / 'docs').glob('*.md'))]
DOCSTRINGS = [block for path in sorted((ROOT / 'pydantic_ai_a2a').rglob('*.py')) for block in blocks(path)]


@pytest.mark.parametrize('path', PAGES, ids=lambda path: path.stem)
def test_the_examples_of_a_page_do_what_it_says(path: Path, tmp_path: Path) -> None:
    examples = list(blocks(path))
    if any('import DBOS' in block.text for block in examples):
        need_dbos()
    if any('pydantic_evals' in block.text for block in examples) and find_spec('pydantic_evals') is None:
        missing('pydantic-evals is not installed')
    with opened(tmp_path) as page:
        page.read(examples)


def test_the_tutorial_can_be_followed_from_its_first_page_to_its_last(tmp_path: Path) -> None:
    with opened(tmp_path) as page:
        page.read([block for path in in_order(TUTORIAL) for block in blocks(path)])


@pytest.mark.parametrize('block', DOCSTRINGS, ids=lambda block: str(block.place))
def test_the_example_of_a_docstring_runs(block: Block, tmp_path: Path) -> None:
    with opened(tmp_path) as page:
        page.read([block])
