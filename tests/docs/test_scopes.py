"""Each row of the table of scopes refuses and admits the callers that its text names."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent
from starlette.testclient import TestClient

from pydantic_ai_a2a import Access, BearerAuth, Caller, to_a2a

from .blocks import ROOT, table

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


def test_the_rows_are_those_of_the_guide() -> None:
    assert [row for row, _ in table(ROOT / 'docs' / 'authorization.md', '`Access(scopes=…)`')] == [*ROWS]


@pytest.mark.parametrize('row', ROWS)
def test_a_row_admits_callers_by_their_scopes(row: str) -> None:
    callers = {'.'.join(scopes).replace(':', '.').ljust(16, '.'): scopes for scopes in ROWS[row]}
    auth = BearerAuth({token: Caller(id=token, scopes=frozenset(scopes)) for token, scopes in callers.items()})
    app = to_a2a(Agent('test'), auth=auth, access=Access(scopes=literal_eval(row)))
    with TestClient(app) as client:
        admitted = {scopes: [*_admitted(client, token)] for token, scopes in callers.items()}
    assert admitted == {scopes: [*operations] for scopes, operations in ROWS[row].items()}
