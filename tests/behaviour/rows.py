"""The behaviours that the package promises, by their names, and the mark that says which of them a test shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar, cast

import pytest

Test = TypeVar('Test', bound=Callable[..., object])


class Row(NamedTuple):
    """One behaviour."""

    name: str

    @property
    def id(self) -> str:
        """Its name as it stands in the id of a test."""
        return self.name.replace('`', '')


WIRE = (
    Row('official `a2a-sdk` 1.x client'),
    Row('official `a2a-sdk` 0.3.x client'),
    Row("FastA2A's own `A2AClient` (old names, parts without `kind`)"),
    Row('malformed JSON, empty, bad UTF-8, 100k-deep array'),
    Row('`42`, `[]` / batch, no `jsonrpc`, wrong id type'),
    Row('unknown method'),
    Row(
        'wrong or missing params, bad role or role agent, no parts, two contents in one part, `historyLength: -1`, '
        'NUL or overlong ids, lone surrogates'
    ),
    Row('50 MB body'),
    Row('`text/plain` from a foreign Origin'),
    Row('`A2A-Version: 9.9`'),
    Row('POST to the mount without trailing slash'),
    Row('mounted under FastAPI / Starlette'),
    Row('card behind a proxy or mount'),
    Row('card'),
)
TASKS = (
    Row('five 1 s tasks at once'),
    Row('blocking (1.0 default) / `returnImmediately` / 0.3 `blocking`'),
    Row('cancel a running task'),
    Row('message to a finished / unknown / other-context task'),
    Row('same message twice (messageId and content)'),
    Row('same contextId from two callers'),
    Row('new task while another waits for input in the context'),
    Row('two tasks at once in one context'),
    Row('`historyLength` 1, 0'),
    Row('`contextId: ""`'),
    Row('failed run'),
    Row('storage error in one task'),
    Row('a failed run in a context'),
    Row('reader that stops reading'),
    Row('resubscribe in mid-run'),
    Row('10,000 tasks'),
    Row('SIGTERM'),
    Row('`--workers 2`'),
)
PARTS_AND_RESULTS = (
    Row('several text parts'),
    Row('data part'),
    Row('raw without media type / text file'),
    Row('url part with media type; .png; .mp4'),
    Row('`system_prompt=`'),
    Row('str'),
    Row('model, dataclass, tuple, list, dict, int, None, union'),
    Row('BinaryImage, files in the response'),
    Row('thinking, tool calls'),
    Row('`DeferredToolRequests`'),
    Row('text between tool calls'),
    Row('first chunk'),
    Row('usage, model'),
    Row('`traceparent`'),
)

ROWS: Mapping[str, Row] = {row.name: row for row in (*WIRE, *TASKS, *PARTS_AND_RESULTS)}


def covering(*names: str) -> list[pytest.MarkDecorator]:
    """The `pytestmark` of a file whose tests show these behaviours; the ids of the tests carry their names."""
    unknown = [name for name in names if name not in ROWS]
    if unknown or not names:
        raise ValueError(f'no behaviour has the name {", ".join(map(repr, unknown))}')
    rows = tuple(ROWS[name] for name in names)
    given = pytest.param(rows, id=' + '.join(row.id for row in rows))
    return [pytest.mark.usefixtures('rows'), pytest.mark.parametrize('rows', [given])]


def covers(*names: str) -> Callable[[Test], Test]:
    """Say which behaviours a test shows, where the file has others."""
    marks = covering(*names)

    def decorate(test: Test) -> Test:
        for mark in marks:
            test = mark(test)
        return test

    return decorate


def covered_by(item: pytest.Item) -> tuple[Row, ...]:
    """The behaviours that a collected test shows."""
    if isinstance(item, pytest.Function) and hasattr(item, 'callspec'):
        return cast('tuple[Row, ...]', item.callspec.params.get('rows', ()))
    return ()
