"""Fixtures of all tests. Every wait is bounded: a test that hangs ends after `TEST_LIMIT` seconds with its stacks."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import threading
import time
import warnings
from asyncio import AbstractEventLoop
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from anyio._backends._asyncio import TestRunner
from hypothesis import settings

from .bounds import TEST_LIMIT
from .long import size
from .postgres import Postgres, any_postgres
from .temporal import temporal_server

# The same examples in every run and process, however busy the machine is.
settings.register_profile('steady', max_examples=size(40, 100), deadline=None, derandomize=True, database=None)
settings.load_profile('steady')


SLOW = (
    'tests/behaviour/auth/test_two_callers.py',
    *(
        f'tests/behaviour/durable/test_{name}.py'
        for name in (
            'changed_agents',
            'deploys',
            'durable_processes',
            'engine_processes',
            'engine_temporal',
            'leases',
            'store_outages',
        )
    ),
    'tests/behaviour/wire/test_fuzz.py',
    'tests/chaos/test_chaos.py',
    'tests/commands/test_postgres.py',
    'tests/commands/test_start.py',
    'tests/databases',
    'tests/docs/test_examples.py',
    'tests/docs/test_search.py',
    'tests/e2e',
    'tests/server/grpc/test_fuzz.py',
    'tests/notebooks',
    'tests/playground',
    'tests/ports/test_suites.py::TestBackend::test_owner_is_isolated',
    'tests/ports/test_suites.py::TestDurable::test_owners_are_isolated',
    'tests/server/store/postgres/test_backend.py',
    'tests/server/store/sqlite/test_pages.py',
    'tests/test_benchmarks.py',
    'tests/test_memory_cost.py',
    'tests/test_new_operation.py',
    'tests/test_package.py',
    'tests/test_postgres.py',
    'tests/test_testing.py',
)
"""The tests of these files and folders are slow, like single tests with the mark, and those with a longer form. The
suites of backends need no marks of ours: others run them, too."""
AT_ONCE = ('tests/chaos', 'tests/test_benchmarks', 'tests/test_package', 'tests/notebooks', 'tests/playground')
"""Slow tests that begin first."""
COLLECTED = pytest.StashKey[Sequence[pytest.Item]]()
"""All tests that were collected, also those that a mark or a keyword leaves out."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect the tests without garbage collections. Later collections skip the million objects of the tests.

    Garbage collections are rarer than usual, since a test leaves few objects.
    """
    gc.disable()
    _import_tests(session.config)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 10)
        gc.enable()


def _import_tests(config: pytest.Config) -> None:
    """Import all tests, in another order in each process.

    Python stores what a process has compiled, and the other processes load it. In the same order, each process would
    compile every module. The modules of tests take longest, because pytest rewrites their assertions.
    """
    worker: dict[str, Any] | None = getattr(config, 'workerinput', None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    folder = Path(__file__).parent
    paths = sorted(folder.rglob('test_*.py'))
    first = len(paths) * int(worker['workerid'].removeprefix('gw')) // worker['workercount']
    with warnings.catch_warnings(action='error'):
        for path in paths[first:] + paths[:first]:
            # Pytest reports a module that cannot be imported, and has not yet read the conftest of the folder.
            with suppress(Exception, pytest.fail.Exception, pytest.skip.Exception):
                import_module('.'.join(path.relative_to(folder.parent).with_suffix('').parts))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, object, object]:
    """Mark the slow tests, and begin the longest of the chosen tests first.

    These run in half of the processes: most of them wait, and others compute meanwhile.
    """
    config.stash[COLLECTED] = tuple(items)
    for item in items:
        if item.nodeid.startswith(SLOW) or item.get_closest_marker('long') is not None:
            item.add_marker('slow')
    result = yield
    longest = [item for item in items if item.nodeid.startswith(AT_ONCE)]
    others = iter([item for item in items if not item.nodeid.startswith(AT_ONCE)])
    processes: int = getattr(config, 'workerinput', {}).get('workercount', 1)
    half, share = -(-processes // 2), -(-len(items) // processes)
    shares = [longest[n::half] if n < half else [] for n in range(processes)]
    items[:] = [item for first in shares for item in (*first, *islice(others, max(0, share - len(first))))]
    return result


@pytest.fixture(scope='session')
def anyio_backend() -> str:
    return 'asyncio'


@pytest.fixture(scope='session', autouse=True)
def calls_of_closed_loops() -> Iterator[None]:
    """Let no test fail by a gRPC call of an earlier test, which was cancelled and ends after the loop of its test.

    gRPC reads the ends of all calls of a process in one of its loops, and raises there if the loop of a call is closed.
    """
    handle = TestRunner._exception_handler  # pyright: ignore[reportPrivateUsage]

    def handle_own(runner: TestRunner, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        reads_grpc = 'PollerCompletionQueue._handle_events' in context['message']
        if not (reads_grpc and str(context.get('exception')) == 'Event loop is closed'):
            handle(runner, loop, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TestRunner, '_exception_handler', handle_own)
        yield


@pytest.fixture(scope='session')
def watchdog(pytestconfig: pytest.Config) -> Watchdog:
    watchdog = Watchdog(pytestconfig.stash[fault_handler_stderr_fd_key])  # which no capture takes
    watchdog.start()
    return watchdog


@pytest.fixture(autouse=True)
def bounded(watchdog: Watchdog) -> Iterator[None]:
    """End the process rather than hang."""
    watchdog.reset()
    yield
    watchdog.reset()


@pytest.fixture(scope='session')
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server that stays up. For one that is to be ended, there is `postgres_server`."""
    with any_postgres() as server:
        yield server


@pytest.fixture(scope='session')
def temporal() -> Iterator[str]:
    """The address of a Temporal server that stays up."""
    with temporal_server() as address:
        yield address


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """The URL of an empty database."""
    with postgres.database() as url:
        yield url


# --- the watchdog: ends a test that hangs, with all its stacks and the line that it awaits

STILL = 180
"""Seconds without CPU time of this process after which the stacks are printed."""


class Watchdog(threading.Thread):
    """Watches the test that the process runs. pytest cannot interrupt a test that blocks its thread.

    Counts the seconds in which the machine runs: a machine that was stopped for an hour has lost one second.
    """

    def __init__(self, stderr: int) -> None:
        super().__init__(name='watchdog', daemon=True)
        self._stderr = stderr
        self._seconds = 0
        self._still = 0

    def reset(self) -> None:
        """A test begins or ends."""
        self._seconds = self._still = 0

    def run(self) -> None:
        used = 0.0
        while True:
            time.sleep(1)
            before, used = used, time.process_time()
            self._seconds += 1
            self._still = 0 if used - before > 0.01 else self._still + 1
            if self._still == STILL or self._seconds > TEST_LIMIT:
                faulthandler.dump_traceback(file=self._stderr, all_threads=True)
                self._print_awaits()
            if self._seconds > TEST_LIMIT:
                os._exit(1)

    def _print_awaits(self) -> None:
        """Print what each task of asyncio awaits, and what that awaits. No thread's stack has them."""
        lines: list[str] = []
        tasks = [one for one in gc.get_objects() if issubclass(type(one), asyncio.Task)]
        for task in (task for task in tasks if not task.done()):
            lines.append(f'Task {task.get_name()}:')
            awaited: Any = task.get_coro()
            while frame := getattr(awaited, 'cr_frame', None):
                lines.append(f'  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}')
                awaited = awaited.cr_await
        with suppress(OSError):  # pytest has ended in this process, and waits for the others
            os.write(self._stderr, '\n'.join([*lines, '']).encode())
