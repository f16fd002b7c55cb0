"""Delivery of results to clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..arguments import checked
from ..time_spans import Span
from .positive_numbers import positive
from .progress import Progress

TextStream: TypeAlias = Literal['on-request', 'mark', 'replace', 'whole', 'off']
"""The forms in which the text of an answer is streamed: see `Results.stream`."""


@checked
@dataclass(frozen=True, kw_only=True)
class Results:
    """Delivery of results to clients. The stored task is the same for all values of `stream`."""

    stream: TextStream = 'on-request'
    """Form of an answer's text for clients that watch a task.

    `'on-request'`, the default: the whole text once it is complete; clients that activate the extension `live-text-v1`
    get pieces while the model writes, and then an empty last piece. `'mark'`: all clients get these pieces.
    `'replace'`: all clients get pieces, and then the whole text as a replacement of the pieces. `'whole'`: no client
    gets pieces. `'off'`: the agent does not stream, and its card says so.
    """
    interval: Span[float] = Span(0.1)
    """Seconds during which text is gathered into one piece. The first piece is sent at once. 0 sends each piece of the
    model unchanged. Default 0.1. Also the minimum time between two partial outputs."""
    data_as_text: bool = False
    """True adds a text part with the same JSON after each data part, for clients that read only text. Default False."""

    progress: Progress = Progress()
    """Thoughts and tool calls that watching clients see. Default: none."""
    run_metadata: bool = True
    """True, the default: clients that request the run metadata extension get the usage of runs, and the card declares
    the extension."""

    client_schemas: bool = False
    """True lets a message ask for an answer that fits a JSON Schema of the client, in place of the agent's output type.
    Output functions of the agent do not run for such a message, and output validators exclude such a message. Default
    False: such a message is refused with error -32004."""

    def __post_init__(self) -> None:
        positive(self, or_zero=('interval',))
