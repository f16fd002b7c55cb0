"""The cost of a new operation: a row, the type of its params, their decoding, and a method of the service.

The test adds an operation to a copy of the package, which another process serves.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pydantic_ai_a2a

from .bounds import LIMIT

Addition = tuple[str, str]
"""A line of a file, and the text that comes before it."""

ADDITIONS: dict[str, list[Addition]] = {
    'types/operation_params.py': [
        (
            '@frozen\nclass GetParams:',
            """
@frozen
class CountParams:
    context_id: str
    tenant: str = ''


""",
        ),
    ],
    'wire/protocol/operations.py': [
        ('from ...types.operation_params import ', 'from ...types.operation_params import CountParams\n'),
        (
            '    Operation(\n        name=_GET,',
            """
    Operation(
        name='CountTasks',
        http=(('GET', '/tasks:count'), ('POST', '/tasks:count')),
        params=CountParams,
        service='count_tasks',
        write=lambda codec, count: (b'{"count":%d}' % count,),
        scopes_of=_GET,
        counts_as=_GET,
        lists=True,
    ),
""",
        ),
    ],
    'wire/protocol/v1_0.py': [
        ('from ...types.operation_params import ', 'from ...types.operation_params import CountParams\n'),
        (
            '_Subscribe = Annotated[',
            """
@with_config(PROTO_JSON)
class _CountTasksRequest(TypedDict):
    context_id: Id


def _count_params(wire: _CountTasksRequest) -> CountParams:
    return CountParams(context_id=wire['context_id'])


_Count = Annotated[_CountTasksRequest, AfterValidator(_count_params)]
""",
        ),
        ("    'CancelTask': _Cancel,", "    'CountTasks': _Count,\n"),
    ],
    'server/service/tasks.py': [
        (
            '    async def cancel_task(',
            """
    async def count_tasks(self, call: Call, params: Any) -> int:
        listed = await self.list_tasks(call, ListParams(context_id=params.context_id))
        return listed.page.total

""",
        ),
    ],
}
"""The additions by file: the four files that a new operation needs."""

SERVE = """
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from starlette.testclient import TestClient

from pydantic_ai_a2a import to_a2a

with TestClient(to_a2a(Agent(TestModel()))) as client:

    def rpc(method, params):
        body = {'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}
        return client.post('/', json=body, headers={'A2A-Version': '1.0'}).json()

    message = {'messageId': 'm1', 'contextId': 'c1', 'role': 'ROLE_USER', 'parts': [{'text': 'hello'}]}
    rpc('SendMessage', {'message': message})
    print(rpc('CountTasks', {'contextId': 'c1'})['result'])
    print(rpc('CountTasks', {'context_id': 'c2'})['result'])
    print(rpc('CountTasks', {})['error']['message'])
    print(client.get('/tasks:count?contextId=c1').json())
    print(client.post('/tasks:count', json={'contextId': 'c1'}).json())
    print(client.get('/tasks:count').json()['error']['message'])
"""

ANSWERS = """\
{'count': 1}
{'count': 0}
Invalid parameters: contextId: Field required
{'count': 1}
{'count': 1}
Invalid parameters: contextId: Field required
"""


def test_new_operation_needs_four_files(tmp_path: Path) -> None:
    package = tmp_path / 'pydantic_ai_a2a'
    shutil.copytree(Path(pydantic_ai_a2a.__file__).parent, package, ignore=shutil.ignore_patterns('__pycache__'))
    for name, additions in ADDITIONS.items():
        text = (package / name).read_text()
        for place, addition in additions:
            before, after = text.split(place, 1)
            text = before + addition + place + after
        (package / name).write_text(text)

    served = subprocess.run(
        [sys.executable, '-c', SERVE],
        cwd=tmp_path,
        env={**os.environ, 'PYTHONPATH': str(tmp_path)},
        capture_output=True,
        check=False,
        text=True,
        timeout=LIMIT,
    )

    assert (served.stdout, served.stderr) == (ANSWERS, '')
    assert len(ADDITIONS) == 4
