"""The option `--watch` of commands that keep a table on the screen."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from click import UsageError

from ..errors import needs_extra


def check_watch(*, as_json: bool) -> None:
    """Check that a table can stay on the screen.

    Raises:
        UsageError: The command has no terminal, or is to write JSON, or the extra `cli` is not installed.
    """
    if as_json:
        raise UsageError('--watch and --json cannot be combined: give one of them.')
    is_terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    if not (is_terminal and os.environ.get('TERM') != 'dumb' and sys.stdout.encoding.lower().startswith('utf')):
        raise UsageError('--watch needs a UTF-8 terminal that can move its cursor.')
    if find_spec('rich') is None:
        raise UsageError(needs_extra('--watch', 'cli'))
