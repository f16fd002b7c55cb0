"""How large tests are. `make stress` runs the long forms, and `make fuzz` draws other examples."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from hypothesis import settings

T = TypeVar('T')

LONG = bool(os.environ.get('FUZZ'))
STRESS = bool(os.environ.get('STRESS'))


def short_or_long(short: T, long: T) -> T:
    """Return the short size, or in `make stress` the long one.

    `make stress` runs tests that are marked `long`, and all of hypothesis.
    """
    return long if STRESS else short


def examples(few: int, many: int) -> settings:
    """So many examples: few in every test run, and many others in a long one."""
    from hypothesis import settings  # servers of tests import this module, and have no use for hypothesis

    return settings(max_examples=many, derandomize=False) if LONG else settings(max_examples=few)
