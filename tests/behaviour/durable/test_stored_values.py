"""What DBOS has stored of a workflow is pickles, with the paths of modules: a later version still reads them."""

from __future__ import annotations

import pickle
import re
import sqlite3
from base64 import b64decode, b64encode
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a import Artifacts, AuthRequired, InputRequired, NoCredential, Rejected
from pydantic_ai_a2a.engines.dbos_values import dump, dump_failure, load
from pydantic_ai_a2a.errors import RemoteUnavailable, StoreUnavailable
from pydantic_ai_a2a.server.agent.run_output import RunOutput
from pydantic_ai_a2a.server.conversion.failures import EngineFailure
from pydantic_ai_a2a.server.runs.workflow_run import Canceled
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile

from ...agents import echo_prompts
from ...app_client import state_of
from ...engines import DbosSetup
from ...serving import wait_until_ended
from ..durable_handover import LosesTaskAtFinish, serving_until_handover, start_task

STORED = [
    (
        (
            b'\x80\x04\x95I\x00\x00\x00\x00\x00\x00\x00\x8c\x1cpydantic_ai_a2a.agent.runner\x94\x8c\tRunOutput\x94'
            b'\x93\x94(\x8c\x06Sunny.\x94)N]\x94NN\x89N))N\x89Nt\x94\x81\x94.'
        ),
        RunOutput('Sunny.', (), None, [], cast('Any', None)),
    ),
    (
        (
            b'\x80\x04\x95]\x00\x00\x00\x00\x00\x00\x00\x8c"pydantic_ai_a2a.conversion.pending\x94\x8c\rInputRequired\x94'
            b'\x93\x94\x8c\x0bWhich city?\x94}\x94\x8c\x04type\x94\x8c\x06string\x94s\x86\x94R\x94.'
        ),
        InputRequired('Which city?', {'type': 'string'}),
    ),
    (
        (
            b'\x80\x04\x95l\x00\x00\x00\x00\x00\x00\x00\x8c"pydantic_ai_a2a.conversion.pending\x94\x8c\x0cAuthRequired\x94'
            b'\x93\x94\x8c\x0fPlease sign in.\x94]\x94\x8c\x05oauth\x94a\x8c\x11https://a.example\x94\x87\x94R\x94.'
        ),
        AuthRequired('Please sign in.', ['oauth'], 'https://a.example'),
    ),
    (
        (
            b'\x80\x04\x95:\x00\x00\x00\x00\x00\x00\x00\x8c"pydantic_ai_a2a.conversion.pending\x94\x8c\x0cNoCredential\x94'
            b'\x93\x94)R\x94.'
        ),
        NoCredential(),
    ),
    (
        (
            b'\x80\x04\x95@\x00\x00\x00\x00\x00\x00\x00\x8c"pydantic_ai_a2a.conversion.pending\x94\x8c\x08Rejected\x94'
            b'\x93\x94\x8c\x06Never.\x94\x85\x94R\x94.'
        ),
        Rejected('Never.'),
    ),
    (
        (
            b'\x80\x04\x95_\x00\x00\x00\x00\x00\x00\x00\x8c#pydantic_ai_a2a.conversion.outbound\x94\x8c\tArtifacts\x94'
            b'\x93\x94)\x81\x94N}\x94\x8c\n_artifacts\x94}\x94\x8c\x08raw data\x94]\x94K\x01ass\x86\x94b.'
        ),
        Artifacts({'raw data': [1]}),
    ),
    (
        (
            b'\x80\x04\x95V\x00\x00\x00\x00\x00\x00\x00\x8c\x1epydantic_ai_a2a.engines.engine\x94\x8c\x08Canceled\x94'
            b'\x93\x94)\x81\x94}\x94\x8c\x04text\x94\x8c\x16The run was cancelled.\x94sb.'
        ),
        Canceled('The run was cancelled.'),
    ),
    (
        (
            b'\x80\x04\x95t\x00\x00\x00\x00\x00\x00\x00\x8c!pydantic_ai_a2a.conversion.stream\x94\x8c\rEngineFailure\x94'
            b'\x93\x94(\x8c\x08internal\x94\x8c(The agent failed with an internal error.\x94\x89Nt\x94R\x94.'
        ),
        EngineFailure('internal', 'The agent failed with an internal error.', False, None),
    ),
    (
        (
            b'\x80\x04\x95w\x00\x00\x00\x00\x00\x00\x00\x8c#pydantic_ai_a2a.engines.dbos_values\x94\x8c\x0eWorkflowFailed'
            b'\x94\x93\x94(\x8c\x08internal\x94\x8c(The agent failed with an internal error.\x94\x89Nt\x94R\x94.'
        ),
        EngineFailure('internal', 'The agent failed with an internal error.', False, None),
    ),
    (
        (
            b'\x80\x04\x95Q\x00\x00\x00\x00\x00\x00\x00\x8c\x16pydantic_ai_a2a.errors\x94\x8c\x11RemoteUnavailable\x94\x93'
            b'\x94\x8c\x1aThe agent does not answer.\x94\x85\x94R\x94.'
        ),
        RemoteUnavailable('The agent does not answer.'),
    ),
    (
        (
            b'\x80\x04\x95\xce\x00\x00\x00\x00\x00\x00\x00\x8c\x16pydantic_ai_a2a.errors\x94\x8c\x10StoreUnavailable\x94\x93'
            b'\x94\x8c1The store cannot be reached now; try again later.\x94\x85\x94R\x94}\x94(\x8c\x07message\x94h\x03'
            b'\x8c\nviolations\x94)\x8c\x08metadata\x94}\x94\x8c\x07headers\x94}\x94\x8c\x0bRetry-After\x94\x8c\x011\x94s\x8c\x06detail\x94'
            b'\x8c\x08No disk.\x94\x8c\x04busy\x94\x89ub.'
        ),
        StoreUnavailable('No disk.'),
    ),
]
"""Pickles of earlier versions, with the values."""


@pytest.mark.parametrize(
    ('stored', 'value'), STORED, ids=[f'{n} {type(value).__name__}' for n, (_, value) in enumerate(STORED)]
)
def test_pickles_of_earlier_versions_are_readable(stored: bytes, value: object) -> None:
    read = pickle.loads(stored)
    assert type(read) is type(value)
    assert _content(read) == _content(value)


def _content(value: object) -> object:
    return (value.args, vars(value)) if isinstance(value, Exception) else value


LASTING = {b'pydantic_ai_a2a'}
"""The module whose path stays."""


@pytest.mark.parametrize(
    'value',
    [
        InputRequired('Which city?'),
        AuthRequired('Please sign in.'),
        NoCredential(),
        Rejected('Never.'),
        Artifacts({'map': 'Sunny.'}),
        dump_failure(EngineFailure('internal')),
    ],
    ids=lambda value: type(value).__name__,
)
def test_pickles_refer_only_to_stable_module_path(value: object) -> None:
    written = pickle.dumps(value)
    assert _modules(written) <= LASTING
    assert _content(pickle.loads(written)) == _content(value)


def _modules(pickled: bytes) -> set[bytes]:
    return {*re.findall(rb'pydantic_ai_a2a[.\w]*', pickled)}


@pytest.mark.parametrize('output', ['Sunny.', Canceled('The run was cancelled.')], ids=['answered', 'canceled'])
def test_run_result_is_pickled_without_package_modules(output: object) -> None:
    ended = RunOutput(output, (), None, [], RunUsage())
    assert load(pickle.loads(pickle.dumps(dump(ended)))) == ended
    assert not _modules(pickle.dumps(dump(ended)))


STORED_END = (
    b'\x80\x04\x95\xd8\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x06output\x94\x8c\x06Sunny.\x94\x8c\x05files\x94]\x94K\x01a'
    b'\x8c\x08streamed\x94\x8c\x02Su\x94\x8c\x08messages\x94]\x94K\x02a\x8c\x05usage\x94N\x8c\trewritten\x94]\x94K\x03a'
    b'\x8c\x05waits\x94\x88\x8c\x07schemas\x94}\x94\x8c\x01t\x94}\x94s\x8c\x05calls\x94]\x94\x8c\x01a\x94a\x8c\x05shown\x94]\x94'
    b'\x8c\x01b\x94a\x8c\x06result\x94N\x8c\rkeeps_pending\x94\x88\x8c\x06answer\x94]\x94K\x04a\x8c\x01x\x94\x86\x94\x8c\x05whole'
    b'\x94]\x94K\x05aK\x06\x86\x94u.'
)
"""The end of a run by names, as an earlier version has stored it, with a value for each name."""


def test_run_result_loads_across_versions() -> None:
    stored = pickle.loads(STORED_END)
    values: Any = ('Sunny.', [1], 'Su', [2], None, [3], True, {'t': {}}, ['a'], ['b'], None, True, ([4], 'x'), ([5], 6))
    assert load(stored) == load({**stored, 'later': 7}) == RunOutput(*values)


ROWS = {
    'answered': (
        'COMPLETED',
        'Sunny.',
        'SUCCESS',
        (
            b'\x80\x04\x95|\x00\x00\x00\x00\x00\x00\x00\x8c\x1cpydantic_ai_a2a.agent.runner\x94\x8c\tRunOutput\x94\x93\x94(\x8c\x06Sunny.\x94)N]\x94'
            b'\x8c\x11pydantic_ai.usage\x94\x8c\x08RunUsage\x94\x93\x94)\x81\x94}\x94\x8c\x07details\x94}\x94sbN\x89N))N\x89Nt\x94\x81\x94'
            b'.'
        ),
        None,
    ),
    'rejected': (
        'REJECTED',
        'Never.',
        'SUCCESS',
        (
            b'\x80\x04\x95\xb2\x00\x00\x00\x00\x00\x00\x00\x8c\x1cpydantic_ai_a2a.agent.runner\x94\x8c\tRunOutput\x94\x93\x94'
            b'(\x8c"pydantic_ai_a2a.conversion.pending\x94\x8c\x08Rejected\x94\x93\x94\x8c\x06Never.\x94\x85\x94R\x94)N]\x94'
            b'\x8c\x11pydantic_ai.usage\x94\x8c\x08RunUsage\x94\x93\x94)\x81\x94}\x94\x8c\x07details\x94}\x94sbN\x88N))N\x89Nt\x94\x81\x94'
            b'.'
        ),
        None,
    ),
    'failed': (
        'FAILED',
        'The agent failed with an internal error.',
        'ERROR',
        None,
        (
            b'\x80\x04\x95t\x00\x00\x00\x00\x00\x00\x00\x8c!pydantic_ai_a2a.conversion.stream\x94\x8c\rEngineFailure\x94'
            b'\x93\x94(\x8c\x08internal\x94\x8c(The agent failed with an internal error.\x94\x89Nt\x94R\x94.'
        ),
    ),
    'failed by values': (
        'FAILED',
        'The agent failed with an internal error.',
        'ERROR',
        None,
        (
            b'\x80\x04\x95w\x00\x00\x00\x00\x00\x00\x00\x8c#pydantic_ai_a2a.engines.dbos_values\x94\x8c\x0eWorkflowFailed'
            b'\x94\x93\x94(\x8c\x08internal\x94\x8c(The agent failed with an internal error.\x94\x89Nt\x94R\x94.'
        ),
    ),
    'answered by names': (
        'COMPLETED',
        'Sunny.',
        'SUCCESS',
        (
            b'\x80\x04\x95\xd6\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x06output\x94\x8c\x06Sunny.\x94\x8c\x05files\x94)\x8c\x08stre'
            b'amed\x94N\x8c\x08messages\x94]\x94\x8c\x05usage\x94\x8c\x11pydantic_ai.usage\x94\x8c\x08RunUsage\x94\x93\x94)\x81\x94}'
            b'\x94\x8c\x07details\x94}\x94sb\x8c\trewritten\x94N\x8c\x05waits\x94\x89\x8c\x07schemas\x94N\x8c\x05calls\x94)\x8c\x05'
            b'shown\x94)\x8c\x06result\x94N\x8c\rkeeps_pending\x94\x89\x8c\x06answer\x94N\x8c\x05whole\x94Nu.'
        ),
        None,
    ),
}
"""State of a task and a text in it; and status, output and error of its workflow, as earlier versions stored them."""


@pytest.mark.parametrize('row', ROWS.values(), ids=ROWS)
async def test_server_reads_dbos_outcome_of_earlier_version(row: tuple[Any, ...], tmp_path: Path) -> None:
    state, shown, status, *results = row
    kit = DbosSetup(tmp_path)
    agent = kit.agent(FunctionModel(echo_prompts))
    first = kit.options()
    lost = SqliteFileBackend(SqliteFile.of(first['backend']), 'agent', reader_lag=10**6)
    loses = lost.queue = LosesTaskAtFinish(lost.queue)
    async with serving_until_handover(agent, **{**first, 'backend': lost}) as client:
        task_id = await start_task(client, 'one')
        await loses.asked.wait()
    lost.close()
    with closing(sqlite3.connect(tmp_path / 'dbos.db')) as database, database:
        [(written,)] = database.execute('SELECT output FROM workflow_output').fetchall()
        assert _modules(b64decode(written)) <= LASTING
        pickles = [stored and b64encode(stored).decode() for stored in results]
        database.execute('UPDATE workflow_output SET output = ?, error = ?', pickles)
        database.execute('UPDATE workflow_status SET status = ?', [status])
    async with serving_until_handover(agent, **kit.options()) as client:
        task = await wait_until_ended(client, task_id)
    assert state_of(task) == state
    assert shown in str(task)
