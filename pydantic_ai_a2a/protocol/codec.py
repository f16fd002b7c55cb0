"""What every codec offers to the bindings, and what it makes of a request. Knows no version's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, NamedTuple, TypeAlias

from pydantic_core import to_json

from ..errors import A2AError
from ..types import (
    CancelParams,
    CardParams,
    CreatePushParams,
    GetParams,
    ListParams,
    ListPushParams,
    Page,
    PushParams,
    Registered,
    SendParams,
    StoredTask,
    SubscribeParams,
    TaskEvent,
)
from .operations import REFUSALS, Capability, Operation

__all__ = ('Codec', 'EncodeEvent', 'Hold', 'HttpCodec', 'Params', 'RpcRefused', 'RpcRequest', 'tenant_of')

Params = (
    SendParams
    | GetParams
    | ListParams
    | CancelParams
    | SubscribeParams
    | CreatePushParams
    | PushParams
    | ListPushParams
    | CardParams
)
"""What a codec makes of an operation's params."""


def tenant_of(params: Params | None) -> str:
    """Return the tenant that params name; empty if they name none, or are of a version without tenants."""
    return '' if params is None else params.tenant


EncodeEvent: TypeAlias = Callable[[TaskEvent, bool], bytes]
"""Writes an event of one stream; the flag says that the stream ends with it."""
Hold: TypeAlias = Callable[[int], None]
"""Counts the bytes that the encoder of one stream holds for later events; is called when their number changes."""


def hold_nothing(size: int) -> None:
    """Count the bytes of an encoder that is used for one event only."""


class RpcRequest(NamedTuple):
    """One JSON-RPC request."""

    id: bytes
    """Its id as JSON, to be repeated in the answer; `null` where there is none."""
    operation: Operation
    params: Params | None
    notification: bool = False
    """True if the request has no id: its client wants no answer."""


class RpcRefused(Exception):
    """The body is no request that can be served."""

    def __init__(
        self, error: A2AError, id: bytes = b'null', operation: Operation | None = None, *, notification: bool = False
    ) -> None:
        self.error = error
        """What to answer."""
        self.id = id
        """The request's id as JSON, as far as it could be read."""
        self.operation = operation
        """The operation that was asked for, as far as it could be read."""
        self.notification = notification
        """True if the request is one without an id: its client wants no answer."""
        super().__init__(error.message)


class Codec(ABC):
    """One version of the protocol, or a dialect: wire JSON to the vocabulary, and what is stored to wire JSON.

    Codecs have no state and do no I/O; decoding never changes its input.
    """

    dialect: ClassVar[str]
    """Its name: the version as `Major.Minor` (§3.6), for a version. Kept with the tasks that are created in it."""
    extensions_header: ClassVar[str] = 'A2A-Extensions'
    """The header that names extensions, in requests and answers (§4.6)."""
    extensions_key: ClassVar[bytes]
    """Its name as ASGI has it."""
    reads_without_extensions: ClassVar[bool] = False
    """Whether only messages need to declare the extensions that the agent requires."""

    refuses_in_streams: ClassVar[bool] = False
    """Whether a refused stream is a stream with the error as its one event: its clients read nothing else."""

    refusals: ClassVar[Mapping[Capability, tuple[type[A2AError], str | None]]] = REFUSALS
    """Errors of operations whose capability the agent does not have, and their messages."""

    push_media_type: ClassVar[str] = 'application/a2a+json'
    """Of the body of a push notification (§4.3.3)."""
    pushes_tasks: ClassVar[bool] = False
    """Whether a push notification is the whole task as its status changes, and not the event."""

    def __init_subclass__(cls) -> None:
        cls.extensions_key = cls.extensions_header.lower().encode()

    @abstractmethod
    def decode(self, body: bytes) -> RpcRequest:
        """Read a JSON-RPC request.

        Raises:
            RpcRefused: It is not one, or its params are not the operation's. Nothing else is ever raised.
        """

    def encode_task(self, task: StoredTask) -> bytes:
        """Write a task, as GetTask and CancelTask answer it."""
        return b''.join(self.task_pieces(task))

    @abstractmethod
    def task_pieces(self, task: StoredTask) -> Iterable[bytes]:
        """Write a task in pieces, so that long messages and artifacts are not copied to join them."""

    def encode_task_result(self, task: StoredTask) -> bytes:
        """Write a task, as SendMessage answers it and as a stream begins with it."""
        return b''.join(self.result_pieces(task))

    @abstractmethod
    def result_pieces(self, task: StoredTask) -> Iterable[bytes]:
        """Write the result of SendMessage in pieces, like `task_pieces`."""

    @abstractmethod
    def encode_message_result(self, message: bytes) -> bytes:
        """Write a message, of 1.0's JSON, as SendMessage answers it and as the one event of a stream (§3.1.2)."""

    @abstractmethod
    def event_encoder(self, first: StoredTask | None, hold: Hold = hold_nothing) -> EncodeEvent:
        """What writes the events of one stream.

        Args:
            first: The snapshot that the stream begins with; None where the client resumes.
            hold: Counts the bytes that the encoder holds.
        """

    def encode_page(self, page: Page, *, page_size: int, next_page_token: str) -> bytes:
        """Write what ListTasks answers (§3.1.4).

        Args:
            page: The tasks.
            page_size: How many were asked for at most.
            next_page_token: Where the next page begins; empty on the last one.
        """
        return b''.join(self.page_pieces(page, page_size=page_size, next_page_token=next_page_token))

    def page_pieces(self, page: Page, *, page_size: int, next_page_token: str) -> Iterator[bytes]:
        """Write what ListTasks answers in pieces; the arguments are those of `encode_page`."""
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
        written: dict[str, object] = {'id': target.id, 'taskId': registered.task_id, 'url': target.url}
        if target.token is not None:
            written['token'] = target.token
        if target.scheme is not None:
            credentials = {} if target.credentials is None else {'credentials': target.credentials}
            written['authentication'] = {'scheme': target.scheme, **credentials}
        return to_json(written)

    def encode_push_configs(self, configs: Iterable[Registered], next_page: str = '') -> bytes:
        """Write push notification configurations of a task, and where those begin that follow."""
        token = b',"nextPageToken":' + to_json(next_page) if next_page else b''
        return b'{"configs":[%s]%s}' % (b','.join(map(self.encode_push_config, configs)), token)

    def encode_deleted(self) -> bytes:
        """Write that a push notification configuration is no more."""
        return b'{}'

    @abstractmethod
    def encode_error(self, error: A2AError, correlation_id: str) -> bytes:
        """Write the `error` object of a JSON-RPC response."""


class HttpCodec(Codec):
    """A version that has an HTTP+JSON binding (§11)."""

    @abstractmethod
    def decode_params(
        self, operation: Operation, *, path: Mapping[str, str], query: bytes, body: bytes | None
    ) -> Params | None:
        """Read the params of an operation.

        Args:
            operation: What is asked for.
            path: The params that the path has, decoded.
            query: The query, which has the others where there is no body.
            body: A JSON object of the others, or nothing; None for verbs without a body.

        Raises:
            JSONParseError: The body is no JSON.
            InvalidRequestError: It is no object.
            InvalidParamsError: The params are not the operation's, or the path says other ones. Nothing else is raised.
        """

    @abstractmethod
    def encode_status(self, error: A2AError, correlation_id: str) -> bytes:
        """Write the `google.rpc.Status` of a refused request (§11.6)."""
