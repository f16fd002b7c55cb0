"""The tables of docs/frameworks.md, made from what `results.json` says that clients have shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from interop.verdicts import of_data, of_text
from pydantic_ai_a2a.settings import TextStream

HERE = Path(__file__).parent
RESULTS = HERE / 'results.json'
PAGE = HERE.parent / 'docs' / 'frameworks.md'
DATA_SERVERS = ('data', 'data as text')

Results = Mapping[str, Any]


def write(page: str, results: Results) -> str:
    """The page, with its tables as the results are: each stands between two comments that name it."""
    for name, table in (('text', _text(results)), ('data', _data(results)), ('versions', _versions(results))):
        block = f'<!-- {name} -->\n\n{_markdown(table)}\n\n<!-- end of {name} -->'
        pattern = rf'<!-- {name} -->.*?<!-- end of {name} -->'
        page, count = re.subn(pattern, lambda _, block=block: block, page, flags=re.DOTALL)
        assert count == 1, f'the page has no place for the table {name}'
    return page


def _markdown(rows: Iterator[Sequence[str]]) -> str:
    head, *body = rows
    lines = [head, ['---'] * len(head), *body]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def _text(results: Results) -> Iterator[Sequence[str]]:
    """What becomes of a text, by client and form."""
    names = [seen['server'] for seen in next(iter(results.values()))['seen']]
    servers = [name for name in dict.fromkeys(names) if name not in DATA_SERVERS]
    yield ['Client', *(f"`'{name}'`" if name in get_args(TextStream) else name for name in servers), 'without a stream']
    for client, shown in results.items():
        yield [client, *(_streamed(shown, server) for server in servers), _sent(shown, servers[0])]


def _streamed(shown: Results, server: str) -> str:
    seen = _seen(shown, server, 'stream')
    answer = _verdict(seen)
    live = of_text(seen['live']) if 'live' in seen else answer
    return f'{answer} (live: {live})' if live not in (answer, 'empty') else answer


def _sent(shown: Results, server: str) -> str:
    seen = _seen(shown, server, 'send')
    return _verdict(seen) if seen else 'always streams'


def _verdict(seen: Results) -> str:
    return of_text(seen['answer']) if 'answer' in seen else 'error'


def _data(results: Results) -> Iterator[Sequence[str]]:
    """Whether the data of a result is read, by client."""
    yield ['Client', 'as it is', '`data_as_text=True`']
    for client, shown in results.items():
        yield [client, *(_of_data(_seen(shown, server, 'stream')) for server in DATA_SERVERS)]


def _of_data(seen: Results) -> str:
    return of_data(seen['answer']) if 'answer' in seen else 'error'


def _versions(results: Results) -> Iterator[Sequence[str]]:
    yield ['Client', 'Package', 'Speaks by', 'Run on']
    for client, shown in results.items():
        yield [client, ', '.join(f'`{package}`' for package in shown['packages']), shown['sdk'], shown['date']]


def _seen(shown: Results, server: str, way: str) -> Results:
    return next((seen for seen in shown['seen'] if (seen['server'], seen['way']) == (server, way)), {})
