"""The accepted algorithms of signatures.

This module needs no package of an extra.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

KEY_TYPES: Mapping[str, tuple[str, str | None]] = {
    'RS256': ('RSA', None),
    'RS384': ('RSA', None),
    'RS512': ('RSA', None),
    'PS256': ('RSA', None),
    'PS384': ('RSA', None),
    'PS512': ('RSA', None),
    'ES256': ('EC', 'P-256'),
    'ES384': ('EC', 'P-384'),
    'ES512': ('EC', 'P-521'),
    'EdDSA': ('OKP', 'Ed25519'),
}
"""Algorithms with a key pair, with the type and the curve of the key (RFC 7518, RFC 8037)."""

ALGORITHMS: tuple[str, ...] = tuple(KEY_TYPES)
"""Names of the algorithms. Shared secrets and `none` are not among them."""


def check_algorithms(names: Collection[str], known: Collection[str], setting: str) -> None:
    """Check the accepted algorithms of a setting.

    Raises:
        ValueError: An algorithm is not known, or there is none.
    """
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        raise ValueError(f'{setting} must be of {", ".join(known)}, not {", ".join(wrong) or "empty"}.')
