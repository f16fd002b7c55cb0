"""A remote A2A agent as a Pydantic AI model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic_ai.exceptions import ModelAPIError, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    TextPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext

from ...arguments import checked
from ...errors import A2AError, RemoteError
from ...task_states import INTERRUPTED
from ...types.a2a_objects import AgentCard, Message
from ...wire.extensions.client_schema import CLIENT_SCHEMA_URI, with_client_schema
from ...wire.extensions.client_tools import CLIENT_TOOLS_URI
from ...wire.extensions.own_extensions import RUN_METADATA_URI
from ...wire.extensions.pending_calls_extension import with_question
from ...wire.extensions.remote_calls import SYSTEM
from ..client import A2AClient
from ..conversation_place import Place
from ..interfaces import extensions_of
from ..live_text import LiveText
from ..send_options import SendOptions
from ..updates import Update
from .local_tools import local_tools
from .outgoing_message import Outgoing, message_id, outgoing
from .remote_tasks import RemoteTasks, after_sign_in
from .remote_turns import RemoteTurn, details, last_turn, used
from .response_parts import response_parts

_REPLACED = 'replaced_text'
"""Name of the native tool whose calls separate replaced text from the text that follows."""


@checked
class A2AModel(Model[A2AClient]):
    """A remote A2A agent as a model: the prompts of a run go out, and the agent's answer is the response.

    The messages hold the conversation: `message_history` continues the conversation, on any object.
    A remote agent that takes tools of clients may call the function tools of an agent with this model. For other remote
    agents, the agent must have no function tools, because remote agents call tools of their own.

    Args:
        client: The client of the remote agent. The caller opens and closes the client.
        model_name: Name of the model in responses and traces.
    """

    def __init__(self, client: A2AClient, *, model_name: str = 'remote-agent') -> None:
        super().__init__(
            profile=ModelProfile(
                default_structured_output_mode='native',
                supports_json_schema_output=True,
                supports_json_object_output=True,
                supports_image_output=True,
            )
        )
        self._remote = client
        self._tasks = RemoteTasks(client)
        self._model_name = model_name

    @property
    def model_name(self) -> str:
        """Name of the model in responses and traces."""
        return self._model_name

    @property
    def system(self) -> str:
        """Name of the provider in responses and traces."""
        return SYSTEM

    def prepare_messages(
        self, messages: list[ModelMessage], model_request_parameters: ModelRequestParameters | None = None
    ) -> list[ModelMessage]:
        """Prepare a history for a request.

        Raises:
            ModelAPIError: The remote agent has answered without output. It does not get Pydantic AI's demand for text,
                which it would take for words of the user.
        """
        match messages:
            case [*_, ModelResponse() as answer, ModelRequest(parts=[*_, RetryFeedbackPart() as part])] if (
                answer.provider_name == SYSTEM and not answer.text and part.retry.cause == 'no_output'
            ):
                raise ModelAPIError(self._model_name, 'The remote agent has answered without text or other output.')
            case _:
                return super().prepare_messages(messages, model_request_parameters)

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Send the messages that the agent has not seen, and return its answer.

        Raises:
            ModelAPIError: The agent cannot be reached, or its task has failed. The cause has the details.
            UserError: The messages cannot be sent.
        """
        async with self.request_stream(messages, model_settings, model_request_parameters) as stream:
            async for _ in stream:
                pass
        return stream.get()

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Send the messages that the agent has not seen, and stream its answer. Errors: see `request`."""
        stream = await self._open(messages, model_settings, model_request_parameters)
        async with aclosing(stream.updates):
            yield stream

    async def _open(
        self, messages: list[ModelMessage], model_settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> _RemoteStream:
        _, parameters = self.prepare_request(model_settings, parameters)
        try:
            card, place = await self._remote.find()
        except (A2AError, RemoteError) as error:
            raise ModelAPIError(self._model_name, str(error)) from error
        tools = local_tools(parameters)
        extensions = extensions_of(card)
        if tools and CLIENT_TOOLS_URI not in extensions:
            raise UserError(
                f'The remote agent calls tools of its own, and cannot call {", ".join(sorted(tools))}. Remove the '
                'tools, give the remote agent to a local agent with `A2A(...)` among its capabilities, or let the '
                'remote agent take tools with `Messages(client_tools=True)`.'
            )
        turn = last_turn(messages, place)
        message = outgoing(turn, parameters, takes_schemas=CLIENT_SCHEMA_URI in extensions)
        updates = self._updates(card, turn, message, message_id(messages, message))
        return _RemoteStream(
            parameters, agent=card['name'], place=place, turn=turn, updates=updates, name=self._model_name
        )

    async def _updates(
        self, card: AgentCard, turn: RemoteTurn, message: Outgoing, message_id: str
    ) -> AsyncGenerator[Update, None]:
        """Yield the events of the remote task. If the caller stops early, the remote task is canceled."""
        options = SendOptions(
            context_id=turn.context_id or '',
            task_id=message.task_id or '',
            accepted_output_modes=message.accepted_output_modes,
            extensions=[RUN_METADATA_URI] if RUN_METADATA_URI in extensions_of(card) else [],
        )
        if message.tools:
            options['tools'] = message.tools
        sent = Message(role='user', message_id=message_id, parts=message.parts)
        if message.task_id is not None:
            sent = with_question(sent, turn.details.get('question'))
        if message.schema is not None:
            sent = with_client_schema(sent, message.schema)
        stream = self._remote.stream(sent, **options)
        if message.task_id is not None and turn.details['state'] == 'auth-required':
            stream = after_sign_in(self._remote, message.task_id, stream)
        try:
            async with aclosing(self._tasks.follow(stream)) as updates:
                async for update in updates:
                    yield update
        except (A2AError, RemoteError) as error:
            raise ModelAPIError(self._model_name, _told(error)) from error


@dataclass
class _RemoteStream(StreamedResponse):
    """The answer of a remote agent, in pieces."""

    agent: str
    place: Place
    turn: RemoteTurn
    updates: AsyncGenerator[Update, None]
    name: str
    _live: LiveText = field(default_factory=LiveText, init=False)
    _pieces: list[str] = field(default_factory=list[str], init=False)
    """Text of the current text part."""
    _texts: int = field(default=0, init=False)
    """Number of replaced texts."""
    _timestamp: datetime = field(default_factory=lambda: datetime.now(UTC), init=False)

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        try:
            update = None
            async for update in self.updates:
                answer = update.outcome if update.state in INTERRUPTED else update.head
                self.provider_details = details(self.agent, self.place, answer)
                self._usage = used(self.turn, answer)
                for piece, in_place in self._live.add(update) if update.state is not None else ():
                    for event in self._more(piece, in_place=in_place):
                        yield event
            assert update is not None, 'a stream has an event'
            parts = response_parts(update.outcome, self.model_request_parameters, agent=self.agent)
        except RemoteError as error:
            raise ModelAPIError(self.name, str(error)) from error
        for n, part in enumerate(parts):
            if isinstance(part, TextPart) and part.provider_details is None:
                for event in self._text(part.content):
                    yield event
            else:
                if isinstance(part, TextPart):  # a question, which is not the end of earlier text
                    for event in self._replaced():
                        yield event
                yield self._parts_manager.handle_part(vendor_part_id=f'part-{n}', part=part)
        self.finish_reason = 'stop'

    def _text(self, text: str) -> Iterator[ModelResponseStreamEvent]:
        """Yield the events that make `text` the last text of the response."""
        shown = ''.join(self._pieces)
        if text.startswith(shown):
            yield from self._more(text[len(shown) :])
        else:
            yield from self._more(text, in_place=True)

    def _more(self, piece: str, *, in_place: bool = False) -> Iterator[ModelResponseStreamEvent]:
        """Yield the events of more text, or of text in the place of the text so far."""
        if in_place:
            yield from self._replaced()
        if piece:
            self._pieces.append(piece)
            yield from self._parts_manager.handle_text_delta(vendor_part_id=f'text-{self._texts}', content=piece)

    def _replaced(self) -> Iterator[ModelResponseStreamEvent]:
        """Yield the events that separate the text so far, if any, from the text that follows."""
        if not self._pieces:
            return
        self._texts += 1
        self._pieces = []
        call_id = f'{_REPLACED}-{self._texts}'
        call = NativeToolCallPart(_REPLACED, {}, call_id, provider_name=SYSTEM)
        yield self._parts_manager.handle_part(vendor_part_id=call_id, part=call)
        end = NativeToolReturnPart(_REPLACED, 'The text before was replaced.', call_id, provider_name=SYSTEM)
        yield self._parts_manager.handle_part(vendor_part_id=f'{call_id}-end', part=end)

    async def close_stream(self) -> None:
        """Stop reading, and cancel the remote task."""
        await self.updates.aclose()

    @property
    def model_name(self) -> str:
        """Name of the model."""
        return self.name

    @property
    def provider_name(self) -> str:
        """Name of the provider."""
        return SYSTEM

    @property
    def provider_url(self) -> str | None:
        """URL of the remote agent."""
        return self.place.url

    @property
    def timestamp(self) -> datetime:
        """Time of the request."""
        return self._timestamp


def _told(error: A2AError | RemoteError) -> str:
    name = error.correlation_id if isinstance(error, A2AError) else None
    return str(error) if name is None else f'{error} Correlation id: {name}.'
