"""Webhooks: push notifications to URLs that clients register."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from ..arguments import checked
from ..types.signing_keys import Key
from .positive_numbers import positive


class _FixedPush:
    """Times and numbers that fit every server. Tests have others, in subclasses of `Push`."""

    timeout = 15.0
    """Seconds of one try, from the look-up of the host's name to the answer."""
    backoff = 1.0
    """Seconds before the second try. Each later pause is four times as long, at most an hour, plus or minus up to a
    half at random."""
    at_once = 32
    """Deliveries that this process tries at once. A further delivery for an owner begins only while the owner has fewer
    deliveries than there are free slots, so one owner alone gets at most half of the slots."""
    configs = 10
    """Push notification configurations of one task."""
    resolve: Callable[[str, int], Awaitable[Sequence[str]]] | None = None
    """Async function `(host, port)` that returns the addresses of a host. None: the system's resolver."""


@checked
@dataclass(frozen=True, kw_only=True)
class Push(_FixedPush):
    """Webhooks: push notifications to URLs that clients register (§4.3.3)."""

    tries: int = 8
    """Tries of one event. Then the delivery is dead; the command `dead-deliveries` lists and retries dead deliveries.
    Default 8."""
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

    def __post_init__(self) -> None:
        positive(self)
