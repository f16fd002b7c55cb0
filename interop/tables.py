"""The tables of docs/frameworks.md, made from what `results.json` and `servers.json` say that users have seen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from interop.verdicts import ANSWERS, FORMS, of_data, of_live, of_text

HERE = Path(__file__).parent
RESULTS = HERE / 'results.json'
SERVERS = HERE / 'servers.json'
PAGE = HERE.parent / 'docs' / 'frameworks.md'
WAYS = ('stream', 'send', 'get', 'RemoteAgent')
DATA_SERVERS = ('data', 'data as text')

Results = Mapping[str, Any]


def write(page: str) -> str:
    """The page, with its tables as the results are: each stands between two comments that name it."""
    results, servers = (json.loads(file.read_text()) for file in (RESULTS, SERVERS))
    tables = {
        **{agent: _text(results, agent) for agent in ANSWERS},
        'data': _data(results),
        'versions': _versions(results),
        'servers': _servers(servers),
    }
    for name, table in tables.items():
        block = f'<!-- {name} -->\n\n{_markdown(table)}\n\n<!-- end of {name} -->'
        pattern = rf'<!-- {name} -->.*?<!-- end of {name} -->'
        page, count = re.subn(pattern, lambda _, block=block: block, page, flags=re.DOTALL)
        assert count == 1, f'the page has no place for the table {name}'
    return page


def _markdown(rows: Iterator[Sequence[str]]) -> str:
    head, *body = rows
    lines = [head, ['---'] * len(head), *body]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def _text(results: Results, agent: str) -> Iterator[Sequence[str]]:
    """What becomes of an agent's text, by client and form."""
    yield ['Client', 'default', *(f"`'{form}'`" for form in FORMS[1:]), 'without a stream']
    for client, shown in results.items():
        streamed = (_cell(_seen(shown, f'{agent} {form}', 'stream'), agent) for form in FORMS)
        sent = _seen(shown, f'{agent} {FORMS[0]}', 'send')
        yield [client, *streamed, _cell(sent, agent) if sent else 'always streams']


def _cell(seen: Results, agent: str) -> str:
    if 'error' in seen:
        return 'error'
    live = of_live(seen.get('live', ()), ANSWERS[agent])
    return ', '.join(filter(None, [of_text(seen['answer'], ANSWERS[agent]), live]))


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


def _servers(servers: Results) -> Iterator[Sequence[str]]:
    """What the client of this package shows of each server."""
    yield ['Server', 'Package', 'Interfaces', *(f'`{way}`' for way in WAYS), 'Run on']
    for server, shown in servers.items():
        packages, offers = ', '.join(f'`{package}`' for package in shown['packages']), ', '.join(shown['offers'])
        cells = [_cell(seen, 'talk') for way in WAYS for seen in shown['seen'] if seen['way'] == way]
        yield [server, packages, offers, *cells, shown['date']]


def _seen(shown: Results, server: str, way: str) -> Results:
    return next((seen for seen in shown['seen'] if (seen['server'], seen['way']) == (server, way)), {})
