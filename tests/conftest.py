"""Fixtures of all tests, their order, and their watchdog."""

from __future__ import annotations

import gc
import logging
import os
import ssl
import warnings
from asyncio import AbstractEventLoop
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import certifi
import pytest
from anyio._backends._asyncio import TestRunner
from hypothesis import settings

from .postgres import Postgres, shared_postgres
from .sizes import short_or_long
from .temporal import temporal_server
from .watchdog import WATCHDOG

# Before gRPC is imported: its own work in a forked process crashes some of those that start as another user, such as
# PostgreSQL.
os.environ['GRPC_ENABLE_FORK_SUPPORT'] = '0'

# The same examples in every run and process, however busy the machine is.
settings.register_profile('steady', max_examples=short_or_long(40, 100), deadline=None, derandomize=True, database=None)
settings.load_profile('steady')


SLOW = (
    'tests/behaviour/auth/test_owner_isolation.py',
    *(
        f'tests/behaviour/durable/test_{name}.py'
        for name in (
            'changed_agents',
            'deploys',
            'durable_processes',
            'engine_contract',
            'engine_ends',
            'engine_history',
            'engine_kills',
            'engine_outputs',
            'engine_processes',
            'engine_refusals',
            'engine_remote_agents',
            'engine_temporal',
            'engines',
            'leases',
            'on_waiting',
            'store_outages',
            'stored_workflows',
        )
    ),
    'tests/behaviour/wire/test_fuzz.py',
    'tests/chaos/test_chaos.py',
    'tests/commands/test_output.py',
    'tests/commands/test_postgres.py',
    'tests/commands/test_start.py',
    'tests/databases',
    'tests/docs/test_examples.py',
    'tests/docs/test_search.py',
    'tests/docs/test_web_page.py',
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
    'tests/test_backend_suites.py',
)
"""The tests of these files and folders are slow, like single tests with the mark, and those with a longer form. The
suites of backends need no marks of ours: others run them, too."""
AT_ONCE = ('tests/chaos', 'tests/test_benchmarks', 'tests/test_package', 'tests/notebooks', 'tests/playground')
"""Slow tests that begin first."""
COLLECTED = pytest.StashKey[Sequence[pytest.Item]]()
"""All tests that were collected, also those that a mark or a keyword leaves out."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(WATCHDOG)


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


def pytest_runtest_setup() -> None:
    """Take back the level of logs that a server of an earlier test has set: uvicorn sets it for the whole process."""
    for name in ('uvicorn', 'uvicorn.error'):
        logging.getLogger(name).setLevel(logging.NOTSET)


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


@pytest.fixture(scope='session', autouse=True)
def no_authorities_of_machine() -> Iterator[None]:
    """Let HTTP clients of this process trust no authority of the machine: each client takes 20 ms to load them.

    Servers of tests have their own authorities.
    """
    load = ssl.SSLContext.load_verify_locations
    machine = {os.environ.get('SSL_CERT_FILE'), ssl.get_default_verify_paths().openssl_cafile, certifi.where()}

    def load_others(context: ssl.SSLContext, cafile: Any = None, capath: Any = None, cadata: Any = None) -> None:
        if cafile not in machine or cadata is not None:
            load(context, cafile, capath, cadata)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, 'load_verify_locations', load_others)
        yield


@pytest.fixture(scope='session')
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server that stays up. For one that is to be ended, there is `postgres_server`."""
    with shared_postgres() as server:
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


@pytest.fixture
def postgres_tables_url(postgres: Postgres) -> Iterator[str]:
    """The URL of a database without rows, often with the tables of an earlier test: making them takes 0.1 s.

    For a test that does not change tables.
    """
    with postgres.database('a2a') as url:
        yield url
