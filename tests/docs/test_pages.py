"""The pages of the documentation: their place in the navigation, their headings, their length, and their pictures."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ..cases import each_case
from ..commands.pictures import NAMES, svg
from ..playground.pictures import IMAGES
from ..words import QUESTION_WORDS, Measure
from .blocks import ROOT, blocks
from .programs import FILES, TUTORIAL, group_imports, mark_changes

DOCS = ROOT / 'docs'
PAGES = sorted(DOCS.rglob('*.md'))
MOST_PAGES = 59
MOST_WORDS = 1800
"""Of a page, with its code and its tables."""
MOST_WORDS_TO_BEGIN = 900
MOST_COLUMNS = 84
"""The longest line of code that a page on a wide screen shows without a line break."""
MOST_PROSE_COLUMNS = 120
PROSE = [
    *PAGES,
    *(
        ROOT / f'{name}.md'
        for name in ('README', 'CHANGELOG', 'CONTRIBUTING', 'RELEASING', 'SECURITY', 'SUPPORT', 'tests/README')
    ),
]


def _lines(path: Path) -> list[str]:
    """Return the lines of a page without its blocks of code."""
    return re.sub(r'^ *```.*?^ *```$', '', path.read_text(), flags=re.MULTILINE | re.DOTALL).splitlines()


def test_navigation_lists_every_page_once() -> None:
    navigation = (ROOT / 'mkdocs.yml').read_text().partition('\nnav:\n')[2].partition('\n\n')[0]
    assert sorted(re.findall(r': (\S+\.md)$', navigation, re.MULTILINE)) == sorted(
        path.relative_to(DOCS).as_posix() for path in PAGES
    )


@each_case('path', PAGES, ids=lambda path: path.stem)
def test_page_has_single_title_and_no_question_headings(path: Path) -> None:
    headings = [line.partition(' ') for line in _lines(path) if re.match('#+ ', line)]
    assert [marks for marks, _, _ in headings].count('#') == 1
    assert [
        text for _, _, text in headings if text.partition(' ')[0].lower() in QUESTION_WORDS and text != 'How it works'
    ] == []


@each_case('path', PAGES, ids=lambda path: path.stem)
def test_page_stays_within_word_limit(path: Path) -> None:
    assert len(path.read_text().split()) <= (MOST_WORDS_TO_BEGIN if path.stem == 'get-started' else MOST_WORDS)


def test_number_of_pages_is_limited() -> None:
    assert len(PAGES) <= MOST_PAGES


def _paragraphs(text: str) -> set[str]:
    return {
        ' '.join(paragraph.split()) for paragraph in re.split(r'\n(?:\s*\n)+', re.sub(r'</?div.*>', '', text).strip())
    }


def test_front_page_shares_its_text_with_readme() -> None:
    shown = (DOCS / 'index.md').read_text().partition('# pydantic-ai-a2a')[2].partition('## Find a guide')[0]
    assert _paragraphs(shown) - _paragraphs((ROOT / 'README.md').read_text().replace('](docs/', '](')) == set()


@each_case('path', PAGES, ids=lambda path: path.stem)
def test_page_sentences_are_short(path: Path) -> None:
    measure = Measure()
    measure.read(path)
    assert measure.long_sentences == []


@each_case('path', PAGES, ids=lambda path: path.stem)
def test_code_lines_fit_page_width(path: Path) -> None:
    code = [line for block in blocks(path) for line in block.text.splitlines()]
    assert [line for line in code if len(line) > MOST_COLUMNS] == []


@each_case('path', PROSE, ids=lambda path: path.stem)
def test_prose_lines_fit_editor_width(path: Path) -> None:
    prose = [line for line in _lines(path) if not line.startswith('|')]
    assert [line for line in prose if len(line) > MOST_PROSE_COLUMNS] == []


# --- the programs, which `python -m tests.docs.programs` rewrites


def test_imports_of_programs_are_grouped() -> None:
    grouped = group_imports(FILES)
    assert [path for path, text in grouped.items() if path.read_text() != text] == []


def test_tutorial_marks_changed_lines() -> None:
    marked = mark_changes(TUTORIAL)
    assert [path for path, text in marked.items() if path.read_text() != text] == []
    assert sum(text.count(' hl_lines=') for text in marked.values()) >= 6


# --- the pictures of the terminal are small, load nothing, and show what a terminal shows

_SHOWN = re.compile(r'!\[([^\]]+)\]\(images/([\w-]+)\.svg\)')


@pytest.mark.parametrize('name', NAMES)
def test_terminal_picture_is_small_and_self_contained(name: str) -> None:
    picture = (IMAGES / f'{name}.svg').read_text()
    assert len(picture.encode()) <= 120_000
    assert {element.tag.rpartition('}')[2] for element in ElementTree.fromstring(picture).iter()} <= {
        *['svg', 'style', 'defs', 'clipPath', 'rect', 'g', 'text', 'circle']
    }
    assert re.findall(r'@import|@font-face|href|url\((?!#)', picture) == []


def test_terminal_guide_shows_pictures_with_alt_text() -> None:
    shown = _SHOWN.findall((ROOT / 'docs' / 'terminal.md').read_text())
    assert [name for _, name in shown] == [*NAMES]
    assert all(len(text) > 30 for text, _ in shown)


def test_terminal_picture_shows_final_screen() -> None:
    picture = svg('a', 'pydantic-ai-a2a send', 'draft\r\x1b[2K\x1b[1;92mdone\x1b[0m \x1b[38;2;1;2;3mnow\x1b[0m\r\n')
    texts = [element.text for element in ElementTree.fromstring(picture).iter() if element.tag.endswith('}text')]
    assert [text for text in texts if text and text.strip()] == [
        *['pydantic-ai-a2a', '$\xa0pydantic-ai-a2a\xa0send', 'done', 'now']
    ]
    assert '#010203' in picture
