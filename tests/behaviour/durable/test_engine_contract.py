"""A task at an engine ends as it would without one, or as a table of the documentation says.

Each scenario of `contract/` runs without an engine and at each engine: clients get the same artifacts, schemas, events
and failures, hooks the same results, the store the same messages, and callers pay for the same usage.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ...docs.blocks import ROOT
from ...engines import DbosSetup, EngineSetup, NoEngine
from .contract import SCENARIOS, ScenarioRun, approvals, failures, hooks, inputs, outputs, remote, streams, tools

PAGE = ROOT / 'docs' / 'durable-engines.md'
SAME = 'same'
REFUSED = {
    'dbos': {'messages to a working task enter its run', 'a stream has partial outputs'},
    'temporal': {
        *('messages to a working task enter its run', 'a stream has partial outputs'),
        *('a remote agent in a toolset', 'a remote agent in a capability'),
    },
}
"""The scenarios that an engine refuses when the app is made. Other parts of the page name them."""
SUBJECTS = (outputs, inputs, tools, approvals, hooks, failures, streams, remote)
"""The modules with the scenarios."""


def rows() -> dict[str, dict[str, str]]:
    """What the page says of each scenario that differs, by engine."""
    [section] = re.findall(r'^### Differences$(.*?)^##', PAGE.read_text(), re.MULTILINE | re.DOTALL)
    [_, _, *lines] = [line for line in section.splitlines() if line.startswith('|')]
    cells = [[cell.strip() for cell in line.strip('|').split(' | ')] for line in lines]
    return {name: {'none': none, 'dbos': dbos, 'temporal': temporal} for name, none, dbos, temporal in cells}


async def seen(name: str, kit: NoEngine) -> Any:
    """All that is to be compared, or why the app is refused."""
    play = ScenarioRun(kit)
    try:
        await SCENARIOS[name](play)
    except TypeError as error:
        if 'engine=' not in str(error):
            raise
        return f'refused: {error}'
    return play.seen


EXPECTED: dict[str, Any] = {}
"""What is seen without an engine."""
CASES = [(engine, name) for name in sorted(SCENARIOS) for engine in ('dbos', 'temporal')]
"""Sorted, because processes of pytest-xdist import the scenarios in different orders."""


@pytest.mark.parametrize(('kit', 'name'), CASES, indirect=['kit'])
async def test_engine_run_matches_plain_run_or_documentation(kit: EngineSetup, name: str, tmp_path: Path) -> None:
    if name not in EXPECTED:
        EXPECTED[name] = await seen(name, NoEngine(tmp_path))
    expected = EXPECTED[name]
    kit.attempts = 1
    got = await seen(name, kit)
    said = rows().get(name)
    engine = 'dbos' if isinstance(kit, DbosSetup) else 'temporal'
    if name in REFUSED[engine]:
        assert str(got).startswith('refused: ')
    elif said is None or said[engine].startswith(SAME):
        assert got == expected
    else:
        assert got != expected, f'no difference: {PAGE.name} has a row too much'
        for place, what in (('none', expected), (engine, got)):
            assert not [word for word in re.findall(r'`(.+?)`', said[place]) if word not in str(what)], what


def test_every_documented_difference_has_a_scenario() -> None:
    assert not rows().keys() - SCENARIOS.keys()
