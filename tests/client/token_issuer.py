"""An issuer of tokens on this machine: metadata, keys and a token endpoint, which tests change and count."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

from ..server.auth.issuer import Key
from ..tcp_server import tcp_server

__all__ = ('OAUTH', 'OPENID', 'TokenIssuer', 'token_issuer')

OPENID = '/.well-known/openid-configuration'
OAUTH = '/.well-known/oauth-authorization-server'


class TokenIssuer:
    """An issuer. `answers` has its answers by path: a status, and JSON or bytes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.key = Key()
        self.paths: list[str] = []
        """The paths of the requests."""
        self.granted: list[tuple[dict[str, str], str | None]] = []
        """The forms of the requests for tokens, each with the header `Authorization`."""
        self.lifetime: Any = 3600
        self.busy: dict[str, int] = {}
        """The number of the next requests of a path that get HTTP 503."""
        self.metadata: dict[str, Any] = {'issuer': url, 'jwks_uri': f'{url}/keys', 'token_endpoint': f'{url}/token'}
        self.answers: dict[str, tuple[int, Any]] = {OPENID: (200, self.metadata), '/keys': (200, self.keys)}

    @property
    def keys(self) -> dict[str, Any]:
        return {'keys': [self.key.public]}

    def token(self) -> dict[str, Any]:
        """Return the answer with the next token."""
        token = self.key.sign(iss=self.url, sub='robot', jti=str(len(self.granted)))
        return {'access_token': token, 'token_type': 'Bearer', 'expires_in': self.lifetime}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b'\r\n\r\n')).decode()
        lines = [line.split(': ', 1) for line in head.split('\r\n')[1:] if line]
        headers = {name.lower(): value for name, value in lines}
        body = await reader.readexactly(int(headers.get('content-length', 0)))
        path = head.split(' ')[1]
        self.paths.append(path)
        if path == '/token':
            self.granted.append((dict(parse_qsl(body.decode())), headers.get('authorization')))
        status, answer = self.answers.get(path) or ((200, self.token()) if path == '/token' else (404, {}))
        if self.busy.get(path):
            self.busy[path] -= 1
            status = 503
        content: bytes = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        writer.write(b'HTTP/1.1 %d -\r\nContent-Length: %d\r\nConnection: close\r\n\r\n' % (status, len(content)))
        writer.write(content)
        writer.close()


@asynccontextmanager
async def token_issuer() -> AsyncGenerator[TokenIssuer]:
    """An issuer that listens for the block."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await issuer.serve(reader, writer)

    async with tcp_server(serve) as port:
        issuer = TokenIssuer(f'http://127.0.0.1:{port}')
        yield issuer
