"""Settings for output to clients: results, progress and webhooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..arguments import Span, checked
from ..signing.algorithms import Key
from .numbers import positive

__all__ = ('Progress', 'Push', 'Results', 'TextStream')

TextStream: TypeAlias = Literal['replace', 'mark', 'whole']
"""The forms in which the text of an answer is streamed: see `Results.stream`."""


@checked
@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a run that watching clients see besides the answer, as status updates that are not stored."""

    thinking: bool = False
    """True sends the model's thoughts, each as a whole, without signatures. Default False."""
    tools: bool = False
    """True sends tool calls, and the end of each call without its result. Arguments of tools in `hide_arguments` are
    left out. Default False."""
    partial_data: bool = False
    """True sends the structured output while the model writes the output: data that validates as partial output, at
    most once in `Results.interval`. Each part replaces the part before, and the answer replaces the last. Default
    False."""
    partial_functions: bool = False
    """True allows `partial_data` for an agent with output functions or output validators, which then also run on each
    partial output, with `ctx.partial_output` True. Default False: `to_a2a` refuses such an agent."""


@checked
@dataclass(frozen=True, kw_only=True)
class Results:
    """Delivery of results to clients. The stored task is the same for all values of `stream`."""

    stream: TextStream = 'replace'
    """Form of an answer's text for clients that watch a task.

    `'replace'`, the default: pieces, then the whole text as a replacement of the pieces. `'mark'`: pieces, then an
    empty last piece. `'whole'`: the whole text once it is complete, without pieces.
    """
    interval: Span[float] = Span(0.1)
    """Seconds during which text is gathered into one piece. The first piece is sent at once. 0 sends each piece of the
    model unchanged. Default 0.1. Also the minimum time between two partial outputs."""
    size: int = 500
    """Characters of gathered text that are sent before `interval` has passed. Default 500."""
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


@checked
@dataclass(frozen=True, kw_only=True)
class Push:
    """Webhooks: push notifications to URLs that clients register (§4.3.3)."""

    timeout: Span[float] = Span(15.0)
    """Seconds of one try, from the look-up of the host's name to the answer. Default 15."""
    tries: int = 8
    """Tries of one event. Then the delivery is dead; the command `dead-deliveries` lists and retries dead deliveries.
    Default 8."""
    backoff: Span[float] = Span(1.0)
    """Seconds before the second try. Each later pause is four times as long, at most an hour, plus or minus up to a
    half at random. Default 1."""
    at_once: int = 32
    """Deliveries that this process tries at once. A further delivery for an owner begins only while the owner has fewer
    deliveries than there are free slots, so one owner alone gets at most half of the slots. Default 32."""
    configs: int = 10
    """Push notification configurations of one task. Default 10."""
    chunks: bool = False
    """True sends every chunk of an artifact to webhooks of A2A 1.0. Default False: each artifact once it is whole."""
    private_hosts: Collection[str] = ()
    """Names and addresses of webhook hosts that may be private and use `http`, such as `hooks.internal` or `10.0.0.7`.
    All other webhooks must use `https` and have only public addresses at the time of the call. Default: none."""
    keys: Sequence[str] = field(default=(), repr=False)
    """Fernet keys that encrypt stored URLs, tokens and credentials (see `cryptography.fernet.Fernet.generate_key`). The
    first key encrypts, all keys decrypt. Default: no encryption."""
    signing: Sequence[Key] = field(default=(), repr=False)
    """Keys of signatures of push notifications, as for `Access.signing`; the first key signs. Needs `url=` and the
    extra `jwt`. Default: push notifications have no signatures."""
    resolve: Callable[[str, int], Awaitable[Sequence[str]]] | None = None
    """Async function `(host, port)` that returns the addresses of a host. Default None: the system's resolver."""

    def __post_init__(self) -> None:
        positive(self)
