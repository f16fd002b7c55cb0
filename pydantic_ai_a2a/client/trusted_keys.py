"""The setting for the keys that a client trusts: keys, and origins whose key sets are fetched."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..arguments import checked
from ..types.signing_keys import Key
from ..wire.signing.algorithms import ALGORITHMS, check_algorithms


@checked
@dataclass(frozen=True, kw_only=True)
class TrustedKeys:
    """Keys whose signatures are trusted, of agent cards and of push notifications. Needs the extra `jwt`."""

    keys: Sequence[Key | Mapping[str, Any]] = ()
    """Public keys: texts of PEM files, JSON Web Keys, or JSON Web Key Sets. Default: none."""
    origins: Collection[str] = ()
    """Origins such as `https://agent.example.com`, whose key sets are fetched if a signature names one in `jku`; or
    exact URLs of key sets. A key set at another URL is never fetched. Default: none."""
    algorithms: Collection[str] = ALGORITHMS
    """Accepted algorithms. Default: all of RS, PS, ES and EdDSA."""

    def __post_init__(self) -> None:
        if not self.keys and not self.origins:
            raise ValueError('TrustedKeys needs keys= or origins=: without both, no signature can be verified.')
        check_algorithms(self.algorithms, ALGORITHMS, 'TrustedKeys.algorithms')
