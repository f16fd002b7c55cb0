"""JSON-RPC 2.0 over HTTP POST (§9): frames requests and answers. Knows the codecs' interface; no version, no agent."""

from __future__ import annotations

from collections.abc import Awaitable
from types import MappingProxyType

from starlette.types import Receive, Scope, Send

from ..errors import A2AError
from ..protocol import versions
from ..protocol.codec import RpcRefused
from ..protocol.envelope import request_id
from .base import reply
from .exchange import Exchange, Request, Serving

__all__ = ('JsonRpc',)


class JsonRpc:
    """The endpoint, as an ASGI app."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        return _JsonRpcExchange(self._serving, scope, receive, send).handle()


class _JsonRpcExchange(Exchange):
    attributes = MappingProxyType({'rpc.system': 'jsonrpc'})
    _id = b'null'
    """The request's id as JSON."""
    _wants_stream = False
    """Whether the request asks for an event stream, as far as it has been read."""
    _choice: versions.Choice | None = None

    def decode(self, body: bytes) -> Request:
        try:
            choice = self._choice = versions.choose(self.version(), body)
        except A2AError:
            self._id = request_id(body)
            raise
        try:
            request = choice.codec.decode(body)
        except RpcRefused as refused:
            self._id = refused.id
            self._wants_stream = refused.stream
            raise refused.error from None
        self._id = request.id
        self._wants_stream = request.operation.stream
        return request.operation, request.params, choice

    def frame(self, result: bytes) -> bytes:
        return b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (self._id, result)

    async def refuse(self, error: A2AError) -> None:
        """Answer with an error: HTTP 200, but for what is refused below JSON-RPC (§9.5)."""
        codec = (self._choice or versions.before_reading(self.version())).codec
        described = codec.encode_error(error, self.correlation_id)
        body = b'{"jsonrpc":"2.0","id":' + self._id + b',"error":' + described + b'}'
        media_type = self.media_type
        if self._wants_stream and codec.refuses_in_streams and not error.transport:
            body, media_type = b'data: ' + body + b'\n\n', b'text/event-stream'
        status = error.http_status if error.transport else 200
        await reply(self.send, status, body, self.correlation_id, error.headers.items(), media_type=media_type)
