from __future__ import annotations

import pytest

from ..cases import each_case
from ..conftest import COLLECTED
from ..dialects import BINDINGS, DIALECTS, in_no_version
from .promised_behaviours import ROWS, Behaviour, behaviours_of, covers

pytestmark = in_no_version('it is about the tests')

NARROWING = ('ignore', 'ignore_glob', 'lf', 'last_failed')
"""Options for which pytest does not collect some files."""


def selection(config: pytest.Config) -> str | None:
    """What the session was told to collect, if that was not everything."""
    for option in NARROWING:
        if value := config.getoption(option, None):
            return f'{option}={value}'
    everything = {config.rootpath / path for path in config.getini('testpaths')}
    asked = {(config.invocation_params.dir / arg).resolve() for arg in config.args}
    if not everything <= asked:
        return ' '.join(config.args)
    return None


@pytest.fixture(scope='module')
def tests_by_row(request: pytest.FixtureRequest) -> dict[str, list[str]]:
    tests: dict[str, list[str]] = {name: [] for name in ROWS}
    for item in request.config.stash[COLLECTED]:
        for row in behaviours_of(item):
            tests[row.name].append(item.nodeid)
    return tests


@each_case('row', ROWS.values(), ids=lambda row: row.id)
def test_every_promised_behaviour_has_a_test(
    row: Behaviour, tests_by_row: dict[str, list[str]], pytestconfig: pytest.Config
) -> None:
    if not tests_by_row[row.name] and (selected := selection(pytestconfig)):
        pytest.skip(f'only a part of the tests was collected: {selected}')
    assert tests_by_row[row.name]


@each_case('row', ROWS.values(), ids=lambda row: row.id)
def test_behaviour_is_tested_in_every_version_or_without_version(
    row: Behaviour, request: pytest.FixtureRequest
) -> None:
    shown = [item for item in request.config.stash[COLLECTED] if row in behaviours_of(item)]
    versions = {item.callspec.params.get('version') for item in shown if isinstance(item, pytest.Function)} - {None}
    whole: tuple[set[str], ...] = (set(), {*DIALECTS}, {*BINDINGS})
    if versions not in whole and (selected := selection(request.config)):
        pytest.skip(f'only a part of the tests was collected: {selected}')
    assert versions in whole


def test_node_id_contains_ids_of_its_behaviours(request: pytest.FixtureRequest) -> None:
    ids = [(row.id, item.nodeid) for item in request.config.stash[COLLECTED] for row in behaviours_of(item)]
    assert [(name, nodeid) for name, nodeid in ids if name not in nodeid] == []


def test_unknown_behaviour_is_rejected() -> None:
    with pytest.raises(ValueError, match="no behaviour has the name 'no such row'"):
        covers('str', 'no such row')
