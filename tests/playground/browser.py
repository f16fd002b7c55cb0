"""The Chromium of this machine, for the tests and the pictures of the playground."""

from __future__ import annotations

import shutil

from ..e2e.venvs import missing

__all__ = ('ARGUMENTS', 'chromium')

ARGUMENTS = ('--no-sandbox', '--host-resolver-rules=MAP *.test 127.0.0.1')
"""Tests of root have no sandbox. The names stand for other machines."""
_PROGRAMS = (
    'chromium',
    'chromium-browser',
    'google-chrome',
    '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
)


def chromium() -> str:
    """Return the path of the program. Without Chromium, the tests of the playground are skipped, or fail in CI."""
    program = next((path for name in _PROGRAMS if (path := shutil.which(name))), None)
    if program is None:
        missing('Chromium is not installed (Debian: apt-get install chromium), so the playground is not tested')
    return program
