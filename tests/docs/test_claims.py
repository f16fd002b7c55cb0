"""What the documentation lists is what the package has: names, settings, errors, scopes, figures, rooms, links."""

from __future__ import annotations

import json
import re
import subprocess
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import timedelta
from inspect import isabstract, signature
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pydantic_ai import Agent
from starlette.testclient import TestClient

import pydantic_ai_a2a
from pydantic_ai_a2a import (
    Access,
    Approvals,
    BearerAuth,
    Caller,
    Limits,
    Messages,
    Postgres,
    Progress,
    Push,
    Quotas,
    Results,
    Retention,
    RunOptions,
    Workers,
    errors,
    store,
    to_a2a,
)
from pydantic_ai_a2a.server.agent.run_arguments import RunArguments
from pydantic_ai_a2a.server.agent.run_output import RunOutput
from pydantic_ai_a2a.server.store.sql.unanswered_tasks import EXPIRED
from pydantic_ai_a2a.wire.protocol.v1_0 import V1_0

from ..bounds import LIMIT
from ..cases import each_case
from .blocks import ROOT, blocks, table
from .figures import PERFORMANCE, capacity, performance, results
from .pictures import STATES, states
from .rooms import HOUSES, PICTURE, layers, picture, rooms

PACKAGE = ROOT / 'pydantic_ai_a2a'
DOCS = ROOT / 'docs'


def test_reference_lists_every_public_name() -> None:
    text = '\n'.join((DOCS / f'{page}.md').read_text() for page in ('reference', 'reference-clients'))
    members = re.findall(r'^::: pydantic_ai_a2a\.(?:server\.app\.serve\.)?(\w+)$', text, re.MULTILINE)
    assert sorted(members) == sorted(vars(pydantic_ai_a2a)['__all__'])


def test_settings_page_lists_actual_defaults() -> None:
    documented = {name: default for name, default, _ in table(DOCS / 'settings.md', 'Setting')}
    limits, results = (Limits(), Quotas()), (Progress(), Results(), Push())
    settings = (Access(), Approvals(), Messages(), *limits, Retention(), Workers(), *results)
    assert documented == {
        f'{type(each).__name__}.{field.name}': _spoken(getattr(each, field.name))
        for each in settings
        for field in fields(each)
    }


def test_to_a2a_page_lists_actual_defaults() -> None:
    documented = {name: default for name, default, _ in table(DOCS / 'to-a2a.md', 'Argument')}
    arguments = signature(to_a2a).parameters
    assert documented == {name: _source(arguments[name].default) for name in ARGUMENTS}
    assert len(ARGUMENTS) <= 37


def _source(default: object) -> str:
    """Return a default as written in the signature."""
    return f'{type(default).__name__}()' if is_dataclass(default) else repr(default)


def test_postgres_page_lists_actual_defaults() -> None:
    documented = {name: default for name, default, _ in table(DOCS / 'postgresql.md', '`Postgres(url, ...)`')}
    database = Postgres('postgresql://host/database')
    defaults = {field.name: getattr(database, field.name) for field in fields(database) if field.name != 'url'}
    written = {name: _number(default) for name, default in defaults.items()}
    assert documented == {name: 'none' if each is None else repr(each) for name, each in written.items()}


def _number(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _spoken(value: object) -> str:
    if not isinstance(value, timedelta):
        return str(value)
    number, unit = (value.days, 'day') if value.days else (value.seconds // 60, 'minute')
    return f'{number} {unit}{"" if number == 1 else "s"}'


def test_errors_page_lists_all_client_errors() -> None:
    documented = {(int(code), int(http), reason) for code, http, reason, _ in table(DOCS / 'errors.md', 'Code')}
    classes = [getattr(errors, name) for name in errors.__all__]
    assert documented == {_on_the_wire(each()) for each in classes if issubclass(each, errors.A2AError)}


def _on_the_wire(error: errors.A2AError) -> tuple[int, int, str]:
    reason = re.search(rb'"reason":"(\w+)"', V1_0().encode_error(error, 'correlation-id'))
    assert reason is not None
    return error.code, error.http_status if error.transport else 200, reason[1].decode()


def _ports() -> set[str]:
    """Return the names of the ports of a backend."""
    hints = get_type_hints(store.Backend).values()
    return {kind.__name__ for hint in hints for kind in (hint, *get_args(hint)) if isabstract(kind)}


def _found(pattern: str, path: str) -> set[str]:
    """Return what a pattern finds in a module."""
    return {*re.findall(pattern, (PACKAGE / path).read_text())}


ARGUMENTS = [*signature(to_a2a).parameters.keys() - {'agent', 'run'}]
SAME_AT_ENGINES = {
    *('name', 'url', 'version', 'description', 'provider', 'skills', 'extensions', 'docs_url'),
    *('security_schemes', 'security_requirements', 'default_input_modes', 'default_output_modes'),
    *('auth', 'access', 'approvals', 'limits', 'push', 'retention', 'engine', 'on_waiting'),
    *('debug', 'routes', 'middleware', 'exception_handlers', 'lifespan'),
}
"""The arguments that an engine does not change."""
NAMES: dict[tuple[str, str], Callable[[], set[str]]] = {
    ('to-a2a.md', 'Run option'): lambda: {*RunOptions.__annotations__},
    ('durable-engines.md', 'Argument'): lambda: {*ARGUMENTS} - SAME_AT_ENGINES | {'all others', 'options of every run'},
    ('../CONTRIBUTING.md', 'Field of a run'): lambda: {field.name for field in fields(RunArguments)},
    ('../CONTRIBUTING.md', 'Field of an output'): lambda: {*RunOutput._fields},
    ('errors.md', 'Kind'): lambda: _found(r"Failure\('([\w-]+)'", 'server/conversion/failures.py') | {EXPIRED},
    ('observe.md', 'Metric'): lambda: _found(r"create_\w+\(\s*'([\w.]+)'", 'telemetry/metrics.py'),
    ('architecture.md', 'Port'): lambda: _ports() | {'Backend', 'ConversationStore'},
    ('authorization.md', '`Access(scopes=…)`'): lambda: {*ROWS},
}
"""The names in the first column of a table, by the page and the heading of the column."""


@each_case('place', NAMES, ids=' '.join)
def test_docs_table_lists_all_names_in_code(place: tuple[str, str]) -> None:
    page, heading = place
    cells = [row[0] for row in table(DOCS / page, heading)]
    # Only the values of a row of scopes have commas.
    listed = cells if heading.startswith('`') else [name for cell in cells for name in cell.split(', ')]
    assert sorted(listed) == sorted(NAMES[place]())


def test_backend_ports_are_public() -> None:
    assert _ports() <= {*store.__all__}


def test_contributing_lists_every_house_and_room() -> None:
    tree = (ROOT / 'CONTRIBUTING.md').read_text().partition('```text\n')[2].partition('```')[0]
    paths: list[str] = []
    folders: list[str] = []
    for indent, name in re.findall(r'^( *)(\S+) +\w', tree, re.MULTILINE):
        folders[len(indent) // 2 :] = [name]
        paths.append(''.join(folders))
    assert [path for path in paths if not (PACKAGE / path).exists()] == []
    leaves = {leaf for layer in layers()[3:] for leaf in layer}
    assert {*HOUSES, *rooms()} - leaves <= {path.rstrip('/').removesuffix('.py') for path in paths}


def test_message_path_picture_names_existing_rooms() -> None:
    boxes = set(re.findall(r'<text x=[^>]*>([\w ]+)</text>', (DOCS / 'message-path.svg').read_text()))
    assert boxes
    assert boxes <= {room.rpartition('/')[2] for room in rooms()}


def test_each_room_has_module_docstring() -> None:
    texts = {path.relative_to(PACKAGE).parent.as_posix(): path.read_text() for path in PACKAGE.glob('**/__init__.py')}
    assert [room for room, text in texts.items() if not text.startswith('"""')] == []


def test_sql_package_docstring_names_each_module() -> None:
    folder = PACKAGE / 'server' / 'store' / 'sql'
    named = re.findall(r'`(\w+)`', (folder / '__init__.py').read_text())
    assert sorted(named) == sorted({path.stem for path in folder.glob('*.py')} - {'__init__'})


LINK = r'\]\(([^)#]+)'
FILE = r'`((?:pydantic_ai_a2a|\.ci|benchmarks|docs|examples|interop|tests)/[\w./-]+)`'
PATHS = [
    ('README.md', r'\]\((?!\w+://)([^)#]+)'),
    *((f'{page}.md', LINK) for page in ('CHANGELOG', 'SECURITY', 'SUPPORT')),
    *((f'{page}.md', FILE) for page in ('CONTRIBUTING', 'docs/architecture', 'docs/how-it-works', 'tests/README')),
]
"""Pages, each with a pattern of the files that it names."""


@each_case(('page', 'pattern'), PATHS, ids=[page for page, _ in PATHS])
def test_linked_and_named_files_exist(page: str, pattern: str) -> None:
    paths = re.findall(pattern, (ROOT / page).read_text())
    assert paths or pattern == FILE  # those pages may name none
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_modules_of_ten_examples_exist() -> None:
    text = (ROOT / 'CONTRIBUTING.md').read_text().partition('### Ten examples')[2].partition('\n## ')[0]
    modules = {*re.findall(r'`((?:\w+/)*\w+\.py)`', text)} - {'__init__.py'}
    assert modules
    assert [module for module in modules if not (PACKAGE / module).exists()] == []


def test_documented_test_helpers_exist() -> None:
    text = (ROOT / 'tests' / 'README.md').read_text()
    rows = re.findall(r'^\| .+ \| (.*`.+`.*) \| (`.+`) \|$', text, re.MULTILINE)
    assert rows
    for names, files in rows:
        code = '\n'.join((ROOT / file).read_text() for file in re.findall('`(.+?)`', files))
        for name in re.findall('`(.+?)`', names):
            assert re.search(rf'^(async def |def |class |from .* import |){name}\b', code, re.MULTILINE), name


@each_case(('path', 'draw'), [(PICTURE, picture), (STATES, states)], ids=['rooms', 'pictures'])
def test_picture_matches_drawing_script(path: Path, draw: Callable[[], str]) -> None:
    assert path.read_text() == draw(), f'run the script of {path.name}: python -m tests.docs.rooms, tests.docs.pictures'


@pytest.mark.parametrize('path', [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md'], ids=lambda path: path.stem)
def test_documented_make_targets_exist(path: Path) -> None:
    told = subprocess.run(['make', 'help'], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=True).stdout
    targets = set(re.findall(r'^make (\w+)', told, re.MULTILINE))
    commands = [words for block in blocks(path) for words in block.words if words[0] == 'make']
    named = {words[1] for words in commands} | set(re.findall(r'`make (\w+)', path.read_text()))
    assert named
    assert named <= targets | {'help'}


def test_server_comparison_matches_interop_results() -> None:
    rows = {row[0]: row[1:] for row in table(ROOT / 'README.md', 'November 2026')}
    ends = {'completed': 'the run goes on', 'working': 'the task stays working', 'Task not found': 'the task is gone'}
    for column, shown in enumerate(json.loads((ROOT / 'interop' / 'peers.json').read_text()).values()):
        facts = {
            'Two tasks at a time': 'yes' if shown['two tasks'][-1] == 'together' else 'no',
            'A cancel stops the run': 'yes' if 'canceled stopped' in shown['canceled'] else 'no',
            'After kill -9': ends[shown['killed'][0]],
            'Tools that need an approval': 'yes' if shown['approve'] == 'input_required' else 'no',
        }
        for row, fact in facts.items():
            cell = rows[row][column]
            assert cell == fact or cell.startswith('[')


@each_case(
    ('write', 'shown'),
    [(performance, '| plain send, memory |'), (capacity, '\n     1000       10000 ')],
    ids=['results', 'model of the capacity'],
)
def test_performance_page_matches_benchmark_results(write: Callable[[str, Any], str], shown: str) -> None:
    page = PERFORMANCE.read_text()
    assert page == write(page, results()), 'run: python -m tests.docs.figures'
    assert shown in page


# --- the table of scopes: each row refuses and admits the callers that its text names

READ, WRITE, CANCEL = 'tasks:read', 'tasks:write', 'tasks:cancel'
SENDS, READS, CANCELS = (
    ('SendMessage', 'SendStreamingMessage'),
    ('GetTask', 'ListTasks', 'SubscribeToTask'),
    ('CancelTask',),
)
ALL = (*SENDS, *READS, *CANCELS)
ROWS: dict[str, Mapping[tuple[str, ...], Sequence[str]]] = {
    "{'CancelTask': 'tasks:cancel'}": {(): (*SENDS, *READS), (CANCEL,): ALL},
    "{'SendMessage': 'tasks:write', 'CancelTask': 'tasks:write'}": {(): READS, (READ,): READS, (WRITE,): ALL},
    "{'GetTask': 'tasks:read', '*': 'tasks:write'}": {(): (), (READ,): READS, (WRITE,): (*SENDS, *CANCELS)},
    "{'CancelTask': ['tasks:write', 'tasks:cancel']}": {
        (WRITE,): (*SENDS, *READS),
        (CANCEL,): (*SENDS, *READS),
        (WRITE, CANCEL): ALL,
    },
}
"""The operations that callers with these scopes may perform, by row."""


def _admitted(client: TestClient, token: str) -> Iterator[str]:
    """Perform all operations, and return the names of the admitted operations."""
    for operation in ALL:
        params: dict[str, Any] = {} if operation == 'ListTasks' else {'id': 'task-1'}
        if operation in SENDS:
            params = {'message': {'messageId': 'm', 'role': 'ROLE_USER', 'parts': [{'text': 'Hi'}]}}
        request = {'jsonrpc': '2.0', 'id': 1, 'method': operation, 'params': params}
        headers = {'Authorization': f'Bearer {token}', 'A2A-Version': '1.0'}
        answer = client.post('/', json=request, headers=headers)
        assert answer.status_code in (200, 403)
        if answer.status_code == 200:
            yield operation


@pytest.mark.parametrize('row', ROWS)
def test_documented_scopes_admit_listed_operations(row: str) -> None:
    callers = {'.'.join(scopes).replace(':', '.').ljust(16, '.'): scopes for scopes in ROWS[row]}
    auth = BearerAuth({token: Caller(id=token, scopes=frozenset(scopes)) for token, scopes in callers.items()})
    app = to_a2a(Agent('test'), auth=auth, access=Access(scopes=literal_eval(row)))
    with TestClient(app) as client:
        admitted = {scopes: [*_admitted(client, token)] for token, scopes in callers.items()}
    assert admitted == {scopes: [*operations] for scopes, operations in ROWS[row].items()}
