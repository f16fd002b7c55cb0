"""The gRPC server: its methods from the table of operations, its options, its port and its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from ...settings.tls import TLS
from ...wire.protobuf.method_messages import SERVICE, MethodMessages, methods
from ...wire.protocol.operations import OPERATIONS, Operation
from ..service.request_flow import Serving
from .call import GrpcCall, GrpcCalls

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
        self._calls = GrpcCalls()
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


def _handlers(serving: Serving, calls: GrpcCalls) -> grpc.GenericRpcHandler:
    """Return the methods of the operations that the service has.

    All methods read and write by themselves, so that the caller is known before a message is read, and a call without a
    message is answered.
    """
    handlers = {
        name: _handler(serving, calls, OPERATIONS[name], MethodMessages(method, serving.limits.values))
        for name, method in methods().items()
        if name in OPERATIONS
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


def _handler(
    serving: Serving, calls: GrpcCalls, operation: Operation, messages: MethodMessages
) -> grpc.RpcMethodHandler[Any, Any]:
    async def handle(_: Any, context: aio.ServicerContext[bytes, bytes]) -> None:
        await GrpcCall(serving, calls, operation, messages, context).handle()

    return grpc.stream_stream_rpc_method_handler(handle)
