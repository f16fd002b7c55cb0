"""The apps of a command whose tasks several processes may serve and run."""

from __future__ import annotations

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
    apps = list(served_apps(app))
    if not apps:
        raise UsageError(f'{target} is not an app of to_a2a(), and has no mounted app of to_a2a().')
    if not all(app.hosting.durable for app in apps):
        raise UsageError(
            f'{target} keeps its tasks in the memory of one process, which has to serve and run them.'
            f' Give it a backend that processes can share, such as {_SHARED}.'
        )
    return apps
