"""How long tests may wait. A bound ends a test that hangs. It does not say how fast a quiet machine is."""

from __future__ import annotations

from datetime import timedelta

from .long import LONG

LIMIT = 1200.0
"""Seconds that a test waits for one thing, such as an answer or the end of a process. Somebody may stop the tests for a
quarter of an hour, while the clocks go on."""
TEST_LIMIT = 7_200 if LONG else 600
"""Seconds that a whole test may take, while the machine runs."""
LOGS = timedelta(seconds=2 * LIMIT)
"""How long apps of tests keep the events of ended tasks: a slow test reads them more than a minute after the end."""
