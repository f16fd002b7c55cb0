"""Measures how the words of Python files and Markdown pages read, and fails where the package is over a bound.

    python -m tests.words             the figures of the package, and what is over a bound
    python -m tests.words -v PATH ... the figures of other files, and every docstring and name that counts
    python -m tests.words docs        the figures of the pages: a test bounds the figures of each page

The same figures of packages whose words read well, from their wheels:

    pydantic-ai-slim 2.68   11 % of docstrings begin with a question word
    a2a-sdk 1.3              1 %
    starlette 1.10           0 %
"""

from __future__ import annotations

import argparse
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
    """The counts of some files."""

    docstrings: int = 0
    questions: list[str] = field(default_factory=list[str])
    """The docstrings that begin with a question word: the place and the first line of each."""
    words: int = 0
    knows_no: list[str] = field(default_factory=list[str])
    """The docstrings that say what a module does not know."""
    long_sentences: list[str] = field(default_factory=list[str])
    names: int = 0
    participles: list[str] = field(default_factory=list[str])
    """The places and names of variables that are no nouns."""

    def read(self, path: Path) -> None:
        """Count the words and names of one file."""
        tree = ast.parse(path.read_text())
        for line, docstring in docstrings(tree):
            self._read_docstring(f'{path}:{line}', docstring)
        for line, name in bound_names(tree):
            self.names += 1
            if name.strip('_') in PARTICIPLES:
                self.participles.append(f'{path}:{line}: {name}')

    def _read_docstring(self, place: str, docstring: str) -> None:
        text = re.sub(r'`[^`]*`', 'code', docstring)
        words = self._read_words(text)
        described = f'{place}: {docstring.strip().partition(chr(10))[0]}'
        self.docstrings += 1
        if words[:1] and words[0] in QUESTION_WORDS:
            self.questions.append(described)
        if re.search(r'\b[Kk]nows? (no|nothing|neither)\b', text):
            self.knows_no.append(described)
        for sentence in re.split(r'[.:;?!](?=\s|$)|\n\s*\n|\n\s*(?=- )|\|', text):
            if len(sentence.split()) > LONG:
                self.long_sentences.append(described)

    def read_page(self, path: Path) -> None:
        """Count the words and long sentences of a Markdown page, without its blocks of code."""
        text = re.sub(r'^ *```.*?^ *```$', '', path.read_text(), flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r'\]\([^)]*\)', ']', re.sub(r'`[^`]*`', 'code', text))
        self._read_words(text)
        for sentence in re.split(r'[.:;?!](?=\s|$)|\n\s*\n|\n\s*(?=- )|\|', text):
            if len(sentence.split()) > LONG:
                self.long_sentences.append(f'{path}: {" ".join(sentence.split())}')

    def _read_words(self, text: str) -> list[str]:
        words = re.findall(r"[a-z][a-z'-]*", text.lower())
        self.words += len(words)
        return words

    def figures(self) -> str:
        """Return the shares as text."""
        return (
            f'{self.question_share():.1%} of {self.docstrings} docstrings begin with a question word; '
            f'{self.words} words; '
            f'{1000 * self.participle_share():.1f} of 1,000 names are no nouns; '
            f'{len(self.knows_no)} "knows no"; {len(self.long_sentences)} sentences over {LONG} words'
        )

    def question_share(self) -> float:
        """Return the share of docstrings that begin with a question word."""
        return len(self.questions) / max(self.docstrings, 1)

    def participle_share(self) -> float:
        """Return the share of bound names that are participles or pronouns."""
        return len(self.participles) / max(self.names, 1)

    def details(self) -> list[str]:
        """Return every docstring and name that counts against a bound."""
        return [*self.questions, *self.knows_no, *self.long_sentences, *self.participles]

    def over(self) -> bool:
        """Return True if a share is over the package's bound."""
        return (
            self.question_share() > MOST_QUESTIONS
            or self.participle_share() > MOST_PARTICIPLES
            or bool(self.knows_no)
            or bool(self.long_sentences)
        )


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


def measure(path: Path) -> Measure:
    """Measure a file, or all Python files and pages of a directory."""
    measured = Measure()
    for file in [path] if path.is_file() else sorted([*path.rglob('*.py'), *path.rglob('*.md')]):
        if file.suffix == '.md':
            measured.read_page(file)
        else:
            measured.read(file)
    return measured


def main() -> int:
    """Print the figures of each path; return 1 if the package is over a bound."""
    parser = argparse.ArgumentParser(prog='python -m tests.words')
    parser.add_argument('paths', nargs='*', type=Path, metavar='PATH')
    parser.add_argument('-v', '--verbose', action='store_true')
    arguments = parser.parse_args()
    for path in arguments.paths:
        measured = measure(path)
        print(f'{path}: {measured.figures()}', *measured.details() if arguments.verbose else (), sep='\n    ')
    if arguments.paths:
        return 0
    measured = measure(PACKAGE)
    over = measured.over()
    print(f'Words: {measured.figures()}', *measured.details() if over or arguments.verbose else (), sep='\n    ')
    return over


if __name__ == '__main__':
    sys.exit(main())
