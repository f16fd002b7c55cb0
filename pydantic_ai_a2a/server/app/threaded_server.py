"""A server in a thread and event loop of its own, beside a notebook or a test."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Any

from starlette.types import ASGIApp

from ...notebooks import server_html
from ..http.allowed_hosts import AllowedHosts
from .listening_sockets import url_of
from .playground import playground_paths
from .served_apps import served_apps
from .uvicorn_server import run_server, uvicorn_server

_GIVE_UP_TIME = 5.0
"""Time limit for the end of an app after a failed start, in seconds."""
_START_TIME = 30.0
"""Time limit for the start of an app, in seconds."""


class Server:
    """A server in a separate thread."""

    url: str
    """URL of the server, with a final slash."""
    docs_url: str | None
    """URL of the playground of the first agent; None without a playground."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        options: dict[str, Any],
        hosts: AllowedHosts | None = None,
    ) -> None:
        self._server, self._settled = uvicorn_server(app, listener, hosts, {'lifespan': 'on', **options})
        self.url = url_of(listener, tls=self._server.config.is_ssl)
        path = next(playground_paths(app), None)
        self.docs_url = None if path is None else self.url + path.removeprefix('/')
        self._app = app
        self._listener = listener
        self._thread = threading.Thread(target=self._serve, name='pydantic-ai-a2a', daemon=True)
        self._thread.start()
        if not self._settled.wait(_START_TIME) or not self._server.started:
            self._server.should_exit = True
            self._thread.join(_GIVE_UP_TIME)  # a daemon thread: an app that hangs does not keep the process alive
            raise RuntimeError('The app did not start: the error is in the log.')

    def _serve(self) -> None:
        try:
            run_server(self._server, self._listener)
        except SystemExit:
            pass  # uvicorn exits if the lifespan failed, and then `started` is False
        finally:
            self._settled.set()
            self._listener.close()

    def close(self) -> None:
        """Drain and stop; returns when the thread has ended. Idempotent."""
        self._server.should_exit = True
        for app in served_apps(self._app):
            app.hosting.drain_everywhere()
        self._thread.join()

    def __repr__(self) -> str:
        return f'<Server {self.url}>'

    def _repr_html_(self) -> str:
        return server_html(self.url, self.docs_url)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
