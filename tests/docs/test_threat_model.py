"""Every claim of the threat model about what is stopped names a test, and there is one of that name."""

from __future__ import annotations

import ast

import pytest

from .blocks import ROOT, table

PAGE = ROOT / 'docs' / 'security-model.md'


def claims() -> list[list[str]]:
    """What is said to be stopped: attack, what stops it, test."""
    lines = PAGE.read_text().splitlines()
    rows = [line.strip('|').split(' | ') for line in lines if line.startswith('| ') and '`tests/' in line]
    return [[cell.strip() for cell in row] for row in rows]


def test_all_that_is_said_to_be_stopped_has_a_test() -> None:
    stopped = (
        PAGE.read_text()
        .partition('## Attacks that the defaults stop')[2]
        .partition('## Attacks that the defaults do not stop')[0]
    )
    rows = [line for line in stopped.splitlines() if line.startswith('| ') and not line.startswith('| Attack')]
    assert len(table(PAGE, 'Attack')) > 0
    assert len(claims()) == len(rows)


@pytest.mark.parametrize('test', [row[-1].strip('`') for row in claims()])
def test_a_test_that_is_named_exists(test: str) -> None:
    path, _, name = test.partition('::')
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, functions)}
    assert name in names or (not name and names)
