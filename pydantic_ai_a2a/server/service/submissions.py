"""The checks of a client's message without storage, and the conversion to the stored form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_core import to_json

from ... import chains
from ...errors import InvalidParamsError, OverloadedError
from ...settings.app_settings import Settings
from ...settings.limits import LONG
from ...types.a2a_objects import Message
from ...types.operation_params import SendParams
from ...types.service_calls import Call
from ...wire.extensions.client_tools import CLIENT_TOOLS_FIELD, CLIENT_TOOLS_URI, ClientTools
from ...wire.extensions.own_extensions import LIVE
from ...wire.protocol import message_digest, new_ids, stored, stored_values
from ..conversion import call_answers
from ..conversion.client_output import request_fields
from ..conversion.message_limits import check_limits, check_metadata, check_names
from ..conversion.user_prompts import check_types
from ..store.ports import Submission
from .message_marks import without_marks
from .webhook_registration import registration_of

if TYPE_CHECKING:
    from ..push.registration import Registration


Schema: TypeAlias = dict[str, Any]
"""A JSON Schema."""

_MEMBERS = (
    ('metadata', b'metadata'),
    ('extensions', b'extensions'),
    ('reference_task_ids', b'referenceTaskIds'),
)
"""Optional members of a message besides the parts, with the names in the stored form."""


class Submissions:
    """Converts the messages of clients to the stored form, after all checks without storage.

    Args:
        settings: Limits of messages, and messages to working tasks.
        check_content: Refuses messages that the agent does not take.
        check_output: Refuses output modes that the agent does not return, or that data by the client's schema has not.
        client_schema: Returns the JSON Schema that a message wants for its answer.
        accepting: Returns False while the server shuts down.
        now: Returns the time (ms).
        push: The webhooks of clients; None without push notifications.
        client_tools: Reads the tools of clients; None if clients cannot declare tools.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        check_content: Callable[[Message], object],
        check_output: Callable[[Sequence[str], Schema | None], object],
        client_schema: Callable[[Message], Schema | None],
        accepting: Callable[[], bool],
        now: Callable[[], int],
        push: Registration | None,
        client_tools: ClientTools | None,
    ) -> None:
        self._limits = settings.limits
        self._only_waiting = settings.messages.while_working == 'reject'
        self._steers = settings.messages.while_working == 'steer'
        self._client_tools = client_tools
        self._check_content = check_content
        self._check_output = check_output
        self._client_schema = client_schema
        self._accepting = accepting
        self._now = now
        self._push = push

    async def check(self, call: Call, params: SendParams) -> Submission:
        """Check a message and convert it. A long message is converted outside the event loop."""
        if call.size < LONG:
            return self._submission(call, params)
        return await asyncio.to_thread(self._submission, call, params)

    async def check_direct(self, call: Call, params: SendParams) -> Submission:
        """Check a message that is answered with a message, like `check`.

        Raises:
            InvalidParamsError: The message declares tools, whose calls would wait in a task.
        """
        if self._client_tools is not None and CLIENT_TOOLS_URI in (params.message.get('metadata') or {}):
            raise InvalidParamsError.of(
                CLIENT_TOOLS_FIELD, 'declares tools, but the agent answers this message without a task'
            )
        return await self.check(call, params)

    def _submission(self, call: Call, params: SendParams) -> Submission:
        push_config, push_url = None, None
        if params.push_config is not None:
            registration = registration_of(self._push)
            target = params.push_config
            push_config = registration.config(target, call.caller, call.dialect, params.push_field)
            push_url = target.url
        if not self._accepting():
            raise OverloadedError('The server is shutting down; try again later.', headers={'Retry-After': '1'})
        message, declares_tools = params.message, False
        if 'metadata' in message:
            message = without_marks(message, message['metadata'])
        parts = stored_values.dump_parts(message['parts'])
        size = len(parts)
        check_limits(message, size, self._limits)
        if self._client_tools is not None:
            declares_tools = self._client_tools.check(message)
        if params.metadata:
            check_metadata(params.metadata, 'metadata', self._limits)
        answers_calls = call_answers.place_of_answers(message) is not None
        is_answer = answers_calls or ('metadata' in message and call_answers.named_question(message) is not None)
        if is_answer and 'task_id' not in message:
            raise InvalidParamsError.of('message.taskId', 'must be the id of the task that waits for this answer')
        if answers_calls:
            check_types(message)
        else:
            self._check_content(message)
        schema = self._client_schema(message) if 'metadata' in message else None
        if params.accepted_output_modes:
            check_names(params.accepted_output_modes, 'configuration.acceptedOutputModes', self._limits)
            self._check_output(params.accepted_output_modes, schema)
        task_id, context_id = message.get('task_id'), message.get('context_id')
        return Submission(
            owner=call.caller.owner,
            anonymous=call.caller.anonymous,
            message_id=message['message_id'],
            digest=message_digest.digest(message, parts, params.metadata, params.accepted_output_modes, push_url),
            body=stored.message(message['message_id'], b'ROLE_USER', parts, _members(message)),
            task_id=task_id or new_ids.new_id(),
            new=task_id is None,
            context_id=context_id or (new_ids.new_id() if task_id is None else None),
            request=_request(params, call, schema),
            traceparent=call.traceparent,
            dialect=call.dialect,
            at=self._now(),
            size=size,
            unread_limit=self._limits.messages,
            push=push_config,
            push_limit=0 if self._push is None else self._push.limit,
            answers_calls=answers_calls,
            # The tools of a run do not change, so a message with tools cannot enter the run.
            only_waiting=self._only_waiting or (declares_tools and self._steers),
        )


def _members(message: Mapping[str, Any]) -> bytes:
    members = b''
    for name, wire_name in _MEMBERS:
        if name in message and message[name]:  # noqa: RUF019 - `get` is a call for each
            members += b',"%s":%s' % (wire_name, to_json(message[name]))
    return members


def _request(params: SendParams, call: Call, schema: Schema | None) -> bytes | None:
    """Return the stored form of the request, for later runs."""
    request: dict[str, Any] = {}
    if params.accepted_output_modes:
        request['acceptedOutputModes'] = params.accepted_output_modes
    if params.metadata:
        request['metadata'] = params.metadata
    if params.extensions:
        request['extensions'] = params.extensions
    if call.live and params.return_immediately:  # the client will follow the task: the run does not wait for the reader
        request[LIVE] = True
    if call.kept is not None:
        request['call'] = call.kept
    if depth := chains.depth.get():
        request['depth'] = depth
    if schema is not None:
        request |= request_fields(schema)
    return to_json(request) if request else None
