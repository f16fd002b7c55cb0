"""The JSON-RPC 2.0 binding over HTTP POST (§9): reads request objects and writes response objects."""

from __future__ import annotations

from collections.abc import Awaitable

from starlette.types import Message, Receive, Scope, Send

from ...errors import A2AError
from ...wire.protocol.missing_capabilities import refuse_unsupported_params
from ...wire.protocol.refused_requests import RpcRefused
from ...wire.protocol.rpc_requests import request_id
from ...wire.protocol.value_count import check_values
from ...wire.protocol.versions import CodecChoice
from ..service.request_flow import DecodedRequest, Serving
from .asgi_requests import requested_version
from .exchange import HttpExchange
from .replies import reply


class JsonRpc:
    """The endpoint, as an ASGI app."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        return _JsonRpcExchange(self._serving, scope, receive, send).serve()


class _JsonRpcExchange(HttpExchange):
    _id = b'null'
    """The request's id, as JSON."""
    _wants_stream = False
    """True if the request asks for an event stream; False until the request is decoded."""
    _choice: CodecChoice | None = None

    def decode(self, body: bytes) -> DecodedRequest:
        if len(body) > self.serving.limits.values:  # long enough to hold too many values, at a byte each
            check_values(body, self.serving.limits.values)
        try:
            choice = self._choice = self.serving.versions.choose(requested_version(self.scope), body)
        except A2AError:
            self._id, notification = request_id(body)
            self._expect(notification=notification)
            raise
        try:
            request = choice.codec.decode(body)
        except RpcRefused as refused:
            self._id = refused.id
            self._wants_stream = refused.operation is not None and refused.operation.stream
            self._expect(notification=refused.notification)
            if refused.operation is not None:
                capabilities, refusals = self.serving.dispatcher.card.capabilities, choice.codec.refusals
                refuse_unsupported_params(refused.operation, refused.error, capabilities, refusals)
            raise refused.error from None
        self._id = request.id
        self.envelope = b'{"jsonrpc":"2.0","id":%s,"result":' % request.id, b'}'
        self._wants_stream = request.operation.stream
        if request.notification:
            self._expect(notification=True)
        return request.operation, request.params, choice

    def _expect(self, *, notification: bool) -> None:
        if notification:
            self.unanswered = True
            self.send = _without_body(self.send)

    async def refuse(self, error: A2AError) -> None:
        """Answer with an error: with HTTP 200, or with the status of an error below JSON-RPC (§9.5)."""
        codec = (self._choice or self.serving.versions.before_reading(requested_version(self.scope))).codec
        described = codec.encode_error(error, self.correlation_id)
        body = b'{"jsonrpc":"2.0","id":' + self._id + b',"error":' + described + b'}'
        media_type = self.media_type
        if self._wants_stream and codec.refuses_in_streams and not error.transport:
            body, media_type = b'data: ' + body + b'\n\n', b'text/event-stream'
        status = error.http_status if error.transport else 200
        await reply(self.send, status, body, self.correlation_id, error.headers.items(), media_type=media_type)


def _without_body(send: Send) -> Send:
    """Return a `send` that drops the body of an answer, and turns HTTP 200 into HTTP 204."""

    async def send_head(message: Message) -> None:
        if message['type'] == 'http.response.start':
            headers = [pair for pair in message['headers'] if pair[0] not in (b'content-type', b'content-length')]
            status = 204 if message['status'] == 200 else message['status']
            if status != 204:
                headers.append((b'content-length', b'0'))
            await send({**message, 'status': status, 'headers': headers})
        else:
            await send({**message, 'body': b''})

    return send_head
