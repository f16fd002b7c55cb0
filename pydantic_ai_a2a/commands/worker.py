"""The command `worker`, which runs tasks or workflows until a signal ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from types import FrameType
from typing import Any

import click

from ..server.app.a2a_app import A2AApp
from ..server.app.garbage_collection import frozen_objects
from .named_app import PORT, find, place_options
from .shared_apps import apart
from .terminal import say
from .worker_health import health_server, routed_app


@click.command()
@click.argument('target', metavar='MODULE:NAME')
@place_options
@click.option('--engine', is_flag=True, help='Run the workflows of the engine of the app, and no tasks.')
@click.option('--health-port', type=PORT, metavar='PORT', help='Answer /health/live and /health/ready on this port.')
@click.option(
    '--health-host', default='127.0.0.1', show_default=True, metavar='HOST', help='Address to listen on for health.'
)
def worker(
    *, target: str, app_dir: str, backend: str | None, engine: bool, health_host: str, health_port: int | None
) -> int:
    """Run the tasks of an app that other processes serve.

    MODULE:NAME is the app, such as joker:app; joker alone means joker:app. The worker ends at SIGINT or SIGTERM.
    """
    app = find(target, app_dir, backend)
    apps = apart(app, target)
    for served in apps:
        served.hosting.drain_delay = 0.0  # a worker has no traffic to redirect
        served.hosting.runs_tasks = not engine
        served.playground_logged = True  # a worker serves no page
        if engine and (served.at_engine is None or served.at_engine.engine.in_server):
            raise click.UsageError(
                f'{target} has no engine with workers of its own, as to_a2a(engine=Temporal(…)) has.'
            )
    code = 1
    with frozen_objects(), suppress(asyncio.CancelledError):
        code = asyncio.run(_work(app, apps, target, health_host, health_port, engine=engine))
    return code


async def _work(app: Any, apps: Sequence[A2AApp], target: str, host: str, port: int | None, *, engine: bool) -> int:
    """Run tasks until a signal, and return the exit code; a second signal does not wait for the running tasks."""
    async with AsyncExitStack() as stack:
        stopped = stack.enter_context(_signals())
        if port is not None:
            await stack.enter_async_context(health_server(app, host, port))
        await stack.enter_async_context(_working(app, apps))
        for served in apps if engine else ():
            await stack.enter_async_context(_engine_worker(served))
        say(f'the worker runs the {"workflows" if engine else "tasks"} of {target}')
        await stopped.wait()
        say('the worker stops')
    return 0


@asynccontextmanager
async def _engine_worker(served: A2AApp) -> AsyncGenerator[None]:
    """Run the workflows of an app.

    Raises:
        ClickException: The worker of the engine has failed, which cancels the current task.
    """
    assert served.at_engine is not None, 'the command has checked it'
    worker = await served.at_engine.engine.worker(served)
    try:
        async with worker:
            yield
    except Exception as error:  # also of plugins of the user
        raise click.ClickException(f'the worker of the engine has failed: {error}') from error


@asynccontextmanager
async def _working(app: Any, apps: Sequence[A2AApp]) -> AsyncGenerator[None]:
    """Start the workers of all apps: those in the outer app's lifespan, and those that a server starts at a request."""
    async with AsyncExitStack() as stack:
        outer = routed_app(app)
        await stack.enter_async_context(outer.router.lifespan_context(outer))
        for served in apps:
            if not served.hosting.begun:
                await stack.enter_async_context(served.router.lifespan_context(served))
            await served.hosting.ensure()  # a server would try again later to enter its agent
        yield


@contextmanager
def _signals() -> Generator[asyncio.Event]:
    """Yield an event that the first SIGTERM or SIGINT sets; the next signal cancels the task."""
    loop, task, stopped = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
    assert task is not None

    def handle(signum: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(task.cancel if stopped.is_set() else stopped.set)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
