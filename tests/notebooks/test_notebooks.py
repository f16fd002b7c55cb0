"""The notebooks of the examples run from the first cell to the last, and are stored without outputs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, cast

import nbformat
import pytest
from inline_snapshot import snapshot
from nbclient import NotebookClient

from ..bounds import LIMIT
from ..docs.blocks import ROOT
from ..sizes import short_or_long

FOLDER = ROOT / 'examples' / 'notebooks'
NOTEBOOKS = sorted(FOLDER.glob('*.ipynb'))


def read(path: Path) -> Any:
    """Return a stored notebook."""
    return cast('Any', nbformat).read(path, as_version=4)


def run(folder: Path, *names: str) -> list[dict[str, list[str]]]:
    """Run notebooks after each other in one kernel and one empty folder.

    For each notebook, return the outputs of the code cells by the id of the cell. The output is the HTML form of a
    value, if there is one. A cell may neither fail nor write to standard error.
    """
    notebooks = [read(FOLDER / f'{name}.ipynb') for name in names]
    session = deepcopy(notebooks[0])
    session.cells = [cell for notebook in notebooks for cell in notebook.cells]
    identifiers = [cell.id for cell in session.cells]
    for number, cell in enumerate(session.cells):
        cell.id = str(number)  # the ids of two notebooks may be the same
    client = NotebookClient(session, timeout=int(LIMIT), startup_timeout=int(LIMIT), kernel_name='python3')
    client.execute(cwd=str(folder), env={**os.environ, 'IPYTHONDIR': str(folder / '.ipython')})
    ran = iter(zip(identifiers, session.cells, strict=True))
    return [
        {name: list(_outputs(cell.outputs)) for name, cell in islice(ran, len(notebook.cells)) if 'outputs' in cell}
        for notebook in notebooks
    ]


def _outputs(outputs: Sequence[Any]) -> Iterator[str]:
    # A slow kernel sends the text of a cell in several pieces.
    for is_text, pieces in groupby(outputs, lambda output: output.output_type == 'stream'):
        if is_text:
            yield ''.join(_text(piece) for piece in pieces)
        else:
            yield from (piece.data.get('text/html', piece.data.get('text/plain')) for piece in pieces)


def _text(output: Any) -> str:
    assert output.name == 'stdout', output.text
    return output.text


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_valid_and_has_no_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == 'code']
    assert [cell.id for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert notebook.metadata == {
        'kernelspec': {'display_name': 'Python 3', 'language': 'python', 'name': 'python3'},
        'language_info': {'name': 'python'},
    }


def check_tour(outputs: dict[str, list[str]]) -> None:
    assert '>playground</a>' in outputs['serve'][0]
    assert '<strong>joker</strong>' in outputs['card'][0]
    for step in ('send', 'approve', 'table'):
        assert '<strong>completed</strong>' in outputs[step][-1]
    events = outputs['stream'][0].splitlines()
    assert (events[1], events[-1]) == ("Update(task, state='submitted')", "Update(status_update, state='completed')")
    assert events[0] == 'What do you call a bear with no teeth? A gummy bear.'
    assert '<strong>input-required</strong>' in outputs['approval'][0]
    assert 'May I call delete_file {&quot;path&quot;:&quot;a&quot;}?' in outputs['approval'][0]
    assert outputs['approve'][0] == "delete_file {'path': 'a'}\n"
    assert 'old.txt is deleted' in outputs['approve'][1]
    assert outputs['table'][0] == "day='Friday' sky='sunny' celsius=24.5\n"
    assert '<tr><td>Saturday</td><td>showers</td><td>21.0</td></tr>' in outputs['table'][1]
    assert outputs['remote'] == [
        "[Day(day='Friday', sky='sunny', celsius=24.5),\n Day(day='Saturday', sky='showers', celsius=21.0)]"
    ]
    assert outputs['cancel'][0].split() == ['submitted', 'working', 'canceled']
    assert '<strong>canceled</strong>' in outputs['cancel'][1]


def check_notebook_about_tests(outputs: dict[str, list[str]]) -> None:
    assert '<strong>input-required</strong>' in outputs['waits'][0]
    assert 'delete_file {&quot;path&quot;:&quot;a&quot;}' in outputs['waits'][0]
    assert 'a is deleted' in outputs['approve'][0]
    assert outputs['unscripted'][0].splitlines() == snapshot(
        [
            "No answer to the approval 'delete_file' with the arguments {'path': 'a'}. Add 'delete_file' to Answers.",
            'The agent has not asked about send_mail. The task is completed.',
        ]
    )
    assert outputs['function'] == ['I was told: Keep the report.\n']
    assert outputs['until'][0].split() == ['working', 'completed']
    assert outputs['record'][0].splitlines()[-1] == "Update(status_update, state='completed')"
    assert "'taskId': '<id 1>'" in outputs['record'][1]
    assert outputs['write'] == ['Writing test_keeper.py\n']
    assert '1 passed' in outputs['pytest'][0]


@pytest.mark.long
def test_notebook_cells_print_expected_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # pytest-asyncio warns if it is not configured; the other plugins are slow to import.
    monkeypatch.setenv('PYTEST_ADDOPTS', '-p no:asyncio -p no:inline_snapshot -p no:hypothesispytest')
    names = ('tour', 'test_your_agent')
    kernels = short_or_long([names], [(name,) for name in names])
    tour, about_tests = chain.from_iterable(run(tmp_path, *kernel) for kernel in kernels)
    check_tour(tour)
    check_notebook_about_tests(about_tests)
