"""HTML forms of servers, tasks and agent cards, as notebooks show the values. All text of other programs is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, cast

_MOST_TEXT = 10_000
"""Characters of a text, of a cell or of JSON that are shown."""
_MOST_ROWS = 100
_MOST_COLUMNS = 20


class HtmlTask(dict[str, Any]):
    """A task that a notebook shows with its state and its artifacts, and without its history."""

    def _repr_html_(self) -> str:
        return task_html(self)


def task_html(task: Mapping[str, Any]) -> str:
    """Return a task with its state and its artifacts, and without its history."""
    status = task['status']
    asked = [part for part in status.get('message', {}).get('parts', ()) if 'text' in part]
    artifacts = (_artifact(artifact) for artifact in task.get('artifacts', ()))
    head = f'<p>Task <code>{_text(task["id"])}</code>: <strong>{_text(status["state"])}</strong></p>'
    return ''.join([head, *map(_part, asked), *artifacts])


class HtmlCard(dict[str, Any]):
    """An agent card that a notebook shows with the skills and the interfaces of the agent."""

    def _repr_html_(self) -> str:
        skills = ((skill['name'], skill['description']) for skill in self['skills'])
        interfaces = (
            (interface['url'], interface['protocol_binding'], interface['protocol_version'])
            for interface in self['supported_interfaces']
        )
        return ''.join(
            [
                f'<p><strong>{_text(self["name"])}</strong> {_text(self["version"])}</p>',
                f'<p>{_text(self["description"])}</p>',
                _table(('Skill', 'Description'), skills),
                _table(('Interface', 'Binding', 'Version'), interfaces),
            ]
        )


def server_html(url: str, docs_url: str | None) -> str:
    """Return links to a server and to the playground of the server."""
    playground = '' if docs_url is None else f', {_link(docs_url, "playground")}'
    return f'<p>Server at {_link(url, url)}{playground}</p>'


def _link(url: str, text: str) -> str:
    return f'<a href="{escape(url)}" target="_blank" rel="noopener noreferrer">{escape(text)}</a>'


def _artifact(artifact: dict[str, Any]) -> str:
    name = artifact.get('name')
    heading = f'<h4>{_text(name)}</h4>' if name else ''
    return ''.join([heading, *map(_part, artifact['parts'])])


def _part(part: dict[str, Any]) -> str:
    if 'text' in part:
        return text_html(part['text'])
    if 'data' in part:
        return _data(part['data'])
    name, media_type = part.get('filename') or 'file', part.get('media_type') or 'unknown type'
    return f'<p>{_text(name)} ({_text(media_type)})</p>'


def _data(data: Any) -> str:
    """Return data as a table if the data is an object or a list of objects, else as JSON."""
    if isinstance(data, dict) and data.keys() == {'result'}:  # the object around a typed result
        data = cast('Any', data['result'])
    if data and isinstance(data, dict):
        return _table(('Field', 'Value'), cast('dict[str, Any]', data).items())
    if isinstance(data, list) and all(isinstance(row, dict) for row in cast('list[Any]', data)):
        rows = cast('list[dict[str, Any]]', data)
        columns = list(dict.fromkeys(name for row in rows for name in row))
        if 0 < len(columns) <= _MOST_COLUMNS:
            return _table(columns, ([row.get(name, '') for name in columns] for row in rows))
    return text_html(json.dumps(data, indent=2, ensure_ascii=False))


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return the first rows as a table; an empty text without rows."""
    listed = list(rows)
    if not listed:
        return ''
    head = ''.join(f'<th>{_text(name)}</th>' for name in columns)
    cells = (''.join(f'<td>{_cell(value)}</td>' for value in row) for row in listed[:_MOST_ROWS])
    body = ''.join(f'<tr>{row}</tr>' for row in cells)
    more = f'<p>{len(listed) - _MOST_ROWS} more rows</p>' if len(listed) > _MOST_ROWS else ''
    return f'<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}'


def _cell(value: Any) -> str:
    return _text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def text_html(text: str) -> str:
    """Return a text with its line breaks."""
    return f'<pre style="white-space: pre-wrap">{_text(text)}</pre>'


def _text(text: str) -> str:
    return escape(text if len(text) <= _MOST_TEXT else f'{text[:_MOST_TEXT]}…')
