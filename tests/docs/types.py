"""Checks the types of the programs on the pages with pyright and mypy, both strict: `python -m tests.docs.types`.

Each block of Python becomes a module that is named after its page and line. A block without a file name imports the
names that it takes from earlier blocks of the page. Line numbers in messages are those of the page. The programs of
`typed_programs.py` are checked too, among them wrong ones.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory

from .blocks import ROOT, blocks, in_order

__all__ = ('modules',)

_PAGES = [[ROOT / 'README.md'], *([page] for page in sorted((ROOT / 'docs').glob('*.md')))]
"""The pages; those of the tutorial share their files."""
_PROGRAMS = Path(__file__).with_name('typed_programs.py')
_OTHER_SDK = 'client_0_3.py'
"""A program for the a2a-sdk of A2A 0.3, which is not installed here."""
_METHOD = re.compile(r'\b(?!pydantic_ai_a2a\b)(\w+)\.to_a2a\(')
"""The method that an import of the package adds to agents, which type checkers do not see."""
_PYRIGHT = {
    'extraPaths': [str(ROOT)],
    'pythonVersion': '3.11',
    'reportMissingTypeStubs': False,  # fasta2a is annotated but ships no py.typed
    'reportUnnecessaryTypeIgnoreComment': True,
    'typeCheckingMode': 'strict',
    'venv': '.venv',
    'venvPath': str(ROOT),
}
_MYPY = [
    'mypy',
    '--strict',
    '--implicit-reexport',  # a block may import a name from an earlier block that has imported the name
    '--allow-untyped-calls',  # parts of FastA2A have no annotations
    '--follow-untyped-imports',
    *('--cache-dir', str(ROOT / '.mypy_cache')),
    '.',
]


def modules(*pages: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the source of a module for each block of Python of pages that are read one after the other."""
    files: dict[str, str] = {}
    names: dict[str, str] = {}
    for block in (block for page in pages for block in blocks(page)):
        prefix = block.place.path.stem.lower().replace('-', '_')
        if block.language != 'python' or block.title == _OTHER_SDK:
            continue
        module = f'{prefix}_{block.place.line}'
        source = _METHOD.sub(r'pydantic_ai_a2a.to_a2a(\1, ', block.text)
        for file, written in files.items():
            source = re.sub(rf'^(\s*(?:from|import)) {file}\b', rf'\1 {written}', source, flags=re.MULTILINE)
        imports = ''
        if block.title is None:
            tree = ast.parse(source)
            defined = _defined(tree)
            imports = '; '.join(
                f'from {names[name]} import {name}' for name in sorted(_lacking(tree, defined) & {*names})
            )
            names |= dict.fromkeys(defined, module)
        else:
            files[block.title.removesuffix('.py')] = module
        yield module, imports + '\n' * (block.place.line - 1) + source + '\n'


def _defined(tree: ast.Module) -> dict[str, int]:
    """Return the global names of a module, each with the line of its first definition."""
    defined: dict[str, int] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names = [name]
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names = [alias.asname or alias.name for alias in aliases]
            case _:
                names = [name.id for name in _names(node) if isinstance(name.ctx, ast.Store)]
        defined = dict.fromkeys(names, node.lineno) | defined
    return defined


def _lacking(tree: ast.Module, defined: dict[str, int]) -> set[str]:
    """Return the names that a module reads without a definition, or before the definition."""
    anywhere = {name.id for name in _names(tree)} - defined.keys()
    statements = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    early = {name.id for node in statements for name in _names(node) if name.lineno < defined.get(name.id, 0)}
    return anywhere | early


def _names(tree: ast.AST) -> Iterator[ast.Name]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Name))


def main() -> int:
    with TemporaryDirectory() as folder:
        for pages in [*_PAGES, in_order(ROOT / 'docs' / 'tutorial')]:
            for module, source in modules(*pages):
                Path(folder, f'{module}.py').write_text(source)
        copy(_PROGRAMS, folder)
        Path(folder, 'pyrightconfig.json').write_text(json.dumps(_PYRIGHT))
        commands = [[sys.executable, '-m', *checker] for checker in (['basedpyright'], _MYPY)]
        return max([subprocess.run(command, cwd=folder, check=False).returncode for command in commands])


if __name__ == '__main__':
    sys.exit(main())
