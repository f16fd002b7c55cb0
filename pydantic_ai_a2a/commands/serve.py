"""The command `serve`, which serves until a signal ends it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from runpy import run_module
from socket import socket
from typing import Any

import click
from starlette.types import ASGIApp

from ..server.app.anonymous_callers import check_anonymous
from ..server.app.listening_sockets import listen
from ..server.app.serve import serve_on
from ..server.app.serve_grpc import grpc_agent_of, serve_grpc
from ..server.http.allowed_hosts import AllowedHosts
from .named_app import PORT, file_of, find, place_options
from .server_processes import ServerProcesses
from .shared_apps import apart, check_processes
from .terminal import prepare_output


@dataclass(frozen=True)
class Options:
    """The options of the command, which each server process gets."""

    target: str
    app_dir: str
    backend: str | None
    host: str
    port: int
    grpc_port: int | None
    allowed_host: Sequence[str]
    no_worker: bool
    workers: int
    auth: str | None
    anonymous: bool

    @property
    def hosts(self) -> AllowedHosts | None:
        """The host names to answer for, in addition to those of the app."""
        return AllowedHosts(self.allowed_host) if self.allowed_host else None


@click.command()
@click.argument('target', metavar='MODULE:NAME')
@place_options
@click.option('--host', default='127.0.0.1', show_default=True, metavar='HOST', help='Address to listen on.')
@click.option('--port', type=PORT, default=8000, show_default=True, metavar='PORT', help='Port to listen on.')
@click.option('--grpc-port', type=PORT, metavar='PORT', help='Also serve gRPC on this port.')
@click.option('--allowed-host', multiple=True, metavar='NAME', help='Also answer for this host name. Can be repeated.')
@click.option('--no-worker', is_flag=True, help='Leave all tasks to worker processes.')
@click.option(
    '--workers', type=click.IntRange(1), default=1, show_default=True, metavar='N', help='Number of server processes.'
)
@click.option('--auth', metavar='MODULE:NAME', help='Authenticator for the callers of an agent, such as a BearerAuth.')
@click.option('--anonymous', is_flag=True, help='Serve without authentication, also on a public address.')
@click.option('--reload', is_flag=True, help='Start again after each change of a Python file, for development.')
def serve(*, reload: bool, **given: Any) -> int:
    """Serve an app or an agent over HTTP and gRPC.

    MODULE:NAME is the app or the agent, such as joker:agent; joker alone means joker:app. A file alone, such as
    joker.py, means its app or its only agent. The server ends at SIGINT or SIGTERM.
    """
    options = Options(**given)
    if reload:
        return _reload(options)
    if options.auth is not None and options.anonymous:
        raise click.UsageError('--auth and --anonymous cannot be combined: give one of them.')
    app = _app(options)
    listener = listen(options.host, options.port)
    if options.workers == 1:
        _serve_app(options, listener, app)
        return 0
    return ServerProcesses(_serve, options, listener).run()


def _app(options: Options) -> ASGIApp:
    """Return the app to serve."""
    app = find(options.target, options.app_dir, options.backend, options.auth)
    if options.workers > 1:
        check_processes(app, options.target)
        if options.grpc_port == 0:
            raise click.UsageError('--grpc-port 0 would take another port in each process: give the number of a port.')
    if options.no_worker:
        for served in apart(app, options.target):
            served.hosting.runs_tasks = False
    try:
        check_anonymous(
            app,
            options.host,
            options.hosts,
            options.anonymous,
            name=options.target,
            say='--anonymous, or --auth for an agent',
        )
        if options.grpc_port is not None:
            grpc_agent_of(app)
    except (ImportError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    return app


def _serve(options: Options, listener: socket) -> None:
    """Serve in one of several processes."""
    prepare_output()
    _serve_app(options, listener, _app(options))


def _serve_app(options: Options, listener: socket, app: ASGIApp) -> None:
    host, grpc_port = options.host, options.grpc_port
    grpc = None if grpc_port is None else serve_grpc(app, host=host, port=grpc_port, anonymous=options.anonymous)
    serve_on(listener, app, options.hosts, {}, grpc)


def _reload(options: Options) -> int:
    """Serve in a process that uvicorn starts again after each change of a Python file."""
    import uvicorn  # noqa: PLC0415 - as in `run`
    from uvicorn.supervisors import ChangeReload  # noqa: PLC0415

    if options.workers > 1:
        raise click.UsageError('--reload and --workers cannot be combined: --reload serves from one process.')
    directory = options.app_dir or '.'
    file = file_of(options.target, directory)
    directories = [directory] if file is None else [directory, str(file.parent)]
    config = uvicorn.Config(options.target, workers=1, reload=True, reload_dirs=directories)
    arguments = [argument for argument in sys.argv[1:] if argument != '--reload']
    ChangeReload(config, target=partial(_command, arguments), sockets=[]).run()
    return 0


def _command(arguments: Sequence[str], sockets: object) -> None:
    """Run the command in a new process."""
    sys.argv[1:] = arguments
    run_module('pydantic_ai_a2a', run_name='__main__')
