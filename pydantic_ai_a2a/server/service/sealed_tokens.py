"""Page tokens that only the server reads: they name the place where a page ended, which the client may not know.

A token is encrypted and authenticated with a key that all processes of the store share: SHAKE-256 of the key and a
nonce hides the place, and a keyed BLAKE2 of both refuses changed tokens. The place belongs to the names of a list, such
as its caller and its filters.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b, shake_256
from hmac import compare_digest
from secrets import token_bytes
from typing import NamedTuple

from pydantic_core import from_json, to_json

from ...errors import InvalidParamsError
from ..store.ports import TaskReader

_NONCE = 16
_TAG = 16


class PagePosition(NamedTuple):
    """The place where a page ended."""

    before: tuple[int, str] | None = None
    """The (status_at, id) of the last task that the page has looked at; None: the list begins."""
    shown: int = 0
    """The number of tasks of others in the pages so far."""


class TokenSeal:
    """Seals and opens the tokens of a store.

    Args:
        reader: Has the key.
    """

    def __init__(self, reader: TaskReader) -> None:
        self._reader = reader
        self._key = b''

    async def sealed(self, position: PagePosition, names: Sequence[object]) -> str:
        """Return the token of a place in a list."""
        key = await self._read_key()
        nonce = token_bytes(_NONCE)
        hidden = nonce + _mixed(key, nonce, to_json(position))
        return urlsafe_b64encode(hidden + _tag(key, hidden, names)).decode()

    async def opened(self, token: str, names: Sequence[object]) -> PagePosition:
        """Return the place of a token.

        Raises:
            InvalidParamsError: The token belongs to another list, or is none.
        """
        key = await self._read_key()
        try:
            content = urlsafe_b64decode(token.encode())
        except ValueError:
            content = b''
        hidden, tag = content[:-_TAG], content[-_TAG:]
        if len(hidden) <= _NONCE or not compare_digest(tag, _tag(key, hidden, names)):
            raise InvalidParamsError.of(
                'pageToken',
                'is not a page token of this list with these filters: send the nextPageToken of a page',
            )
        before, shown = from_json(_mixed(key, hidden[:_NONCE], hidden[_NONCE:]))
        return PagePosition((before[0], before[1]), shown)

    async def _read_key(self) -> bytes:
        self._key = self._key or await self._reader.page_key()
        return self._key


def _mixed(key: bytes, nonce: bytes, content: bytes) -> bytes:
    """Encrypt or decrypt a content."""
    stream = shake_256(key + nonce).digest(len(content))
    return bytes(a ^ b for a, b in zip(content, stream, strict=True))


def _tag(key: bytes, hidden: bytes, names: Sequence[object]) -> bytes:
    return blake2b(hidden + to_json(names), key=key, digest_size=_TAG).digest()
