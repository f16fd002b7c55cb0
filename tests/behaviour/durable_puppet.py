"""An agent that does what its user says, on a machine whose wall clock tests set; runs in the servers' processes.

The file `A2A_TEST_CLOCK` says by how many seconds the wall clock was set forward. The steady clock goes on as it is.
"""

from __future__ import annotations

import time
from os import environ
from pathlib import Path

from pydantic_ai_a2a import to_a2a

from ..e2e.apps import ROUTES, puppet
from .durable_steps import LIMITS, RETENTION, WORKERS

__all__ = ('app',)

_FILE = Path(environ['A2A_TEST_CLOCK'])
_time, _time_ns = time.time, time.time_ns


def _step() -> int:
    return int(_FILE.read_text()) if _FILE.exists() else 0


time.time = lambda: _time() + _step()
time.time_ns = lambda: _time_ns() + _step() * 10**9

app = to_a2a(
    puppet,
    backend=environ['A2A_TEST_BACKEND'],
    routes=ROUTES,
    workers=WORKERS,
    limits=LIMITS,
    retention=RETENTION,
)
