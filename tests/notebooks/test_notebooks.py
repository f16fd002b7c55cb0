"""The notebooks of the examples run from the first cell to the last, and are stored without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from .notebook import NOTEBOOKS, read, run


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_stored_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == 'code']
    assert [cell.id for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert notebook.metadata == {
        'kernelspec': {'display_name': 'Python 3', 'language': 'python', 'name': 'python3'},
        'language_info': {'name': 'python'},
    }


def test_the_tour_shows_each_step(tmp_path: Path) -> None:
    outputs = run('tour', tmp_path)
    assert '>playground</a>' in outputs['serve'][0]
    assert '<strong>joker</strong>' in outputs['card'][0]
    for step in ('send', 'approve', 'table'):
        assert '<strong>completed</strong>' in outputs[step][0]
    events = outputs['stream'][0].splitlines()
    assert (events[0], events[-1]) == ('task submitted', 'status_update completed')
    assert '<strong>input-required</strong>' in outputs['approval'][0]
    assert 'May I call delete_file {&quot;path&quot;:&quot;a&quot;}?' in outputs['approval'][0]
    assert 'old.txt is deleted' in outputs['approve'][0]
    assert '<tr><td>Saturday</td><td>showers</td><td>21.0</td></tr>' in outputs['table'][0]
    assert outputs['remote'] == [
        "[Day(day='Friday', sky='sunny', celsius=24.5),\n Day(day='Saturday', sky='showers', celsius=21.0)]"
    ]
    assert outputs['cancel'][0].split() == ['submitted', 'working', 'canceled']
    assert '<strong>canceled</strong>' in outputs['cancel'][1]
