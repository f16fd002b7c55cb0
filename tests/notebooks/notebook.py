"""Runs the notebooks of the examples, each in a new kernel."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
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


def run(name: str, folder: Path) -> dict[str, list[str]]:
    """Run a notebook in an empty folder, and return the outputs of each code cell by the id of the cell.

    The output is the HTML form of a value, if there is one. A cell may neither fail nor write to standard error.
    """
    notebook = read(FOLDER / f'{name}.ipynb')
    client = NotebookClient(notebook, timeout=int(LIMIT), startup_timeout=int(LIMIT), kernel_name='python3')
    client.execute(cwd=str(folder), env={**os.environ, 'IPYTHONDIR': str(folder / '.ipython')})
    return {cell.id: list(_outputs(cell.outputs)) for cell in notebook.cells if cell.cell_type == 'code'}


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
