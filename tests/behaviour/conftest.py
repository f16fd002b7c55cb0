"""Every test of this folder runs over every protocol version, unless a mark says why not."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from ..dialects import DIALECTS, Dialect, speaking

DEFAULT = '1.0'


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line('markers', 'versions(*versions, reason): the only protocol versions to run over')


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    given = (mark.args[0] for mark in metafunc.definition.iter_markers('parametrize'))
    if any('version' in (names.split(',') if isinstance(names, str) else names) for names in given):
        return  # its cases say which version they are of
    mark = metafunc.definition.get_closest_marker('versions')
    versions: tuple[str, ...] = tuple(DIALECTS) if mark is None else mark.args
    if versions:
        metafunc.parametrize('version', versions, indirect=True)


@pytest.fixture(autouse=True)
def version(request: pytest.FixtureRequest) -> Generator[Dialect]:
    """What the clients of a test speak."""
    with speaking(getattr(request, 'param', DEFAULT)) as dialect:
        yield dialect
