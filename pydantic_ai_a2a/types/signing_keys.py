"""Keys of signatures, as settings have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Key: TypeAlias = str | bytes | Mapping[str, Any]
"""A key pair or a public key: the text of a PEM file, or a JSON Web Key (RFC 7517)."""
