"""The puppet on a machine whose wall clock tests set; runs in the servers' processes.

The file `A2A_TEST_CLOCK` says by how many seconds the wall clock was set forward. The steady clock goes on as it is.
"""

from __future__ import annotations

import time
from os import environ
from pathlib import Path

from .durable_puppet import app

__all__ = ('app',)

_FILE = Path(environ['A2A_TEST_CLOCK'])
_time, _time_ns = time.time, time.time_ns


def _step() -> int:
    return int(_FILE.read_text()) if _FILE.exists() else 0


time.time = lambda: _time() + _step()
time.time_ns = lambda: _time_ns() + _step() * 10**9
