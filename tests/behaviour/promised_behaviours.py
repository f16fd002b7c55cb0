"""The behaviours that the package promises, by their names, and the mark that says which of them a test shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar, cast

import pytest

Test = TypeVar('Test', bound=Callable[..., object])


class Behaviour(NamedTuple):
    """One behaviour."""

    name: str

    @property
    def id(self) -> str:
        """Its name as it stands in the id of a test."""
        return self.name.replace('`', '')


WIRE = (
    Behaviour('official `a2a-sdk` 1.x client'),
    Behaviour('official `a2a-sdk` 0.3.x client'),
    Behaviour("FastA2A's own `A2AClient` (old names, parts without `kind`)"),
    Behaviour('malformed JSON, empty, bad UTF-8, 100k-deep array'),
    Behaviour('`42`, `[]` / batch, no `jsonrpc`, wrong id type'),
    Behaviour('unknown method'),
    Behaviour(
        'wrong or missing params, bad role or role agent, no parts, two contents in one part, `historyLength: -1`, '
        'NUL or overlong ids, lone surrogates'
    ),
    Behaviour('50 MB body'),
    Behaviour('`text/plain` from a foreign Origin'),
    Behaviour('`A2A-Version: 9.9`'),
    Behaviour('POST to the mount without trailing slash'),
    Behaviour('mounted under FastAPI / Starlette'),
    Behaviour('card behind a proxy or mount'),
    Behaviour('card'),
)
TASKS = (
    Behaviour('five 1 s tasks at once'),
    Behaviour('blocking (1.0 default) / `returnImmediately` / 0.3 `blocking`'),
    Behaviour('cancel a running task'),
    Behaviour('message to a finished / unknown / other-context task'),
    Behaviour('same message twice (messageId and content)'),
    Behaviour('same contextId from two callers'),
    Behaviour('new task while another waits for input in the context'),
    Behaviour('two tasks at once in one context'),
    Behaviour('`historyLength` 1, 0'),
    Behaviour('`contextId: ""`'),
    Behaviour('failed run'),
    Behaviour('storage error in one task'),
    Behaviour('a failed run in a context'),
    Behaviour('reader that stops reading'),
    Behaviour('resubscribe in mid-run'),
    Behaviour('10,000 tasks'),
    Behaviour('SIGTERM'),
    Behaviour('`--workers 2`'),
)
PARTS_AND_RESULTS = (
    Behaviour('several text parts'),
    Behaviour('data part'),
    Behaviour('raw without media type / text file'),
    Behaviour('url part with media type; .png; .mp4'),
    Behaviour('`system_prompt=`'),
    Behaviour('str'),
    Behaviour('model, dataclass, tuple, list, dict, int, None, union'),
    Behaviour('BinaryImage, files in the response'),
    Behaviour('thinking, tool calls'),
    Behaviour('`DeferredToolRequests`'),
    Behaviour('text between tool calls'),
    Behaviour('first chunk'),
    Behaviour('usage, model'),
    Behaviour('`traceparent`'),
)

ROWS: Mapping[str, Behaviour] = {row.name: row for row in (*WIRE, *TASKS, *PARTS_AND_RESULTS)}


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


def behaviours_of(item: pytest.Item) -> tuple[Behaviour, ...]:
    """The behaviours that a collected test shows."""
    if isinstance(item, pytest.Function) and hasattr(item, 'callspec'):
        return cast('tuple[Behaviour, ...]', item.callspec.params.get('rows', ()))
    return ()
