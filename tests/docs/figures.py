"""Writes the figures of the documentation from the results of the benchmarks: `python -m tests.docs.figures`.

`docs/performance.md` gets a table of the results, the constants of its model of the capacity, and the output of the
model.
"""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout
from io import StringIO
from textwrap import fill
from typing import Any

from benchmarks.report import RESULTS, place, shown, table

from .blocks import ROOT

PERFORMANCE = ROOT / 'docs' / 'performance.md'
_ON_THE_PAGE = re.compile(
    r'(plain send|tool call|tasks a second of one process), (memory|SQLite FULL|PostgreSQL)|recovery|memory of|blocking'
)
"""The rows that a page has room for. `benchmarks/results.md` has all."""
_TABLE = re.compile(r'(?<=<!-- results -->\n).*?(?=<!-- end of results -->)', re.DOTALL)
_MODEL = re.compile(r'```python\n(?P<code>.*?)```\n\n```text title="Output"\n(?P<output>.*?)```', re.DOTALL)


def results() -> Any:
    """Return the results of the benchmarks."""
    return json.loads(RESULTS.read_text())


def performance(page: str, measured: Any) -> str:
    """Return the page with the table of the results."""
    lines = [
        [row['name'], shown(row['value'], row['unit'])] for row in measured['rows'] if _ON_THE_PAGE.match(row['name'])
    ]
    measured_at = fill(f'Measured at {place(measured["taken"], long=True)}.', 120, break_on_hyphens=False)
    text = f'{measured_at}\n\n{table(["", "median"], lines)}\n'
    return _TABLE.sub(lambda _: f'\n{text}', page)


def constants(measured: Any) -> dict[str, str]:
    """Return the constants of the capacity model."""
    values = {row['name']: row['value'] for row in measured['rows']}
    return {
        'TASK_MS': f'{values["plain send, PostgreSQL"] * values["CPU time of the route"]:.2f}',
        'DATABASE_MS': f'{values["plain send, CPU time of the PostgreSQL server"]:.2f}',
        'IDLE_MS': f'{values["CPU time of PostgreSQL for an idle process in a second"]:.2f}',
        'COMMITS': f'{values["commits a second of PostgreSQL alone, without NOTIFY"]:.0f}',
    }


def capacity(page: str, measured: Any) -> str:
    """Return the page with the constants of the model, and with what the model prints."""
    for name, value in constants(measured).items():
        page, count = re.subn(rf'^{name} = [\d.]+', f'{name} = {value}', page, flags=re.MULTILINE)
        assert count == 1, f'the page has no constant {name}'
    model = _MODEL.search(page)
    assert model is not None, 'the page has no model'
    printed = StringIO()
    with redirect_stdout(printed):
        exec(model['code'], {})
    return page[: model.start('output')] + printed.getvalue() + page[model.end('output') :]


def main() -> None:
    measured = results()
    PERFORMANCE.write_text(capacity(performance(PERFORMANCE.read_text(), measured), measured))


if __name__ == '__main__':
    main()
