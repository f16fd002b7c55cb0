"""Writes `llms.txt` of the site: a line for each page, for language models. MkDocs loads this file as a hook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_lines: dict[str, str] = {}


def on_nav(nav: Any, **_: Any) -> None:
    """Keep the order of the pages."""
    _lines.clear()
    _lines.update({page.file.src_uri: '' for page in nav.pages})


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """Make the line of a page: its title, its address, and its first sentence."""
    text = re.search(r'^# (.+)\n\n((?:.+\n)+)', markdown, re.MULTILINE)
    assert text is not None, f'{page.file.src_uri} does not begin with a title and a paragraph'
    first = re.sub(r'\[([^\]]+)\]\([^)]*\)', r'\1', ' '.join(text[2].split()))
    sentence = re.match(r'.*?\.(?= |$)', first)
    _lines[page.file.src_uri] = f'- [{text[1]}]({page.url or "./"}): {sentence[0] if sentence else first}'


def on_post_build(config: Any, **_: Any) -> None:
    """Write the file."""
    head = f'# {config.site_name}\n\n> {config.site_description}\n\n## Pages\n\n'
    Path(config.site_dir, 'llms.txt').write_text(head + '\n'.join(_lines.values()) + '\n')
