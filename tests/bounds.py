"""How long tests may wait. A bound ends a test that hangs. It does not say how fast a quiet machine is."""

from __future__ import annotations

from .long import LONG

LIMIT = 300.0
"""Seconds that a test waits for one thing, such as an answer or the end of a process."""
TEST_LIMIT = (12 if LONG else 4) * LIMIT
"""Seconds that a whole test may take. A test may wait for several things."""
