"""The tables of results.md and of docs/clients.md, made from what users have seen: `results.json`, `servers.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from interop.verdicts import ANSWERS, FORMS, GRPC_SERVERS, of_data, of_live, of_text

HERE = Path(__file__).parent
RESULTS = HERE / 'results.json'
SERVERS = HERE / 'servers.json'
PAGE = HERE.parent / 'docs' / 'clients.md'
REPORT = HERE / 'results.md'
WAYS = ('stream', 'send', 'get', 'RemoteAgent')
DATA_SERVERS = ('data', 'data as text')
LEGEND = """
- *whole*: the text of the model. *both texts*: it begins with the text before a tool call. *broken up*: it has
  additional line breaks or spaces. *doubled*: it has the text twice. *empty*: it has no text.
- *live*: the client also shows the text while the model writes it. *live twice*: a program that prints every update
  shows it twice.
"""
"""What the cells of the report say."""

Results = Mapping[str, Any]


def write(page: str) -> str:
    """The page, with its table as the results are: it stands between two comments."""
    results, _ = _read()
    block = f'<!-- data -->\n\n{_markdown(_readers(results))}\n\n<!-- end of data -->'
    page, count = re.subn('<!-- data -->.*?<!-- end of data -->', lambda _: block, page, flags=re.DOTALL)
    assert count == 1, 'the page has no place for the table'
    return page


def report() -> str:
    """All results: the tables that are too much for the page."""
    results, servers = _read()
    tables = {
        'An agent that writes one sentence': _text(results, 'talk'),
        'An agent that calls a tool between two texts': _text(results, 'tool'),
        'A result that is data': _data(results),
        'An agent that also serves gRPC': _grpc(results),
        'Versions': _versions(results),
        'Servers of other frameworks': _servers(servers),
    }
    parts = [f'## {title}\n\n{_markdown(table)}\n' for title, table in tables.items()]
    return '\n'.join(['# What users of each client see\n', 'Written by `make interop`.', LEGEND, *parts])


def _read() -> tuple[Results, Results]:
    results, servers = (json.loads(file.read_text()) for file in (RESULTS, SERVERS))
    return results, servers


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


def _in_parentheses(results: Results) -> Results:
    """The results, with what a client asks for in parentheses: its name stands in a list with commas."""
    return {re.sub(', (.*)', r' (\1)', client): shown for client, shown in results.items()}


def _readers(results: Results) -> Iterator[Sequence[str]]:
    """The clients that do not read the data of a result, with those of which the same is true in one row."""
    yield ['Clients', 'as it is', '`data_as_text=True`']
    rows = [*_data(_in_parentheses(results))][1:]
    for cells in dict.fromkeys(tuple(row[1:]) for row in rows if row[1] != 'read'):
        yield [', '.join(row[0] for row in rows if tuple(row[1:]) == cells), *cells]


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


def _grpc(results: Results) -> Iterator[Sequence[str]]:
    """What becomes of the text of an agent with a second origin for gRPC, by client that was run with it."""
    yield ['Client', *GRPC_SERVERS]
    for client, shown in results.items():
        if all(streamed := [_seen(shown, server, 'stream') for server in GRPC_SERVERS]):
            yield [client, *(_cell(seen, 'talk') for seen in streamed)]


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
