"""The pictures of the terminal are small, load nothing, and show what a terminal shows."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from ..docs.blocks import ROOT
from ..playground.pictures import IMAGES
from .pictures import NAMES, svg

_SHOWN = re.compile(r'!\[([^\]]+)\]\(images/([\w-]+)\.svg\)')


@pytest.mark.parametrize('name', NAMES)
def test_a_picture_is_small_and_loads_nothing(name: str) -> None:
    picture = (IMAGES / f'{name}.svg').read_text()
    assert len(picture.encode()) <= 120_000
    assert {element.tag.rpartition('}')[2] for element in ElementTree.fromstring(picture).iter()} <= {
        *['svg', 'style', 'defs', 'clipPath', 'rect', 'g', 'text', 'circle']
    }
    assert re.findall(r'@import|@font-face|href|url\((?!#)', picture) == []


def test_the_guide_shows_the_pictures_with_alternative_texts() -> None:
    shown = _SHOWN.findall((ROOT / 'docs' / 'terminal.md').read_text())
    assert [name for _, name in shown] == [*NAMES]
    assert all(len(text) > 30 for text, _ in shown)


def test_a_picture_has_the_last_state_of_the_terminal() -> None:
    picture = svg('a', 'pydantic-ai-a2a send', 'draft\r\x1b[2K\x1b[1;92mdone\x1b[0m \x1b[38;2;1;2;3mnow\x1b[0m\r\n')
    texts = [element.text for element in ElementTree.fromstring(picture).iter() if element.tag.endswith('}text')]
    assert [text for text in texts if text and text.strip()] == [
        *['pydantic-ai-a2a', '$\xa0pydantic-ai-a2a\xa0send', 'done', 'now']
    ]
    assert '#010203' in picture
