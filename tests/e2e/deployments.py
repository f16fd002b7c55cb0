"""Apps as they are deployed: one process with everything in memory, or one that serves and one that runs the tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from ..postgres import Postgres
from .official import spoken
from .server import Gates, Process, process, uvicorn

__all__ = ('DEPLOYMENTS', 'Deployed', 'deployed')

DEPLOYMENTS = ('one process', 'two processes over PostgreSQL')


@dataclass(frozen=True)
class Deployed:
    """An app, up and listening."""

    url: str
    """Where its clients go; ends in a slash."""
    runner: Process
    """What runs its tasks."""

    @property
    def gates(self) -> Gates:
        """Where its agent waits."""
        return Gates(self.runner.url)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until what runs the tasks has written something."""
        return self.runner.wait_for(pattern)


@contextmanager
def deployed(app: str, deployment: str, postgres: Callable[[], Postgres]) -> Generator[Deployed]:
    """An app of `apps.py`."""
    over_grpc = spoken() == 'GRPC'
    if deployment == DEPLOYMENTS[0]:
        with uvicorn(app, env={'APPS_GRPC': '1'} if over_grpc else {}) as server:
            yield Deployed(server.url, server)
        return
    with postgres().database() as url:
        store = {'APPS_BACKEND': url}
        grpc = ('--grpc-port', '0') if over_grpc else ()
        serve = ('-m', 'pydantic_ai_a2a', 'serve', app, '--no-worker', '--port', '0', *grpc)
        with process('-m', 'uvicorn', app, '--port', '0', env=store) as runner, process(*serve, env=store) as server:
            yield Deployed(server.url, runner)
