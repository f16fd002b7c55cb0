"""The number of processes that serve an app."""

from __future__ import annotations

import multiprocessing
from typing import Any


def server_processes() -> int:
    """Return the number of processes that serve this app: uvicorn's `--workers` if present, else 1."""
    started_with: dict[str, Any] = getattr(multiprocessing.current_process(), '_kwargs', {})
    return getattr(started_with.get('config'), 'workers', 1)
