"""The number of processes that serve an app, and which one is the first."""

from __future__ import annotations

import multiprocessing
from typing import Any


def server_processes() -> int:
    """Return the number of processes that serve this app: `--workers` of uvicorn or of our command, else 1."""
    return getattr(_started_with().get('server_options'), 'workers', uvicorn_workers())


def uvicorn_workers() -> int:
    """Return the number of processes under `uvicorn --workers`, else 1. Only the processes import the app."""
    return getattr(_started_with().get('config'), 'workers', 1)


def is_first_process() -> bool:
    """Return False in all but one of several server processes, of which one logs what concerns all."""
    return server_processes() == 1 or multiprocessing.current_process().name.endswith('-1')


def _started_with() -> dict[str, Any]:
    return getattr(multiprocessing.current_process(), '_kwargs', {})
