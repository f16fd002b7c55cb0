"""The command line `pydantic-ai-a2a`: Ctrl-C ends it at any time, also while Python loads a command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from .exit_codes import CTRL_C


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command in the arguments, by default the arguments of this process.

    Raises:
        SystemExit: Always: the command has ended, or uvicorn could not serve the app.
    """
    try:
        from .command_group import run  # noqa: PLC0415 - Ctrl-C may come during this import

        run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write('pydantic-ai-a2a: interrupted\n')
        sys.exit(CTRL_C)
