"""Settings of what clients get: results, progress, webhooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..arguments import Span, checked
from .numbers import positive

__all__ = ('Progress', 'Push', 'Results', 'TextStream')

TextStream: TypeAlias = Literal['replace', 'mark', 'whole']
"""The forms in which the text of an answer is streamed: see `Results.stream`."""


@checked
@dataclass(frozen=True, kw_only=True)
class Progress:
    """What clients that watch a task see of its run, beside the answer: status updates, which are not kept."""

    thinking: bool = False
    """The model's thoughts, each as a whole, without signatures."""
    tools: bool = False
    """Calls of tools, with their arguments unless `hide_arguments` names the tool; and that they returned, not what."""


@checked
@dataclass(frozen=True, kw_only=True)
class Results:
    """Settings for results of runs on their way to clients. The stored task is the same with all values of `stream`."""

    stream: TextStream = 'replace'
    """Form in which clients that watch a task get the text of an answer.

    `'replace'`: in pieces, and then the whole text once more, in the place of the pieces. `'mark'`: in pieces, and then
    an empty last piece. `'whole'`: the whole text when it is complete, without pieces.
    """
    interval: Span[float] = Span(0.1)
    """Seconds for which text is gathered into one piece. The first piece is sent at once. With 0, each piece of the
    model's is sent as it is."""
    size: int = 500
    """Characters of gathered text that are sent before `interval` has passed."""
    data_as_text: bool = False
    """True: a data part is followed by a text part with the same JSON, for clients that read only text."""

    progress: Progress = Progress()
    """What clients that watch a task see of its run besides: nothing, unless told otherwise."""
    run_metadata: bool = True
    """True: clients that ask for it read what runs used; the card declares the extension."""

    def __post_init__(self) -> None:
        positive(self, or_zero=('interval',))


@checked
@dataclass(frozen=True, kw_only=True)
class Push:
    """How clients are told of their tasks at URLs of theirs (§4.3.3)."""

    timeout: Span[float] = Span(15.0)
    """Seconds that one try may take, from looking up the host's name to the answer."""
    tries: int = 8
    """How often an event is tried; then it is dead, and the command `dead-deliveries` lists it and tries it again."""
    backoff: Span[float] = Span(1.0)
    """Seconds before the second try; each pause after is four times as long, at most an hour, and up to a half longer
    or shorter by chance."""
    at_once: int = 32
    """Deliveries that this process tries at once; for one owner it begins another only while it has fewer for that one
    than it could still begin: so one alone has half of them at most."""
    configs: int = 10
    """Push notification configurations that a task may have."""
    chunks: bool = False
    """Whether webhooks of A2A 1.0 get every chunk of an artifact; else each artifact once it is whole."""
    private_hosts: Collection[str] = ()
    """Names and addresses of webhooks that may be private, and reached by `http`: `hooks.internal`, `10.0.0.7`. All
    others have to be public, by every address that their name has when it is called, and reached by `https`."""
    keys: Sequence[str] = field(default=(), repr=False)
    """Keys that URLs, tokens and credentials are stored encrypted with, as `cryptography.fernet.Fernet.generate_key`
    makes them: the first encrypts, all decrypt. Without any, they are stored as they are."""
    resolve: Callable[[str, int], Awaitable[Sequence[str]]] | None = None
    """Looks up the addresses of a host, given its name and port; None asks the system."""

    def __post_init__(self) -> None:
        positive(self)
