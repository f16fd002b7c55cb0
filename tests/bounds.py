"""How long tests may wait. A bound says nothing about how fast a machine is."""

from __future__ import annotations

from datetime import timedelta

LIMIT = 86_400.0
"""Seconds that a test waits for one thing, such as an answer or the end of a process. No test waits so long: after
three minutes without CPU time, `tests/watchdog.py` ends a test that hangs. This bound is a day because clocks go on
while somebody stops the tests."""
LOGS = timedelta(seconds=2 * LIMIT)
"""How long apps of tests keep the events of ended tasks: a slow test reads them more than a minute after the end."""
