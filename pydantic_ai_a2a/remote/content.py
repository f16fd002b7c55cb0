"""Parts of a remote agent's answer as content of Pydantic AI. Pure."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast
from urllib.parse import urlsplit

from fasta2a.schema import Message, Part, Task
from pydantic_ai.messages import BinaryContent
from pydantic_core import to_json

from ..conversion.inbound import url_kind
from ..conversion.schemas import problem
from ..errors import RemoteProtocolError

__all__ = ('content_of', 'digest_id', 'output_problem', 'text_of')

_UNKNOWN = 'application/octet-stream'
_TEXT = 'text/plain'


def content_of(answer: Task | Message) -> Any:
    """Return the content of an answer: the one item, or a list of several items.

    Text becomes `str`, data becomes JSON values, and files become `BinaryContent` or a URL of the media type's kind.
    A task without artifacts is answered by its status message.

    Raises:
        RemoteProtocolError: A file is not base64.
    """
    if 'parts' in answer:
        items = _items(answer['parts'])
    else:
        artifacts = answer.get('artifacts', ())
        items = [item for artifact in artifacts for item in _items(artifact['parts'])]
        if not artifacts and (message := answer['status'].get('message')) is not None:
            items = _items(message['parts'])
    return items[0] if len(items) == 1 else items or ''


def output_problem(answer: Task | Message, schema: Mapping[str, Any] | None) -> str | None:
    """Return the fault of the data in an answer by the JSON Schema on the card; None if the data is valid."""
    if schema is None:
        return None
    if 'parts' in answer:
        parts = answer['parts']
    else:
        results = (artifact for artifact in answer.get('artifacts', ()) if artifact.get('name') == 'result')
        parts = [part for artifact in results for part in artifact['parts']]
    for part in parts:
        if 'json_schema' in part.get('metadata', {}) and 'data' in part:
            fault = problem(_result(part), schema, 'result')
            if fault is not None:
                return ' '.join(fault)
    return None


def text_of(parts: Iterable[Part]) -> str:
    """Return the text of parts, without data and files."""
    return ''.join(part['text'] for part in parts if 'text' in part)


def digest_id(*values: Any) -> str:
    """Return an id for a message, made from JSON values: equal values make equal ids."""
    return sha256(to_json(values)).hexdigest()[:32]


def _items(parts: Sequence[Part]) -> list[Any]:
    """Return the items of parts, with neighbouring texts joined."""
    items: list[Any] = []
    for part in parts:
        item = _item(part)
        if isinstance(item, str) and items and isinstance(items[-1], str) and 'text' in part:
            items[-1] += item
        else:
            items.append(item)
    return items


def _item(part: Part) -> Any:
    if 'text' in part:
        return part['text']
    if 'data' in part:
        return _result(part)
    name = part.get('filename')
    if 'raw' in part:
        file = BinaryContent(_bytes(part['raw']), media_type=part.get('media_type', _UNKNOWN), identifier=name)
        return BinaryContent.narrow_type(file)
    url = part.get('url', '')
    if not _is_http(url):
        return {'url': url}  # a file that only the remote agent can read
    media_type = part.get('media_type', _TEXT)
    return url_kind(media_type)(url=url, media_type=media_type, identifier=name)


def _is_http(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ('http', 'https')
    except ValueError:
        return False


def _bytes(raw: str) -> bytes:
    try:
        return b64decode(raw)
    except ValueError:
        raise RemoteProtocolError('A file of the answer is not base64.') from None


def _result(part: Part) -> Any:
    """Return data without the object in which FastA2A and this package wrap a typed result."""
    data: Any = part.get('data')
    if isinstance(data, dict) and 'json_schema' in part.get('metadata', {}):
        fields = cast('dict[str, Any]', data)
        return fields['result'] if fields.keys() == {'result'} else fields
    return cast('Any', data)
