"""The command `serve`, which serves until a signal ends it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from runpy import run_module

import click

from ..server.app.anonymous_callers import check_anonymous
from ..server.app.serve import run
from ..server.app.serve_grpc import grpc_agent_of
from ..server.http.allowed_hosts import AllowedHosts
from .named_app import PORT, find, place_options
from .shared_apps import apart


@click.command()
@click.argument('target', metavar='MODULE:NAME')
@place_options
@click.option('--host', default='127.0.0.1', show_default=True, metavar='HOST', help='Address to listen on.')
@click.option('--port', type=PORT, default=8000, show_default=True, metavar='PORT', help='Port to listen on.')
@click.option('--grpc-port', type=PORT, metavar='PORT', help='Also serve gRPC on this port.')
@click.option('--allowed-host', multiple=True, metavar='NAME', help='Also answer for this host name. Can be repeated.')
@click.option('--no-worker', is_flag=True, help='Leave all tasks to worker processes.')
@click.option('--auth', metavar='MODULE:NAME', help='Authenticator for the callers of an agent, such as a BearerAuth.')
@click.option('--anonymous', is_flag=True, help='Serve without authentication, also on a public address.')
@click.option('--reload', is_flag=True, help='Start again after each change of a Python file, for development.')
def serve(
    *,
    target: str,
    app_dir: str,
    backend: str | None,
    host: str,
    port: int,
    grpc_port: int | None,
    allowed_host: Sequence[str],
    no_worker: bool,
    auth: str | None,
    anonymous: bool,
    reload: bool,
) -> int:
    """Serve an app or an agent over HTTP and gRPC.

    MODULE:NAME is the app or the agent, such as joker:agent; joker alone means joker:app. The server ends at SIGINT or
    SIGTERM.
    """
    if reload:
        return _reload(target, app_dir)
    if auth is not None and anonymous:
        raise click.UsageError('--auth and --anonymous cannot be combined: give one of them.')
    app = find(target, app_dir, backend, auth)
    if no_worker:
        for served in apart(app, target):
            served.hosting.runs_tasks = False
    names = allowed_host or None
    try:
        hosts = None if names is None else AllowedHosts(names)
        check_anonymous(app, host, hosts, anonymous, name=target, say='--anonymous, or --auth for an agent')
        if grpc_port is not None:
            grpc_agent_of(app)
    except (ImportError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    run(app, host=host, port=port, grpc_port=grpc_port, allowed_hosts=names, anonymous=anonymous)
    return 0


def _reload(target: str, app_dir: str) -> int:
    """Serve in a process that uvicorn starts again after each change of a Python file."""
    import uvicorn  # noqa: PLC0415 - as in `run`
    from uvicorn.supervisors import ChangeReload  # noqa: PLC0415

    config = uvicorn.Config(target, reload=True, reload_dirs=app_dir or '.')
    arguments = [argument for argument in sys.argv[1:] if argument != '--reload']
    ChangeReload(config, target=partial(_command, arguments), sockets=[]).run()
    return 0


def _command(arguments: Sequence[str], sockets: object) -> None:
    """Run the command in a new process."""
    sys.argv[1:] = arguments
    run_module('pydantic_ai_a2a', run_name='__main__')
