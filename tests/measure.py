"""Prints how much there is to read: `python -m tests.measure`. Less is better; nothing fails."""

from __future__ import annotations

import ast
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

from pydantic_ai_a2a import settings

ROOT = Path(__file__).parent.parent


def code_lines(path: Path) -> int:
    """Return the lines of a file without blank lines, comments and docstrings."""
    source = path.read_text()
    prose: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = enumerate(source.splitlines(), 1)
    return sum(n not in prose and line.strip() != '' and not line.strip().startswith('#') for n, line in lines)


def main() -> int:
    for folder in ('pydantic_ai_a2a', 'tests'):
        files = [*(ROOT / folder).rglob('*.py')]
        print(f'{folder}: {len(files)} files, {sum(map(code_lines, files)):,} lines of code')
    groups = [kind for kind in vars(settings).values() if isinstance(kind, type) and is_dataclass(kind)]
    own = [kind for kind in groups if kind.__module__.startswith(settings.__name__) and kind.__name__ != 'Settings']
    words = sum(len(page.read_text().split()) for page in (ROOT / 'docs').rglob('*.md'))
    print(f'settings: {sum(len(fields(kind)) for kind in own)}; words of the pages: {words:,}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
