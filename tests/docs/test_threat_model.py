"""Every attack of the documentation that the server stops names a test, and the test exists."""

from __future__ import annotations

import ast

from ..tables import each_case
from .blocks import ROOT, table

CLAIMS = table(ROOT / 'tests' / 'attacks.md', 'Attack')


def test_each_attack_has_a_protection_and_a_test() -> None:
    assert [row for row in CLAIMS if len(row) != 3 or not all(row)] == []
    assert [row for row in CLAIMS if not row[-1].startswith('tests/')] == []


@each_case('test', [row[-1] for row in CLAIMS])
def test_a_test_that_is_named_exists(test: str) -> None:
    path, _, name = test.partition('::')
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, functions)}
    assert name in names or (not name and names)
