"""The common part of A2A 0.3 and FastA2A's dialect: params, lower-case roles and states.

The stored form is 1.0's JSON, so these codecs parse stored values and write them anew, at the cost of their own clients
only.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Generic, NotRequired, TypeVar

from pydantic import AfterValidator, StrictBool, with_config
from pydantic_core import PydanticCustomError, from_json, to_json
from typing_extensions import TypedDict

from ...errors import A2AError, ExtensionSupportRequiredError, InvalidRequestError
from ...types.a2a_objects import TaskState
from ...types.operation_params import CancelParams, GetParams, SendParams, SubscribeParams
from ...types.stored_tasks import StoredTask
from . import stored
from .codec import Codec
from .request_fields import CAMEL_CASE, Count, Id, Lines, Struct, read_message

_ALSO_ENDS: frozenset[TaskState] = frozenset({'input-required', 'auth-required'})
"""States in which streams end, besides the terminal ones: the task waits for its client."""

M = TypeVar('M')
"""The form of a message."""
W = TypeVar('W')
"""The form of a webhook."""


def role(value: object) -> str:
    """Read the role of a client's message."""
    if value == 'user':
        return 'user'
    raise PydanticCustomError('role', 'must be user: clients speak as users')


@with_config(CAMEL_CASE)
class Configuration(TypedDict, Generic[W], total=False):
    """The client's wishes for the answer to a message."""

    accepted_output_modes: Lines | None
    blocking: StrictBool | None
    history_length: Count | None
    push_notification_config: W | None
    task_push_notification_config: W | None


class SendRequest(TypedDict, Generic[M, W]):
    """The params of a message."""

    message: Annotated[M, AfterValidator(read_message)]
    configuration: NotRequired[Configuration[W] | None]
    metadata: NotRequired[Struct | None]


def send_params(wire: Mapping[str, Any], *, wait: bool) -> SendParams:
    """Return the params of a message from the fields of its request.

    Args:
        wire: The message, the wishes for the answer, and the metadata of the request.
        wait: True if the answer waits for the task by default.
    """
    wishes: Mapping[str, Any] = wire.get('configuration') or {}
    blocking = wishes.get('blocking')
    push = wishes.get('push_notification_config')
    # These versions accept only a positive length as a limit: zero means no limit (0.3 §7.3).
    return SendParams(
        message=wire['message'],
        return_immediately=not (wait if blocking is None else blocking),
        history_length=wishes.get('history_length') or None,
        accepted_output_modes=tuple(wishes.get('accepted_output_modes') or ()),
        push_config=wishes.get('task_push_notification_config') if push is None else push,
        push_field=f'configuration.{"taskPushNotificationConfig" if push is None else "pushNotificationConfig"}',
        metadata=wire.get('metadata'),
        also_ends=_ALSO_ENDS,
    )


@with_config(CAMEL_CASE)
class TaskParams(TypedDict):
    """The params of an operation on one task."""

    id: Id
    history_length: NotRequired[Count | None]
    metadata: NotRequired[Struct | None]


def _get_params(wire: TaskParams) -> GetParams:
    return GetParams(id=wire['id'], history_length=wire.get('history_length') or None)


def _cancel_params(wire: TaskParams) -> CancelParams:
    return CancelParams(id=wire['id'], metadata=wire.get('metadata'))


def _subscribe_params(wire: TaskParams) -> SubscribeParams:
    # These versions have no error for an ended task, so the stream begins with the ended task.
    return SubscribeParams(id=wire['id'], also_ends=_ALSO_ENDS, ended_too=True)


TASKS: Mapping[str, Any] = {
    'GetTask': Annotated[TaskParams, AfterValidator(_get_params)],
    'CancelTask': Annotated[TaskParams, AfterValidator(_cancel_params)],
    'SubscribeToTask': Annotated[TaskParams, AfterValidator(_subscribe_params)],
}
"""The params of the operations on one task, by their names in 1.0."""


def older_code(error: A2AError) -> int:
    """Return the JSON-RPC code of an error. These versions do not have the error of a required extension."""
    return InvalidRequestError.code if isinstance(error, ExtensionSupportRequiredError) else error.code


class OlderCodec(Codec):
    """Writes whole objects, with each message and artifact in the form of the version."""

    reads_without_extensions: ClassVar[bool] = True
    refuses_in_streams: ClassVar[bool] = True
    _task_begin: ClassVar[Mapping[str, str]] = {}
    """First fields of a task."""

    @abstractmethod
    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message, from its 1.0 JSON."""

    @abstractmethod
    def _artifact(self, artifact: Mapping[str, Any]) -> dict[str, Any]:
        """An artifact, from its 1.0 JSON."""

    def _status(self, status: Mapping[str, Any]) -> dict[str, Any]:
        written = {**status, 'state': stored.STATES[status['state']]}
        if 'message' in status:
            written['message'] = self._message(status['message'])
        return written

    def encode_deleted(self) -> bytes:
        """Write null."""
        return b'null'

    def task_pieces(self, task: StoredTask) -> Iterator[bytes]:
        """Write a bare task. Each message and artifact is a piece, so that the caller can pause between pieces."""
        header = task.header
        status = from_json(stored.status(header.state, header.status_at, header.status_message))
        begin = {**self._task_begin, 'id': header.id, 'contextId': header.context_id, 'status': self._status(status)}
        yield to_json(begin)[:-1]
        lists = ((b'artifacts', task.artifacts, self._artifact), (b'history', task.history, self._message))
        for name, bodies, convert in lists:
            before = b',"%s":[' % name
            for body in bodies or ():
                yield before
                yield to_json(convert(from_json(body)))
                before = b','
            if bodies:
                yield b']'
        yield b'}' if header.metadata is None else b',"metadata":%s}' % header.metadata
