"""Measures how the words of Python files and Markdown pages read, and fails where the package is over a bound.

    python -m tests.words             the figures of the package, and what is over a bound
    python -m tests.words PATH ...    the figures of other files, and every docstring and name that counts

A test bounds the sentences of each page. The figures of packages whose words read well, from their wheels:

    pydantic-ai-slim 2.68   11 % of docstrings begin with a question word
    a2a-sdk 1.3              1 %
    starlette 1.10           0 %
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / 'pydantic_ai_a2a'
QUESTION_WORDS = frozenset(
    ['how', 'what', 'whatever', 'when', 'where', 'whether', 'which', 'who', 'whoever', 'whom', 'whose', 'why']
)
PARTICIPLES = frozenset(['each', 'found', 'given', 'kept', 'known', 'left', 'said', 'told'])
"""Names of variables that are no nouns."""
LONG = 35
"""The most words of a sentence."""
MOST_QUESTIONS = 0.04
"""The share of docstrings that may begin with a question word."""
MOST_PARTICIPLES = 0.005
"""The share of bound names that may be participles or pronouns."""


@dataclass
class Measure:
    """The counts of some files, and the places of what counts against a bound."""

    docstrings: int = 0
    questions: list[str] = field(default_factory=list[str])
    """The docstrings that begin with a question word."""
    knows_no: list[str] = field(default_factory=list[str])
    """The docstrings that say what a module does not know."""
    long_sentences: list[str] = field(default_factory=list[str])
    names: int = 0
    participles: list[str] = field(default_factory=list[str])
    """The names of variables that are no nouns."""

    def read(self, path: Path) -> None:
        """Measure a Python file or a Markdown page, or all of a directory."""
        if path.is_dir():
            for file in sorted([*path.rglob('*.py'), *path.rglob('*.md')]):
                self.read(file)
        elif path.suffix == '.md':
            text = re.sub(r'^ *```.*?^ *```$', '', path.read_text(), flags=re.MULTILINE | re.DOTALL)
            text = re.sub(r'\]\([^)]*\)', ']', re.sub(r'`[^`]*`', 'code', text))
            self.long_sentences += [f'{path}: {sentence}' for sentence in long_sentences(text)]
        else:
            tree = ast.parse(path.read_text())
            for line, docstring in docstrings(tree):
                self._read_docstring(f'{path}:{line}', docstring)
            for line, name in bound_names(tree):
                self.names += 1
                if name.strip('_') in PARTICIPLES:
                    self.participles.append(f'{path}:{line}: {name}')

    def _read_docstring(self, place: str, docstring: str) -> None:
        text = re.sub(r'`[^`]*`', 'code', docstring)
        described = f'{place}: {docstring.strip().partition(chr(10))[0]}'
        first = re.search(r"[a-z][a-z'-]*", text.lower())
        self.docstrings += 1
        if first is not None and first[0] in QUESTION_WORDS:
            self.questions.append(described)
        if re.search(r'\b[Kk]nows? (no|nothing|neither)\b', text):
            self.knows_no.append(described)
        self.long_sentences += [described] * len(long_sentences(text))

    @property
    def faults(self) -> list[str]:
        """Every docstring, sentence and name that counts against a bound."""
        return [*self.questions, *self.knows_no, *self.long_sentences, *self.participles]

    @property
    def over(self) -> bool:
        """True if a figure is over the bound of the package."""
        shares = (self.questions, self.docstrings, MOST_QUESTIONS), (self.participles, self.names, MOST_PARTICIPLES)
        return bool(self.knows_no or self.long_sentences) or any(len(bad) > most * n for bad, n, most in shares)

    def __str__(self) -> str:
        return (
            f'{len(self.questions)} of {self.docstrings} docstrings begin with a question word; '
            f'{len(self.participles)} of {self.names} names are no nouns; '
            f'{len(self.knows_no)} "knows no"; {len(self.long_sentences)} sentences over {LONG} words'
        )


def long_sentences(text: str) -> list[str]:
    """Return the sentences of a text with more than `LONG` words."""
    sentences = re.split(r'[.:;?!](?=\s|$)|\n\s*\n|\n\s*(?=- )|\|', text)
    return [' '.join(words) for words in map(str.split, sentences) if len(words) > LONG]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of modules, classes, functions and attributes, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                match statement:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        yield statement.lineno, text
                    case _:
                        pass


def bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the names of variables and parameters, at each place that binds one."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(ctx=ast.Store(), id=name) | ast.arg(arg=name):
                yield node.lineno, name
            case _:
                pass


def main() -> int:
    """Print the figures of each path; return 1 if the package is over a bound."""
    paths = [Path(path) for path in sys.argv[1:]]
    for path in paths or [PACKAGE]:
        measure = Measure()
        measure.read(path)
        print(f'{path.name}: {measure}', *measure.faults if paths or measure.over else (), sep='\n    ')
        if not paths:
            return measure.over
    return 0


if __name__ == '__main__':
    sys.exit(main())
