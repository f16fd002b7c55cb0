"""How the programs of the documentation are written: `python -m tests.docs.programs` puts both into the files.

- Imports stand in the groups that a user's tools make: the standard library, packages, the user's own files.
- A page of the tutorial marks the lines in which a file differs from the file on an earlier page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent

from ..bounds import LIMIT
from .blocks import ROOT, blocks, in_order

__all__ = ('FILES', 'TUTORIAL', 'group_imports', 'mark_changes')

_PACKAGE = ROOT / 'pydantic_ai_a2a'
FILES = [ROOT / 'README.md', *(ROOT / 'docs').rglob('*.md'), *_PACKAGE.rglob('*.md'), *_PACKAGE.rglob('*.py')]
"""The files with programs for users."""
TUTORIAL = in_order(ROOT / 'docs' / 'tutorial')


def group_imports(files: Sequence[Path]) -> dict[Path, str]:
    """Return the texts of the files that have programs, with the imports of the programs in groups."""
    programs = [block for path in files for block in blocks(path) if block.language == 'python']
    own = sorted({block.title.removesuffix('.py') for block in programs if block.title})
    with TemporaryDirectory() as directory:
        modules = [Path(directory, f'program_{number}.py') for number in range(len(programs))]
        for module, block in zip(modules, programs, strict=True):
            module.write_text(block.text + '\n')
        ruff = ['ruff', 'check', '--isolated', '--quiet', '--line-length=80', '--select=I', '--fix']
        config = f'lint.isort.known-first-party = {own}'
        command = [sys.executable, '-m', *ruff, '--config', config]
        subprocess.run(command, cwd=directory, check=True, timeout=LIMIT)
        grouped = [module.read_text() for module in modules]
    lines = {block.place.path: block.place.path.read_text().split('\n') for block in programs}
    for block, source in reversed([*zip(programs, grouped, strict=True)]):
        page, first = lines[block.place.path], block.place.line - 1
        margin = page[first - 1].partition('`')[0]
        page[first : first + block.text.count('\n') + 1] = indent(source, margin).splitlines()
    return {path: '\n'.join(page) for path, page in lines.items()}


def mark_changes(pages: Sequence[Path]) -> dict[Path, str]:
    """Return the texts of pages that are read one after the other, with marks at the changed lines of their files."""
    earlier: dict[str, list[str]] = {}
    texts: dict[Path, str] = {}
    for path in pages:
        page = path.read_text().split('\n')
        for block in blocks(path):
            if block.title is None or block.title == 'Output':
                continue
            lines = block.text.split('\n')
            marks = _changed(earlier.get(block.title, lines), lines)
            fence = re.sub(' hl_lines=.*', '', page[block.place.line - 2])
            page[block.place.line - 2] = f'{fence} hl_lines="{" ".join(marks)}"' if marks else fence
            earlier[block.title] = lines
        texts[path] = '\n'.join(page)
    return texts


def _changed(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the ranges of lines that are not in the text before."""
    changes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    ranges = [(first + 1, last) for kind, _, _, first, last in changes if kind in ('insert', 'replace')]
    return [str(first) if first == last else f'{first}-{last}' for first, last in ranges]


def main() -> None:
    for texts in (lambda: group_imports(FILES), lambda: mark_changes(TUTORIAL)):
        for path, text in texts().items():
            path.write_text(text)


if __name__ == '__main__':
    main()
