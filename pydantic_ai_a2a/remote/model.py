"""A remote A2A agent as a Pydantic AI model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import anyio
from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.exceptions import ModelAPIError, UserError
from pydantic_ai.messages import (
    CapabilityEvent,
    CustomEvent,
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
from pydantic_ai.output import OutputSpec
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema
from typing_extensions import TypeVar

from ..arguments import checked
from ..client.agent_finder import Target
from ..client.cards import Place, extensions_of
from ..client.client import A2AClient
from ..client.connections import Auth
from ..client.following import Update
from ..client.live_text import LiveText
from ..client.messages import SendOptions
from ..client.trust import TrustedKeys
from ..conversion.remote_calls import SYSTEM
from ..conversion.schemas import CLIENT_SCHEMA_URI, CLIENT_TOOLS_URI, with_client_schema
from ..errors import A2AError, RemoteError, RemoteUnavailable
from ..protocol.own_extensions import RUN_METADATA_URI
from ..types import INTERRUPTED, STOPPED, AgentCard, Message
from .messages import Outgoing, message_id, outgoing, response_parts
from .waiting import APPROVAL, QUESTION, RemoteTurn, details, last_turn, local_tools, used

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
        if message.schema is not None:
            sent = with_client_schema(sent, message.schema)
        stream = self._remote.stream(sent, **options)
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
                self._take(update)
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

    def _take(self, update: Update) -> None:
        answer = update.outcome if update.state in INTERRUPTED else update.head
        self.provider_details = details(self.agent, self.place, answer)
        self._usage = used(self.turn, answer)

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


# --- a remote A2A agent as a Pydantic AI agent ------------------------------------------------------------------------

OutputT = TypeVar('OutputT', default=str)

_ANY = SchemaValidator(core_schema.dict_schema())
_TOOLS = (
    ToolDefinition(
        name=APPROVAL, description='A call of the remote agent that waits for an approval.', kind='unapproved'
    ),
    ToolDefinition(name=QUESTION, description='A question of the remote agent.', kind='external'),
)


@checked
class RemoteAgent(WrapperAgent[object, OutputT]):
    """A remote A2A agent with the methods of a Pydantic AI agent.

    `message_history` continues a conversation. With `DeferredToolRequests` among the output types, a remote task that
    waits is the output: the pending calls are calls of `remote_approval` and `remote_question`, and the next run gets
    the answers as `deferred_tool_results`. A question without a call is the output, and the next prompt is the answer.

    Each run opens and closes connections. `async with` keeps connections open for several runs. A run
    raises `ModelAPIError` if the remote agent refuses, fails or does not answer; the cause is the error of the client.

    Args:
        target: The agent: its URL, the URL of its card, its card, an app or agent in this process, or an `A2AClient`.
        output_type: Type of the output, as in `Agent`. Default: text.
        name: Name of the agent, in traces and as the model's name. Default: the name of an agent in this process, else
            `remote-agent`.
        headers: Headers of every request, as in `A2AClient`. Default: none.
        auth: Authentication of every request, as in `A2AClient`. Default: none.
        timeout: Seconds of silence, as in `A2AClient`. Default 30.
        card_keys: Keys of which one must have signed the card. Default: signatures are not verified.

    Raises:
        TypeError: The target is none of these, or is an `A2AClient`, which has these options itself.
    """

    def __init__(
        self,
        target: Target | A2AClient,
        output_type: OutputSpec[OutputT] = str,
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        auth: Auth | None = None,
        timeout: float | timedelta | None = None,
        card_keys: TrustedKeys | None = None,
    ) -> None:
        options: dict[str, Any] = {'headers': headers, 'auth': auth, 'timeout': timeout, 'card_keys': card_keys}
        given = {option: value for option, value in options.items() if value is not None}
        if isinstance(target, A2AClient) and given:
            option = next(iter(given))
            raise TypeError(f'RemoteAgent takes {option} for a target that is no A2AClient: give the client {option}.')
        client = target if isinstance(target, A2AClient) else A2AClient(target, **given)
        name = name or (target.name if isinstance(target, AbstractAgent) else None)
        model = A2AModel(client, model_name=name or 'remote-agent')
        calls = _RemoteCalls(client)
        super().__init__(Agent(model, output_type=output_type, name=name, deps_type=object, toolsets=[calls]))


class _RemoteCalls(AbstractToolset[object]):
    """The tools whose calls are the pending calls of a remote task. No tool is called without an answer.

    The toolset opens the client for each run.
    """

    def __init__(self, client: A2AClient) -> None:
        self._client = client

    @property
    def id(self) -> str:
        return 'remote-calls'

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *args: Any) -> None:
        await self._client.__aexit__(None, None, None)

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        return {
            tool.name: ToolsetTool(toolset=self, tool_def=tool, max_retries=0, args_validator=_ANY) for tool in _TOOLS
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[object], tool: ToolsetTool[object]
    ) -> Any:
        """Return the approved arguments of a remote call."""
        return {'args': tool_args.get('args')}


# --- progress of remote tasks, as events of a run ---------------------------------------------------------------------


@dataclass(kw_only=True)
class RemoteTaskEvent(CustomEvent):
    """Progress of a remote task that an `A2AToolset` has started."""

    agent: str
    """Name of the remote agent."""
    task_id: str
    state: str
    """State of the task, such as `working`."""
    text: str = ''
    """New text of the task: of its status, or of an artifact."""


@dataclass(kw_only=True)
class A2ATaskEvent(CapabilityEvent, namespace='a2a', name='task'):
    """Progress of a remote task that the capability `A2A` has started."""

    agent: str
    """Name of the remote agent."""
    task_id: str
    state: str
    """State of the task, such as `working`."""
    text: str = ''
    """New text of the task: of its status, or of an artifact."""


# --- remote tasks of a run --------------------------------------------------------------------------------------------
# A run that stops early cancels its remote tasks.

logger = logging.getLogger('pydantic_ai_a2a')

FIRST_LIMIT = 3.0
"""Seconds in which the agent names the task of a run that stops before the first event."""
CANCEL_LIMIT = 10.0
"""Seconds for the request that cancels a task."""


@dataclass(eq=False)
class _Followed:
    """A remote task whose events a run reads."""

    first: asyncio.Task[Update]
    """Reads the first event, and goes on if the run stops."""
    last: Update | None = None
    """The last event; None before the first event, and after the agent has failed to answer."""
    canceling: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """True if the task may run, and the agent answers: it has not answered yet, or the task has not stopped."""
        return not self.first.done() if self.last is None else _is_running(self.last)


class RemoteTasks:
    """Follows the remote tasks of a run.

    A request to cancel a task has an asyncio task of its own: a second cancellation of the run does not end it.

    Args:
        client: The client of the agent.
    """

    def __init__(self, client: A2AClient) -> None:
        self._client = client
        self._open: set[_Followed] = set()
        self._canceling: set[asyncio.Task[None]] = set()

    async def follow(self, updates: AsyncGenerator[Update, None]) -> AsyncGenerator[Update, None]:
        """Yield the events of a task. If the caller stops before the task, the task is canceled.

        A task of an agent that no longer answers, or refuses to show the task, may go on: a cancel would fail as well.
        """
        followed = _Followed(asyncio.create_task(_first(updates)))
        self._open.add(followed)
        try:
            update = await asyncio.shield(followed.first)
            followed.last = update
            yield update
            async for update in updates:
                followed.last = update
                yield update
        except (A2AError, RemoteUnavailable):
            followed.last = None
            raise
        finally:
            self._open.discard(followed)
            with anyio.CancelScope(shield=True):  # a cancelled scope of anyio would cancel each of these waits again
                if followed.is_open:
                    await asyncio.shield(self._cancel_soon(followed))
                await updates.aclose()

    async def cancel(self, task_id: str) -> None:
        """Cancel a task, within ten seconds. A failure is logged."""
        try:
            async with asyncio.timeout(CANCEL_LIMIT):
                await self._client.cancel(task_id)
        except (A2AError, RemoteError, TimeoutError) as error:
            logger.warning('The remote task %s was not canceled: %s', task_id, str(error) or 'the agent is silent')

    async def aclose(self) -> None:
        """Cancel the tasks that have not stopped, and wait for the cancellations."""
        for followed in self._open:
            self._cancel_soon(followed)
        if self._canceling:
            await asyncio.wait(self._canceling)

    def _cancel_soon(self, followed: _Followed) -> asyncio.Task[None]:
        if followed.canceling is None:
            followed.canceling = asyncio.create_task(self._cancel(followed))
            self._canceling.add(followed.canceling)
            followed.canceling.add_done_callback(self._canceling.discard)
        return followed.canceling

    async def _cancel(self, followed: _Followed) -> None:
        update = followed.last
        if update is None:
            try:
                async with asyncio.timeout(FIRST_LIMIT):
                    update = await followed.first
            except (A2AError, RemoteError, TimeoutError) as error:
                logger.warning(
                    'A run was cancelled before the remote agent named its task, so the task was not canceled: %s',
                    str(error) or 'the agent is silent',
                )
        if update is not None and update.task_id is not None and _is_running(update):
            await self.cancel(update.task_id)


async def _first(updates: AsyncGenerator[Update, None]) -> Update:
    return await anext(updates)


def _is_running(update: Update) -> bool:
    return update.state is not None and update.state not in STOPPED
