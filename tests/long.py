"""How much the tests draw that send what nobody has thought of: the same little each time, or with `make fuzz` much."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypothesis import settings

LONG = bool(os.environ.get('FUZZ'))


def drawn(few: int, many: int) -> settings:
    """So many examples: few in every test run, and many others in a long one."""
    from hypothesis import settings  # servers of tests import this module, and have no use for hypothesis

    return settings(max_examples=many, derandomize=False) if LONG else settings(max_examples=few)
