"""The parts of messages and answers as Python values: text, data and files. Pure."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise, starmap, takewhile
from typing import Any, cast
from urllib.parse import urlsplit

from ..errors import RemoteProtocolError
from ..json_values import dump_json
from ..task_states import TERMINAL
from ..types.a2a_objects import Artifact, Message, Part, Task

_UNKNOWN = 'application/octet-stream'
_TEXT = 'text/plain'
FAILED = TERMINAL - {'completed'}
"""States of a task that has ended without an answer."""


def content_of(answer: Task | Message) -> Any:
    """Return the content of an answer: the one item, or a list of several items.

    Text becomes `str`, data becomes JSON values, and files become `BinaryContent` or a URL of the media type's kind.

    Raises:
        RemoteProtocolError: A file is not base64.
    """
    items = [item for parts in answer_parts(answer) for item in content_items(parts)]
    return items[0] if len(items) == 1 else items or ''


def answer_parts(answer: Task | Message) -> list[list[Part]]:
    """Return the parts of an answer, a list for each artifact or message. Thoughts are no answer.

    Without text or data in its artifacts, a task is answered by its status message, else by the last message of the
    agent since the last message of the user; files of the artifacts stay beside the message.
    """
    if 'parts' in answer:
        return [shown_parts(answer)]
    parts = artifact_parts(answer)
    if any('text' in part or 'data' in part for shown in parts for part in shown):
        return parts
    for message in messages_of(answer):
        if texts := [part for part in shown_parts(message) if not parts or 'text' in part or 'data' in part]:
            return [texts, *parts]
    return parts


def partial_text(answer: Task | Message) -> str:
    """Return the text in the artifacts of a task, or in a message; empty for no text."""
    shown = [shown_parts(answer)] if 'parts' in answer else artifact_parts(answer)
    return as_lines([[part for part in parts if 'text' in part] for parts in shown])


def ending_of(task: Task) -> str:
    """Return the state of a task as a sentence, with what the agent says about it."""
    text, correlation_id = status_message(task)
    shown = '' if correlation_id is None else f' Correlation id: {correlation_id}.'
    return f'The remote task {task["id"]} is {task["status"]["state"]}. {text}'.rstrip() + shown


def status_message(task: Task) -> tuple[str, str | None]:
    """Return the text of the status message, and the correlation id of a failure; empty and None without them."""
    message = task['status'].get('message')
    return (
        ('', None)
        if message is None
        else (parts_text(message['parts']), message.get('metadata', {}).get('correlationId'))
    )


def messages_of(task: Task) -> Iterator[Message]:
    """Yield the status message, and the agent's messages since the last message of the user, the last one first."""
    if (message := task['status'].get('message')) is not None:
        yield message
    yield from takewhile(lambda message: message['role'] == 'agent', reversed(task.get('history', [])))


def artifact_parts(task: Task) -> list[list[Part]]:
    """Return the parts of each artifact that has more than thoughts.

    Some agents send each piece of a text as an artifact of its own: such artifacts are one part.
    """
    artifacts = ((artifact.get('name', ''), shown_parts(artifact)) for artifact in task.get('artifacts', ()))
    return joined_pieces([(name, parts) for name, parts in artifacts if parts])


def joined_pieces(artifacts: Sequence[tuple[str, list[Part]]]) -> list[list[Part]]:
    """Return the parts of each artifact. Neighbouring artifacts that are the pieces of a text are one.

    Such pieces have one name, none of them has several lines, and a space is between two of them.

    Args:
        artifacts: The name and the parts of each artifact.
    """
    joined: list[list[Part]] = []
    for (_, may_be_piece), group in groupby(artifacts, key=lambda artifact: (artifact[0], _is_one_line(artifact[1]))):
        alike = [parts for _, parts in group]
        texts = [parts[0].get('text', '') for parts in alike] if may_be_piece else []
        joined += [[Part(text=''.join(texts))]] if any(starmap(is_space_between, pairwise(texts))) else alike
    return joined


def _is_one_line(parts: Sequence[Part]) -> bool:
    return len(parts) == 1 and 'text' in parts[0] and is_line(parts[0]['text'])


def is_line(text: str) -> bool:
    """Return True for a text whose line breaks, if any, are at its ends."""
    return '\n' not in text.strip()


def is_space_between(text: str, more: str) -> bool:
    """Return True if a text ends, or the next one begins, with a space."""
    return text.endswith(' ') or more.startswith(' ')


def shown_parts(holder: Message | Artifact) -> list[Part]:
    """Return the parts of a message or an artifact, without thoughts and empty texts."""
    if _is_thought(holder.get('metadata', {})):
        return []
    return [part for part in holder['parts'] if part.get('text') != '' and not _is_thought(part.get('metadata', {}))]


def _is_thought(metadata: Mapping[str, Any]) -> bool:
    """Return True for the metadata of a thought or a step: of this package, ADK, kagent, Agno and others."""
    if metadata.get('progress') in ('thinking', 'tool') or metadata.get('agno_content_category') == 'reasoning':
        return True
    return any(
        (name.endswith('thought') and value in (True, 'true'))
        or (name.endswith('_type') and value in ('function_call', 'function_response'))
        for name, value in metadata.items()
    )


def parts_text(parts: Iterable[Part]) -> str:
    """Return the text of parts, without data and files."""
    return ''.join(part['text'] for part in parts if 'text' in part)


def as_lines(content: Sequence[Sequence[Part]]) -> str:
    """Return content as text. Artifacts, data and URLs are on lines of their own. Files without a URL are left out."""
    lines: list[str] = []
    for parts in content:
        for is_text, group in groupby(parts, key=lambda part: 'text' in part):
            shown = [part for part in group if 'raw' not in part]
            lines += [parts_text(shown)] if is_text else map(_line, shown)
    return '\n'.join(lines)


def _line(part: Part) -> str:
    url = part.get('url', '')
    return as_text(value_of(part) if 'data' in part else url if _is_http(url) else {'url': url})


def named(part: Part) -> Part:
    """Return a part; for a file with content, its name as text."""
    if 'raw' not in part:
        return part
    return Part(data=f'[{part.get("filename", "a file")}: {part.get("media_type", _UNKNOWN)}]')


def content_items(parts: Sequence[Part]) -> list[Any]:
    """Return the content of each part. Neighbouring texts are one item."""
    items: list[Any] = []
    after_text = False
    for part in parts:
        item = _item(part)
        if after_text and 'text' in part:
            items[-1] += item
        else:
            items.append(item)
        after_text = 'text' in part
    return items


def _item(part: Part) -> Any:
    if 'text' in part:
        return part['text']
    if 'data' in part:
        return value_of(part)
    url = part.get('url', '')
    # Another URL is a file that only the remote agent can read.
    return _file(part, url) if 'raw' in part or _is_http(url) else {'url': url}


def _file(part: Part, url: str) -> Any:
    from pydantic_ai.messages import BinaryContent  # noqa: PLC0415 - commands start sooner without Pydantic AI

    from ..wire.parts.file_parts import url_kind  # noqa: PLC0415

    name = part.get('filename')
    if 'raw' in part:
        file = BinaryContent(_bytes(part['raw']), media_type=part.get('media_type', _UNKNOWN), identifier=name)
        return BinaryContent.narrow_type(file)
    media_type = part.get('media_type', _TEXT)
    return url_kind(media_type)(url=url, media_type=media_type, identifier=name)


def _is_http(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ('http', 'https')
    except ValueError:
        return False


def _bytes(raw: str) -> bytes:
    try:
        return b64decode(raw, validate=True)
    except ValueError:
        raise RemoteProtocolError('A file of the answer is not base64.') from None


def value_of(part: Part) -> Any:
    """Return data without the object in which FastA2A and this package wrap a typed result."""
    data: Any = part.get('data')
    if isinstance(data, dict) and 'json_schema' in part.get('metadata', {}):
        fields = cast('dict[str, Any]', data)
        return fields['result'] if fields.keys() == {'result'} else fields
    return cast('Any', data)


def as_text(value: Any) -> str:
    """Return a value as text: text as it is, other values as JSON."""
    return value if isinstance(value, str) else dump_json(value).decode()
