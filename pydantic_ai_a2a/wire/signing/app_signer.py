"""The signer of an app: signs its cards and its push notifications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from pydantic_core import to_json

from ...types.signing_keys import Key
from .card_signatures import sign_card
from .jws import Signer
from .push_signatures import BODY_DIGEST, LIFETIME, NOTIFICATION_ID


class AppSigner(Signer):
    """Signs with the keys of a setting.

    Args:
        keys: Key pairs and public keys; see `Access.signing`.
        setting: Name of the setting, for errors.
        url: URL of the agent.
        key_set_url: URL of the key set.

    Raises:
        ValueError: A key cannot be used, or the first key is only a public key.
    """

    def __init__(self, keys: Sequence[Key], setting: str, url: str, key_set_url: str) -> None:
        super().__init__(keys, setting, key_set_url)
        self._url = url

    def sign_card(self, wire: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON of a card with signatures; see `card_signatures.sign_card`."""
        return sign_card(wire, self)

    def sign_push(self, url: str, notification_id: str, body: bytes, now: int) -> str:
        """Return the signature of a push notification; see `SignPush`."""
        issued = now // 1000
        claims = {
            'iss': self._url,
            'aud': _origin(url),
            'iat': issued,
            'exp': issued + LIFETIME,
            'jti': uuid4().hex,
            NOTIFICATION_ID: notification_id,
            BODY_DIGEST: sha256(body).hexdigest(),
        }
        return self.token(to_json(claims))


def _origin(url: str) -> str:
    """Return the scheme, host and port of a URL: its path and query may be secret."""
    parts = urlsplit(url)
    return f'{parts.scheme.lower()}://{parts.netloc.lower()}'
