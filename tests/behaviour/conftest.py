"""Tests of `wire`, and those that show a promised behaviour, run over every protocol version and binding.

Their marks say why not. All other tests of this folder run in A2A 1.0 over JSON-RPC.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from ..dialects import BINDINGS, Dialect, use_dialect

DEFAULT = '1.0'
WIRE = Path(__file__).parent / 'wire'


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    given = (mark.args[0] for mark in metafunc.definition.iter_markers('parametrize'))
    if any('version' in (names.split(',') if isinstance(names, str) else names) for names in given):
        return  # its cases say which version they are of
    mark = metafunc.definition.get_closest_marker('versions')
    if mark is None and WIRE not in metafunc.definition.path.parents and 'rows' not in metafunc.fixturenames:
        return
    framed = metafunc.definition.get_closest_marker('json_rpc') is not None
    names = [
        name
        for name, dialect in BINDINGS.items()
        if (mark is None or {name, dialect.version} & {*mark.args}) and (dialect.has_envelope or not framed)
    ]
    if names:
        metafunc.parametrize('version', names, indirect=True)


@pytest.fixture(autouse=True)
def version(request: pytest.FixtureRequest) -> Generator[Dialect]:
    """What the clients of a test speak."""
    with use_dialect(getattr(request, 'param', DEFAULT)) as dialect:
        yield dialect


@pytest.fixture
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store of the kind that `each_backend` names."""
    if request.param == 'postgres':
        return request.getfixturevalue('postgres_tables_url')
    return 'memory' if request.param == 'memory' else f'sqlite:///{tmp_path}/agent.db?synchronous=normal'
