"""The interface of codecs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from pydantic_core import to_json

from ...errors import A2AError, UnsupportedOperationError
from ...types.stored_events import TaskEvent
from ...types.stored_tasks import StoredTask
from ...types.task_queries import Page
from ...types.webhook_targets import Registered
from .http_requests import HttpRequest
from .missing_capabilities import REFUSALS
from .operations import Capability, Operation, Params
from .push_targets import target_json
from .rpc_requests import RpcRequest


class Codec(ABC):
    """One version of the protocol, or a dialect: decodes requests, and encodes stored values and errors.

    Codecs have no state and do no I/O. Decoding never changes its input.
    """

    dialect: ClassVar[str]
    """Name of the codec: the version as `Major.Minor` (§3.6), or the dialect. Stored with the tasks that it creates."""
    extensions_header: ClassVar[str] = 'A2A-Extensions'
    """The header that names extensions, in requests and answers (§4.6)."""
    extensions_key: ClassVar[bytes]
    """`extensions_header` as ASGI spells header names."""
    reads_without_extensions: ClassVar[bool] = False
    """True if only messages need to declare the extensions that the agent requires."""

    refuses_in_streams: ClassVar[bool] = False
    """True if the refusal of a stream is a stream with the error as its only event, because clients read no other
    form."""

    refusals: ClassVar[Mapping[Capability, tuple[type[A2AError], str | None]]] = REFUSALS
    """Error class and message for operations whose capability the agent lacks."""

    push_media_type: ClassVar[str] = 'application/a2a+json'
    """Media type of push notifications (§4.3.3)."""
    pushes_tasks: ClassVar[bool] = False
    """True if a push notification holds the whole task at a change of its status, instead of the event."""

    def __init_subclass__(cls) -> None:
        cls.extensions_key = cls.extensions_header.lower().encode()

    @abstractmethod
    def decode(self, body: bytes) -> RpcRequest:
        """Read a JSON-RPC request.

        Raises:
            RpcRefused: The body is no request, or its params do not fit the operation. No other exception is raised.
        """

    @abstractmethod
    def method(self, operation: Operation) -> str:
        """Return the name of an operation; empty if the version does not have the operation over JSON-RPC."""

    @abstractmethod
    def params(self, params: Params) -> dict[str, Any]:
        """Return the params of an operation as a JSON object."""

    def encode_request(self, operation: Operation, params: Params) -> bytes:
        """Write a JSON-RPC request: the inverse of `decode`. The same params make the same bytes.

        Raises:
            UnsupportedOperationError: The version does not have the operation over JSON-RPC.
        """
        if not (method := self.method(operation)):
            raise UnsupportedOperationError(f'A2A {self.dialect} has no {operation.name} over JSON-RPC.')
        return to_json({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': self.params(params)})

    def encode_task(self, task: StoredTask) -> bytes:
        """Write a task as the answer of GetTask and CancelTask."""
        return b''.join(self.task_pieces(task))

    @abstractmethod
    def task_pieces(self, task: StoredTask) -> Iterable[bytes]:
        """Write a task in pieces, so that long messages and artifacts are not copied to join them."""

    @abstractmethod
    def result_pieces(self, task: StoredTask) -> Iterable[bytes]:
        """Write a task as the answer of SendMessage and as the first event of a stream, in pieces."""

    @abstractmethod
    def encode_message_result(self, message: bytes) -> bytes:
        """Write a message, from its 1.0 JSON, as SendMessage's answer and as the only event of a stream (§3.1.2)."""

    @abstractmethod
    def encode_event(self, event: TaskEvent, last: bool) -> bytes:
        """Write an event of a stream, perhaps the last one."""

    def page_pieces(self, page: Page, *, page_size: int, next_page_token: str) -> Iterator[bytes]:
        """Write the answer of ListTasks in pieces (§3.1.4).

        Args:
            page: The tasks.
            page_size: The requested size of the page.
            next_page_token: Token of the next page; empty on the last page.
        """
        before = b'{"tasks":['
        for task in page.tasks:
            yield before
            yield from self.task_pieces(task)
            before = b','
        rest = b'],"nextPageToken":%s,"pageSize":%d,"totalSize":%d}'
        yield (b'' if page.tasks else before) + rest % (to_json(next_page_token), page_size, page.total)

    def encode_push_config(self, registered: Registered) -> bytes:
        """Write a push notification configuration (§4.3.1)."""
        target = registered.target
        return to_json({'id': target.id, 'taskId': registered.task_id, **target_json(target)})

    def encode_push_configs(self, configs: Iterable[Registered], next_page: str = '') -> bytes:
        """Write push notification configurations of a task, with the token of the next page."""
        token = b',"nextPageToken":' + to_json(next_page) if next_page else b''
        return b'{"configs":[%s]%s}' % (b','.join(map(self.encode_push_config, configs)), token)

    def encode_deleted(self) -> bytes:
        """Write the answer to the deletion of a push notification configuration."""
        return b'{}'

    @abstractmethod
    def encode_error(self, error: A2AError, correlation_id: str) -> bytes:
        """Write the `error` object of a JSON-RPC response."""


class HttpCodec(Codec):
    """A version with an HTTP+JSON binding (§11)."""

    @abstractmethod
    def decode_params(
        self, operation: Operation, *, path: Mapping[str, str], query: bytes, body: bytes | None
    ) -> Params | None:
        """Read the params of an operation.

        Args:
            operation: The operation.
            path: The params in the path, decoded.
            query: The query, which holds further params if there is no body.
            body: A JSON object of further params, or nothing; None for verbs without a body.

        Raises:
            JSONParseError: The body is no JSON.
            InvalidRequestError: The body is no object.
            InvalidParamsError: The params do not fit the operation, or contradict the path. No other exception is
                raised.
        """

    @abstractmethod
    def http_request(self, operation: Operation, params: Params) -> HttpRequest:
        """Return a request of the HTTP+JSON binding: the inverse of `decode_params`."""

    @abstractmethod
    def encode_status(self, error: A2AError, correlation_id: str) -> bytes:
        """Write the `google.rpc.Status` of a refused request (§11.6)."""
