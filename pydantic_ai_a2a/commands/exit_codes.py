"""The exit codes of commands besides 0 after success, 1 after a failure and 2 for a wrong command line."""

from __future__ import annotations

CTRL_C = 130
"""Exit code after Ctrl-C."""
WAITS = 3
"""Exit code for a waiting task, without a terminal for the answer."""
