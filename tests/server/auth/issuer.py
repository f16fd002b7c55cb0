"""An issuer of tokens: what it signs, and a server of its keys that tests change, count and take down."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from jwt.algorithms import ECAlgorithm

from pydantic_ai_a2a import RequestInfo

from ...tcp_server import tcp_server

AUDIENCE = 'https://agent.example.com'
ISSUER = 'https://issuer.example.com'
SECRET = 'a secret that only the issuer and the agent know'


def claims(**changes: Any) -> dict[str, Any]:
    """Claims of ann for an hour; None takes one away."""
    usual = {'iss': ISSUER, 'aud': AUDIENCE, 'sub': 'ann', 'exp': int(time.time()) + 3600}
    return {name: value for name, value in (usual | changes).items() if value is not None}


def hs256_token(secret: str = SECRET, **changes: Any) -> str:
    """A token that is signed with a shared secret."""
    return jwt.encode(claims(**changes), secret, 'HS256')


def bearer(token: str) -> dict[str, str]:
    return {'Authorization': f'Bearer {token}'}


def request_info(query: str = '', **headers: str) -> RequestInfo:
    """A request as an authenticator sees it; header names are given with `_` for `-`."""
    raw = [(name.replace('_', '-').lower().encode(), value.encode('latin-1')) for name, value in headers.items()]
    return RequestInfo(correlation_id='test', headers=raw, query=query.encode())


class Key:
    """A key pair of the curve P-256."""

    def __init__(self, kid: str | None = 'key-1', **fields: Any) -> None:
        self.private: EllipticCurvePrivateKey = generate_private_key(SECP256R1())
        self.kid = kid
        names = {} if kid is None else {'kid': kid}
        self.public = {**ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True), **names, **fields}

    def sign(self, *, headers: dict[str, Any] | None = None, **changes: Any) -> str:
        """A token that names the key, unless the key has no name."""
        named = {} if self.kid is None else {'kid': self.kid}
        return jwt.encode(claims(**changes), self.private, 'ES256', named | (headers or {}))


class Issuer:
    """What serves its keys."""

    def __init__(self, url: str, *keys: Key) -> None:
        self.url = url
        self.asked: list[str] = []
        """The paths that it was asked for."""
        self.status = b'200 OK'
        self.held = asyncio.Event()
        """Clear it to let clients wait for an answer."""
        self.held.set()
        self.waiting = asyncio.Event()
        """Set as soon as a client waits."""
        self.discovery: dict[str, Any] = {'issuer': url, 'jwks_uri': f'{url}/keys'}
        self.keys: Any = {'keys': [key.public for key in keys]}

    def has(self, *keys: Key) -> None:
        """Have other keys from now on."""
        self.keys = {'keys': [key.public for key in keys]}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b'\r\n\r\n')).split(b' ')[1].decode()
        self.asked.append(path)
        self.waiting.set()
        await self.held.wait()
        known: dict[str, Any] = {
            '/keys': self.keys,
            '/.well-known/jwks.json': self.keys,
            '/.well-known/openid-configuration': self.discovery,
        }
        content = known.get(path.partition('?')[0])
        body: bytes = content if isinstance(content, bytes) else json.dumps(content).encode()
        head = b'HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n' % (self.status, len(body))
        writer.write(head + body)
        writer.close()


@asynccontextmanager
async def issuer(*keys: Key) -> AsyncGenerator[Issuer]:
    """An issuer whose keys are served on this machine."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await served.serve(reader, writer)

    async with tcp_server(serve) as port:
        served = Issuer(f'http://127.0.0.1:{port}', *keys)
        yield served
        served.held.set()
