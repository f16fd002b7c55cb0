"""One gRPC call and its answer: reads the message, dispatches the operation, writes the answer or the stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from traceback import clear_frames
from typing import Any, ClassVar
from urllib.parse import unquote

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID
from google.protobuf import any_pb2, json_format
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode, aio
from pydantic_core import from_json, to_json

from ..auth.request_info import RequestInfo, header
from ..errors import (
    A2AError,
    ClientGone,
    InvalidRequestError,
    OverloadedError,
    PayloadTooLargeError,
    is_cancelled,
    is_for_the_process,
)
from ..protocol.codec import HttpCodec
from ..protocol.operations import OPERATIONS, Operation
from ..protocol.versions import HTTP, CodecChoice
from ..service.dispatch import DirectMessage, stored_size
from ..service.event_streams import EventStream
from ..service.request_flow import DecodedRequest, RequestFlow, Serving
from ..service.unsent_answers import UnsentAnswer
from ..settings import LONG, TLS
from ..types import StoredTask, TaskEvent, new_correlation_id
from .protobuf import SERVICE, Messages, methods

logger = logging.getLogger('pydantic_ai_a2a')

_TOO_SLOW = 'A subscriber reads its events too slowly, and its stream ends'


@dataclass(frozen=True, slots=True)
class _Calls:
    """The calls of a server."""

    converting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a long message is converted, which takes many times the memory of the message."""
    open: dict[asyncio.Task[None], GrpcCall] = field(default_factory=dict['asyncio.Task[None]', 'GrpcCall'])
    """The calls that have not ended, also calls that store a message although their clients have gone."""


class GrpcCall(RequestFlow):
    """One call and its answer.

    Args:
        serving: The parts of the app.
        calls: The calls of the server.
        operation: The operation of the called method.
        messages: The messages of the method.
        context: The call.
    """

    reads_at_once: ClassVar[bool] = False
    _task: asyncio.Task[None]
    """The task of the call."""
    _codec: HttpCodec = HTTP
    _performing = False
    """True while the operation may be storing. Then nothing breaks it off."""
    _begun = False
    """True once the answer has begun."""
    _cut = False
    """True once the call ends because its reader is too slow."""

    def __init__(
        self,
        serving: Serving,
        calls: _Calls,
        operation: Operation,
        messages: Messages,
        context: aio.ServicerContext[bytes, bytes],
    ) -> None:
        super().__init__(serving, request_info(context, new_correlation_id(), gone=self.gone))
        self._calls = calls
        self._operation = operation
        self._messages = messages
        self._context = context
        self.left = self._left = asyncio.get_running_loop().create_future()

    async def handle(self) -> None:
        """Serve the call in a task of its own: the end of the call ends the task, but not while a message is stored."""
        self._task = task = asyncio.get_running_loop().create_task(self.serve())
        self._calls.open[task] = self
        task.add_done_callback(self._calls.open.pop)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            self.abandon()
            raise

    def abandon(self) -> None:
        """End the call of a client that has gone, but not while a message is stored."""
        if not self._left.done():
            self._left.set_result(None)
        if not self._performing:
            self._task.cancel()

    async def read(self) -> bytes:
        """Return the message of the client."""
        body = await self._context.read()
        if body is aio.EOF:
            raise InvalidRequestError('Invalid request: the call ended without a message')
        return body

    def decode(self, body: bytes) -> DecodedRequest:
        """Decode the message of the client."""
        codec = self._codec = self.serving.versions.choose_http(header(self.request.headers, b'a2a-version'))
        body = self._messages.decode(body)
        params = self.decode_params(codec, self._operation, path={}, query=b'', body=body)
        self._performing = True
        return self._operation, params, CodecChoice(codec)

    async def gone(self) -> None:
        """Return once the client has gone."""
        await asyncio.shield(self._left)

    def drop(self) -> bool:
        """Break off the stream of a reader too far behind, unless it breaks off already."""
        return self._cut or super().drop()

    async def answer(self, operation: Operation, result: Any, choice: CodecChoice) -> None:
        """Write a stream, or the one message of an answer."""
        self._performing = False
        if self._left.done():
            raise ClientGone
        if isinstance(result, EventStream):
            await self._stream(result)
            return
        with self.room(size := stored_size(result)) as room:
            message = await self._maybe_in_thread(size, self._encode, result)
            del result
            await self._write(message, room)

    def _encode(self, result: Any) -> bytes:
        """Return the one message of an answer."""
        if isinstance(result, DirectMessage):
            json = self._codec.encode_message_result(result.body)
        elif (write := self._operation.write) is None:
            json = result if isinstance(result, bytes) else b'{}'
        else:
            json = b''.join(write(self._codec, result))
        return self._messages.encode(json)

    async def _stream(self, stream: EventStream) -> None:
        """Write events until an end state of the stream, the end of the call or the drain of the server."""
        subscription = stream.subscription
        try:
            await self._write_first(stream)
            if subscription is None:
                return
            in_time = await self.follow(stream, subscription)
        except asyncio.CancelledError:
            if subscription is None or not subscription.dropped or self._task.uncancel():
                raise  # not the reader's lag: the call has ended
            raise ClientGone(_TOO_SLOW) from None
        if not in_time:
            self._cut = True  # the cancel of the drop may still come
            raise ClientGone(_TOO_SLOW)

    async def _write_first(self, stream: EventStream) -> None:
        """Write the task with which a stream begins, and release the task."""
        first, stream.first = stream.first, None
        if first is not None:
            with self.room(size := stored_size(first)) as room:
                message = await self._maybe_in_thread(size, self._encode_first, first)
                del first
                await self._write(message, room)

    def _encode_first(self, task: StoredTask) -> bytes:
        return self._messages.encode(b''.join(self._codec.result_pieces(task)), task.header.last_event)

    async def keep_alive(self) -> None:
        """Write nothing: gRPC itself pings on each connection."""

    async def write_events(self, events: Sequence[TaskEvent], *, ended: bool) -> None:
        """Write events of a stream."""
        for event in events:
            json = self._codec.encode_event(event, False)
            with self.room(len(json)) as room:
                await self._write(await self._maybe_in_thread(len(json), self._messages.encode, json, event.n), room)

    async def _write(self, message: bytes, room: UnsentAnswer | None) -> None:
        """Send a message. One with room keeps it until the client takes the message, or has gone."""
        if not self._begun:
            self._begun = True
            named = ((name.lower(), value) for name, value in self.dispatch.headers)
            await self._send(self._context.send_initial_metadata((('x-correlation-id', self.correlation_id), *named)))
        if room is None:
            await self._send(self._context.write(message))
            return
        room.ready(len(message))
        sending = asyncio.ensure_future(self._send(self._context.write(message)))
        sending.add_done_callback(_retrieve)
        try:
            await asyncio.wait([sending])
        except asyncio.CancelledError:
            await asyncio.wait([sending])  # gRPC cannot take back a message, and keeps its memory
            raise
        sending.result()

    async def _send(self, sending: Awaitable[None]) -> None:
        try:
            await sending
        except (aio.InternalError, aio.UsageError):  # the call, or the server, has ended meanwhile
            raise ClientGone from None

    async def fail(self, exception: BaseException) -> bool:
        """End the call with the status of an error."""
        # A cancel of a call whose client is still there would leave the call open for ever.
        if is_for_the_process(exception, self._task) or (self._left.done() and is_cancelled(exception, self._task)):
            clear_frames(exception.__traceback__)
            return False
        self._performing = False
        error = await self.dispatch.refused(exception)
        # The frames may hold a long answer, until the client has taken the refusal, or until a garbage collection.
        clear_frames(exception.__traceback__)
        if self._left.done():
            raise asyncio.CancelledError
        code, text, trailing = refusal(error, self._codec, self.correlation_id)
        await self._context.abort(code, text, trailing)

    async def break_off(self, gone: ClientGone) -> None:
        """End a call whose client has gone, or reads too slowly. A slow client gets the status after the messages."""
        clear_frames(gone.__traceback__)
        if not gone.args:
            raise asyncio.CancelledError
        logger.warning('%s (correlation id %s).', gone, self.correlation_id)
        await self.fail(OverloadedError('The client reads too slowly: read the task again, or subscribe again.'))

    async def in_thread(self, convert: Callable[..., Any], *args: Any) -> Any:
        """Convert a long message, one at a time."""
        async with self._calls.converting:
            return await super().in_thread(convert, *args)

    async def _maybe_in_thread(self, size: int, convert: Callable[..., Any], *args: Any) -> Any:
        return convert(*args) if size < LONG else await self.in_thread(convert, *args)


def _retrieve(sending: asyncio.Future[None]) -> None:
    """Retrieve the exception of a message: the call that waited for the message may have been cancelled twice."""
    with suppress(asyncio.CancelledError):
        sending.exception()


# --- the values of a gRPC call that admission reads -------------------------------------------------------------------
# Metadata, address and certificate of the client.

_KINDS: dict[type[x509.GeneralName], str] = {
    x509.DNSName: 'DNS',
    x509.UniformResourceIdentifier: 'URI',
    x509.IPAddress: 'IP',
    x509.RFC822Name: 'email',
}
"""The kinds of alternative names that callers can have."""


def request_info(context: aio.ServicerContext[Any, Any], correlation_id: str, **more: Any) -> RequestInfo:
    """Return the values of a call for admission. The metadata of the call are its headers."""
    metadata: Any = context.invocation_metadata() or ()
    return RequestInfo(
        correlation_id=correlation_id,
        headers=[(key.encode(), value if isinstance(value, bytes) else value.encode()) for key, value in metadata],
        address=_address(context.peer()),
        tls_names=_names(next(iter(context.auth_context().get('x509_pem_cert', ())), b'')),
        **more,
    )


def _address(peer: str) -> str | None:
    """Return the address in the name of a peer, such as `ipv6:%5B::1%5D:50100`; None for other transports than IP."""
    kind, _, place = peer.partition(':')
    return unquote(place).rpartition(':')[0].strip('[]') if kind in ('ipv4', 'ipv6') else None


@lru_cache(maxsize=256)
def _names(pem: bytes) -> tuple[str, ...]:
    """Return the names in the verified certificate of a client, each after its kind; none without a certificate.

    gRPC itself mixes the kinds, and cuts a name at a NUL.
    """
    if not pem:
        return ()
    names = _valid_names(x509.load_pem_x509_certificate(pem))
    if any('\0' in name for name in names):
        logger.warning('The certificate of a client has a NUL in a name, and counts as no certificate.')
        return ()
    return tuple(names)


def _valid_names(certificate: x509.Certificate) -> list[str]:
    """Return the alternative names of a certificate. The common name counts only without this extension."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return [f'CN:{attribute.value}' for attribute in common]
    return [f'{_KINDS[type(name)]}:{name.value}' for name in extension.value if type(name) in _KINDS]


# --- errors in gRPC's form --------------------------------------------------------------------------------------------
# A status code, and a `google.rpc.Status` with details in the trailing metadata (§10.6).

_DETAILS = 'grpc-status-details-bin'
_MAX_TEXT = 1_000
"""Most characters of a text. By default, clients refuse metadata of more than 8 KB, text and details together."""
_MAX_DETAIL = 2_000
"""Most bytes of a detail, as JSON."""

_ = error_details_pb2  # registers the messages of the details


def refusal(
    error: A2AError, codec: HttpCodec, correlation_id: str
) -> tuple[StatusCode, str, tuple[tuple[str, str | bytes], ...]]:
    """Return the end of a call that an error refuses: the status, the text and the trailing metadata.

    Args:
        error: The error.
        codec: The codec with the details of errors.
        correlation_id: Names the call in the logs.
    """
    status = StatusCode.RESOURCE_EXHAUSTED if isinstance(error, PayloadTooLargeError) else StatusCode[error.status]
    described = from_json(codec.encode_status(error, correlation_id))['error']
    text = described['message'][:_MAX_TEXT]
    details = [json_format.ParseDict(_shortened(detail), any_pb2.Any()) for detail in described['details']]
    message = status_pb2.Status(code=status.value[0], message=text, details=details)
    trailing: list[tuple[str, str | bytes]] = [(name.lower(), value) for name, value in error.headers.items()]
    return status, text, (('x-correlation-id', correlation_id), (_DETAILS, message.SerializeToString()), *trailing)


def _shortened(detail: dict[str, Any]) -> dict[str, Any]:
    """Return a detail with only as many bad fields as fit."""
    violations: list[Any] = detail.get('fieldViolations', [])
    while violations and len(to_json(detail)) > _MAX_DETAIL:
        del violations[len(violations) // 2 :]
    return detail


# --- the gRPC server --------------------------------------------------------------------------------------------------
# Its methods from the table of operations, its options, its port and its end.

_PING = 15_000
"""Milliseconds between pings on a connection, so that dead clients are noticed."""
_MIN_PING = 5_000
"""Fewest milliseconds between the pings of a client. A client that pings more often is disconnected."""
_CALLS = 4_000
"""Most open calls of a connection, of about 25 kB each. Clients wait with further calls."""
_NO_LIMIT = 2**31 - 1
_STORE_TIME = 5.0
"""Seconds that cancelled calls get to store their messages."""


class GrpcServer:
    """A gRPC server of one agent in the running event loop.

    Args:
        serving: The parts of the app.
        reuse_port: True if other processes may listen on the port.
    """

    port: int
    """The port, once the server listens."""

    def __init__(self, serving: Serving, *, reuse_port: bool) -> None:
        options: dict[str, int] = {
            'grpc.max_receive_message_length': serving.limits.body,
            'grpc.max_send_message_length': -1,
            'grpc.so_reuseport': int(reuse_port),
            'grpc.keepalive_time_ms': _PING,
            'grpc.max_concurrent_streams': _CALLS,
            # By default, gRPC cancels calls in silence if 1,000 calls, or one for 30 seconds, wait for the server.
            'grpc.server.max_pending_requests': _NO_LIMIT,
            'grpc.server.max_pending_requests_hard_limit': _NO_LIMIT,
            'grpc.server_max_unrequested_time_in_server': _NO_LIMIT,
            'grpc.http2.min_ping_interval_without_data_ms': _MIN_PING,
        }
        self._calls = _Calls()
        self._server = aio.server(options=[*options.items()])
        self._server.add_generic_rpc_handlers((_handlers(serving, self._calls),))

    def listen(self, address: str, tls: TLS | None) -> None:
        """Listen on an address, such as `127.0.0.1:50051`.

        Raises:
            OSError: A file of `tls` cannot be read.
            RuntimeError: The address cannot be used.
        """
        if tls is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, _credentials(tls))

    async def start(self) -> None:
        """Accept calls."""
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Refuse further calls, and cancel the calls that still run after so many seconds.

        Returns once the messages of cancelled calls are stored, because the store may close next.
        """
        await self._server.stop(grace)
        calls = self._calls.open.copy()  # gRPC does not wait for their code, and may not have cancelled the code yet
        for call in calls.values():
            call.abandon()
        if calls:
            await asyncio.wait(calls, timeout=_STORE_TIME)


def _credentials(tls: TLS) -> grpc.ServerCredentials:
    pair = Path(tls.key).read_bytes(), Path(tls.certificate).read_bytes()
    if tls.client_ca is None:
        return grpc.ssl_server_credentials([pair])
    return grpc.ssl_server_credentials([pair], Path(tls.client_ca).read_bytes(), require_client_auth=True)


def _handlers(serving: Serving, calls: _Calls) -> grpc.GenericRpcHandler:
    """Return the methods of the operations that the service has.

    All methods read and write by themselves, so that the caller is known before a message is read, and a call without a
    message is answered.
    """
    handlers = {
        name: _handler(serving, calls, OPERATIONS[name], Messages(method, serving.limits.values))
        for name, method in methods().items()
        if name in OPERATIONS
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


def _handler(
    serving: Serving, calls: _Calls, operation: Operation, messages: Messages
) -> grpc.RpcMethodHandler[Any, Any]:
    async def handle(_: Any, context: aio.ServicerContext[bytes, bytes]) -> None:
        await GrpcCall(serving, calls, operation, messages, context).handle()

    return grpc.stream_stream_rpc_method_handler(handle)
