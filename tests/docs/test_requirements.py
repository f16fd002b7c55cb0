"""Each requirement of A2A 1.0 and each attack names its tests, which exist, as the pages of both say."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache

from ..cases import each_case
from ..requirements import PLACE, Requirement, on_page_markdown, requirements
from .blocks import ROOT, table

ALL = requirements()
LATER = {142}
"""0.3 over gRPC."""


def test_requirements_are_numbered_consecutively() -> None:
    assert list(ALL) == [f'R{n}' for n in range(1, 152)]


@each_case('requirement', ALL.values(), ids=ALL)
def test_requirement_has_tests_or_stated_exception(requirement: Requirement) -> None:
    ways = [bool(requirement.tests), requirement.later is not None, requirement.not_here is not None]
    assert ways.count(True) == 1
    assert (requirement.later is not None) == (int(requirement.name[1:]) in LATER)
    if requirement.deviates is not None:
        assert (requirement.level, bool(requirement.tests)) == ('must', True)


NAMED = {
    **{name: requirement.tests for name, requirement in ALL.items()},
    **{row[0][:60]: [row[-1].removeprefix('tests/')] for row in table(ROOT / 'tests' / 'attacks.md', 'Attack')},
}
"""The tests that each requirement and each attack names."""


@each_case('tests', NAMED.values(), ids=NAMED)
def test_named_tests_exist(tests: Sequence[str]) -> None:
    named = [test.partition('::') for test in tests]
    assert [(file, name) for file, _, name in named if not (name in _tests(file) or (not name and _tests(file)))] == []


@cache
def _tests(file: str) -> set[str]:
    tree = ast.parse((ROOT / 'tests' / file).read_text())
    return {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_protocol_page_lists_all_requirements() -> None:
    page = on_page_markdown((ROOT / 'docs' / 'protocol.md').read_text())
    assert PLACE not in page
    deviations = page.partition('### Deviations')[2].partition('###')[0]
    assert [each.name for each in ALL.values() if each.deviates is not None] == ['R113', 'R119']
    assert [each.name for each in ALL.values() if each.deviates and each.deviates not in deviations] == []
    assert [each.text for each in ALL.values() if f'| {each.name} | ' not in page or each.text not in page] == []


def test_each_attack_has_protection_and_test() -> None:
    attacks = table(ROOT / 'tests' / 'attacks.md', 'Attack')
    assert [row for row in attacks if len(row) != 3 or not all(row)] == []
    assert [row for row in attacks if not row[-1].startswith('tests/')] == []
