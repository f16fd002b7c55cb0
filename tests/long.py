"""How much the tests draw that send what nobody has thought of: the same little each time, or with `make fuzz` much."""

from __future__ import annotations

import os

from hypothesis import settings

LONG = bool(os.environ.get('FUZZ'))


def drawn(few: int, many: int) -> settings:
    """So many examples: few in every test run, and many others in a long one."""
    return settings(max_examples=many, derandomize=False) if LONG else settings(max_examples=few)
