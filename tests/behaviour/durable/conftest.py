"""The engines of tests: a test with the fixture `kit` runs at each of them."""

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
