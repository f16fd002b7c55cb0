"""The apps of a command whose tasks several processes may serve and run."""

from __future__ import annotations

from collections.abc import Iterable

from click import UsageError
from starlette.types import ASGIApp

from ..server.app.a2a_app import A2AApp
from ..server.app.served_apps import served_apps

_SHARED = "to_a2a(agent, backend='sqlite:///agent.db')"


def apart(app: ASGIApp, target: str) -> list[A2AApp]:
    """Return the A2A apps in an app, if worker processes can run the tasks of these apps.

    Raises:
        UsageError: The app has no A2A app, or keeps its tasks in memory.
    """
    apps = _apps(app, target)
    _refuse_memory(apps, target)
    return apps


def check_processes(app: ASGIApp, target: str) -> None:
    """Check that several server processes can serve an app. They may share a FastA2A storage of the user's own.

    Raises:
        UsageError: The app has no A2A app, or keeps its tasks in memory.
    """
    _refuse_memory([served for served in _apps(app, target) if not hasattr(served, 'task_manager')], target)


def _apps(app: ASGIApp, target: str) -> list[A2AApp]:
    apps = list(served_apps(app))
    if not apps:
        raise UsageError(f'{target} is not an app of to_a2a(), and has no mounted app of to_a2a().')
    return apps


def _refuse_memory(apps: Iterable[A2AApp], target: str) -> None:
    if not all(app.hosting.durable for app in apps):
        raise UsageError(
            f'{target} keeps its tasks in the memory of one process, which has to serve and run them.'
            f' Give it a backend that processes can share: {_SHARED}, or --backend for an agent.'
        )
