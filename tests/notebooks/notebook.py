"""Runs the notebooks of the examples, each in a kernel of its own or several in one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import groupby, islice
from pathlib import Path
from typing import Any, cast

import nbformat
from nbclient import NotebookClient

from ..bounds import LIMIT
from ..docs.blocks import ROOT

__all__ = ('NOTEBOOKS', 'read', 'run')

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
