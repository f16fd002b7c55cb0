"""An official client that knows only the card of an agent, and the messages of its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
from a2a.types import Message, SendMessageRequest, Task
from google.protobuf.json_format import MessageToDict, ParseDict

from .server import LIMIT

__all__ = ('answer_of', 'declared', 'schema_of')


async def declared(url: str, word: str) -> str:
    """The URI of the extension whose description on the card has a word."""
    async with httpx.AsyncClient(timeout=LIMIT) as http:
        card = (await http.get(f'{url}.well-known/agent-card.json')).json()
    [uri] = [own['uri'] for own in card['capabilities']['extensions'] if word in own['description']]
    return uri


def schema_of(task: Task) -> dict[str, Any]:
    """The JSON Schema of the message that answers a task, from the data of the task's message."""
    message = MessageToDict(task.status.message)
    [data] = [part['data'] for part in message['parts'] if 'data' in part]
    return data['messageSchema']


def answer_of(schema: dict[str, Any], **wanted: Any) -> SendMessageRequest:
    """A message made by its schema: a value that is wanted under a name, else the first that the schema allows."""
    message = _made(schema, {'messageId': uuid4().hex, 'role': 'ROLE_USER', **wanted}, '')
    return SendMessageRequest(message=ParseDict(message, Message()))


def _made(schema: dict[str, Any], wanted: dict[str, Any], name: str) -> Any:
    if 'oneOf' in schema:
        return next(_fitting(schema['oneOf'], wanted))
    if 'const' in schema:
        return schema['const']
    if name in wanted:
        return wanted[name]
    if schema.get('type') == 'array':
        return [_made(schema['items'], wanted, name)]
    required = {*schema['required'], *(wanted.keys() & schema['properties'].keys())}
    return {own: _made(of_it, wanted, own) for own, of_it in schema['properties'].items() if own in required}


def _fitting(choices: list[dict[str, Any]], wanted: dict[str, Any]) -> Iterator[Any]:
    """The forms whose fixed values are those that are wanted."""
    for choice in choices:
        fixed = {name: of_it['const'] for name, of_it in choice['properties'].items() if 'const' in of_it}
        if all(wanted.get(name, value) == value for name, value in fixed.items()):
            yield _made(choice, wanted, '')
