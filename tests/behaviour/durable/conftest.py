"""The engines of tests, at each of which a test with the fixture `kit` runs; and the file of others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ...engines import EngineSetup


@pytest.fixture(params=['dbos', 'temporal'])
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> EngineSetup:
    """Each engine."""
    from ...engines import DbosSetup, TemporalSetup  # which takes long to import

    if request.param == 'dbos':
        return DbosSetup(tmp_path)
    return TemporalSetup(tmp_path, request.getfixturevalue('temporal'))


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of an empty file."""
    return f'sqlite:///{tmp_path}/agent.db?synchronous=normal'
