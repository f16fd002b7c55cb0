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
    assert outputs['stream'][0].splitlines()[0] == 'task submitted'
    assert outputs['stream'][0].splitlines()[-1] == 'status_update completed'
    assert outputs['cancel'][0].split() == ['submitted', 'working', 'canceled']
    assert outputs['remote'] == [
        "[Day(day='Friday', sky='sunny', celsius=24.5),\n Day(day='Saturday', sky='showers', celsius=21.0)]"
    ]
