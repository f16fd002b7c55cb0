"""Tools of the official client, whose calls it answers by the card and the messages alone."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.types import SendMessageRequest
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict, ParseDict

from ..behaviour.rows import covers
from .foreign_client import answer_of, declared, schema_of
from .official import BINDINGS, OFFICIAL, official_client, over, say, serving, state_of, task_of, text_of
from .server import ROOT

ROW = '`DeferredToolRequests`'
NOTE: dict[str, Any] = {
    'name': 'read_note',
    'description': 'Read a note of the user.',
    'inputSchema': {
        'type': 'object',
        'properties': {'name': {'type': 'string', 'minLength': 1, 'maxLength': 40}},
        'required': ['name'],
    },
}


def with_tools(request: SendMessageRequest, uri: str, *tools: dict[str, Any]) -> SendMessageRequest:
    ParseDict({uri: {'tools': [*tools]}}, request.message.metadata)
    return request


@covers(OFFICIAL, ROW)
@pytest.mark.parametrize('binding', BINDINGS)
async def test_the_official_client_brings_a_tool_and_answers_its_call(binding: str) -> None:
    with over(binding), serving('client_tools:app', app_dir=ROOT / 'examples') as server:
        uri = await declared(server.url, 'may declare tools')
        async with official_client(server.url, streaming=False) as client:
            without = await task_of(client.send_message(say('What is in note a?')))
            task = await task_of(client.send_message(with_tools(say('What is in note a?'), uri, NOTE)))
            [call] = [
                call
                for part in MessageToDict(task.status.message)['parts']
                for call in part.get('data', {}).get('pending', [])
            ]
            answer = answer_of(schema_of(task), decision='result', result='Buy milk.')
            done = await task_of(client.send_message(answer))
            with pytest.raises(InvalidParamsError, match='is the name of an earlier tool'):
                await task_of(client.send_message(with_tools(say('Hello!'), uri, NOTE, NOTE)))
    assert text_of(without) == 'I have no tool to read notes.'
    assert (state_of(task), call['tool'], call['args']) == ('TASK_STATE_INPUT_REQUIRED', 'read_note', {'name': 'a'})
    assert (done.id, text_of(done)) == (task.id, 'The note says: Buy milk.')
