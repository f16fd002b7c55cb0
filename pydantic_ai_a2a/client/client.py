"""The client of one remote agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing
from contextvars import Context
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Self, cast
from weakref import WeakKeyDictionary

import httpx2
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.types import ASGIApp
from typing_extensions import Unpack

from .. import chains
from ..arguments import checked
from ..errors import RemoteUnavailable, UnsupportedOperationError
from ..time_spans import seconds
from ..types.a2a_objects import AgentCard, TaskPushNotificationConfig, TaskState
from ..types.operation_params import (
    CancelParams,
    CardParams,
    CreatePushParams,
    GetParams,
    ListParams,
    ListPushParams,
    PushParams,
    SendParams,
)
from ..wire.protocol.push_targets import read_target
from . import remote_schemas
from .agent_finder import AgentFinder
from .app_lifespan import Lifespan, OwnApp
from .asgi_transport import StreamingTransport
from .conversation import Conversation
from .conversation_place import Place
from .followed_task import Follower
from .http_connections import Auth, HttpConnections
from .inbox import waiting_tasks
from .message_content import Content, message_of
from .results import RemoteResult, Sent, is_waiting
from .send_options import NO_TYPE, OutputT, OutputType, SendOptions, WaitOptions, send_params
from .targets import Target, local_app_of
from .text_sender import TextSender
from .trusted_keys import TrustedKeys
from .updates import Update


class _PreparedMessage(NamedTuple):
    """A message that is to be sent."""

    follower: Follower
    params: SendParams
    sent: Sent


@dataclass(slots=True)
class _Users:
    """The uses of a client in one event loop."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0


@checked
class A2AClient(TextSender):
    """Calls one remote agent, in the version and over the binding that its card names.

    Args:
        target: The agent: its URL, the URL of its card, its card or the JSON of its card, or an ASGI app or Pydantic AI
            agent in this process.
        headers: Headers of every request, such as credentials. Default: none.
        auth: Authentication of every request: a bearer token, user name and password, an `httpx2.Auth`, or
            `ClientCredentials` for tokens of an OAuth 2 issuer. Default: none.
        http_client: An HTTP client of your own, with its proxies and limits. The client stays open. Default: a client
            for each event loop.
        timeout: Seconds for a connection, for silence of the agent, and for repetitions while the agent does not
            answer. The end of the time ends no task. Default 30.
        trusted_origins: Origins besides the card's, such as `https://api.example.com`, that may get requests and
            credentials. Default: none.
        binding: `'JSONRPC'`, `'HTTP+JSON'` or `'GRPC'`. Default: the first that the card names, and gRPC only if there
            is no other.
        version: `'1.0'` or `'0.3'`, also if the card names other versions only. Default: the first that the card names.
        card_keys: Keys of which one must have signed the card and the extended card. Only the signed content of a card
            is used. Default: signatures are not verified.
        card_url: URL of the card, also relative to the target. Default: the well-known places below the target, then
            the target itself.

    Raises:
        TypeError: The target is none of these, or is in this process and has an `http_client`, or is a card and has
            `card_keys` or a `card_url`.
        ValueError: A key cannot be used, or `headers` and `auth` both have a token, or `auth` has the word Bearer, or
            the target is no URL of HTTP, or JSON that is no card.
        ImportError: There are `card_keys`, and the extra `jwt` is not installed.
    """

    def __init__(
        self,
        target: Target,
        *,
        headers: Mapping[str, str] | None = None,
        auth: Auth | None = None,
        http_client: httpx2.AsyncClient | None = None,
        timeout: float | timedelta = 30.0,
        trusted_origins: Collection[str] = (),
        binding: Literal['JSONRPC', 'HTTP+JSON', 'GRPC'] | None = None,
        version: Literal['1.0', '0.3'] | None = None,
        card_keys: TrustedKeys | None = None,
        card_url: str | None = None,
    ) -> None:
        self._app = local_app_of(target)
        if self._app is not None and http_client is not None:
            raise TypeError('http_client needs a target that is a URL or a card: an app of this process needs no HTTP.')
        self._timeout = seconds(timeout)
        self._connections = HttpConnections(
            headers=headers or {},
            auth=auth,
            client=http_client,
            timeout=self._timeout,
            transport=self._transport_to(self._app),
        )
        self._finder = AgentFinder(
            target,
            self._app,
            self._connections,
            auth=auth,
            binding=binding,
            version=version,
            trusted_origins=trusted_origins,
            card_keys=card_keys,
            card_url=card_url,
        )
        self._users = WeakKeyDictionary[asyncio.AbstractEventLoop, _Users]()
        self._lifespan: Lifespan | None = None

    async def find(self, *, patient: bool = True) -> tuple[AgentCard, Place]:
        """Return the card, which nobody may change, and the agent of conversations. Errors: see `card`.

        Args:
            patient: False to fail at once if the agent cannot be reached.
        """
        return await self._finder.place(patient=patient)

    async def __aenter__(self) -> Self:
        """Start an app or agent of this process that has not been started. Connections open on first use.

        The client may be entered several times, also at the same time. The last exit of an event loop closes.
        """
        users = self._users.setdefault(asyncio.get_running_loop(), _Users())
        async with users.lock:
            app = self._app
            if not users.count and isinstance(app, Starlette) and not (isinstance(app, OwnApp) and app.hosting.begun):
                self._lifespan = await Lifespan.start(app, self._context())
            users.count += 1
        return self

    if not TYPE_CHECKING:  # type checkers refuse `with`

        def __enter__(self, *_: object) -> NoReturn:
            raise TypeError('A2AClient is an asynchronous context manager: write `async with A2AClient(...)`.')

        __exit__ = __enter__

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections of this event loop, and stop what `__aenter__` has started."""
        users = self._users[asyncio.get_running_loop()]
        async with users.lock:
            users.count -= 1
            if not users.count:
                await self._stop()

    def _transport_to(self, app: ASGIApp | None) -> httpx2.AsyncBaseTransport | None:
        """Return the way to an app in this process; None: the network."""
        return None if app is None else StreamingTransport(app, self._context)

    def _context(self) -> Context:
        """Return the context variables of an app in this process.

        Context variables of the caller, such as a deadline of its run, do not reach an app over a network either.
        """
        return Context()

    async def _stop(self) -> None:
        lifespan, self._lifespan = self._lifespan, None
        try:
            await self._connections.close()
        finally:
            if lifespan is not None:
                await lifespan.stop()

    async def card(self) -> AgentCard:
        """Return the agent's card (§8). The client keeps the card as the cache headers say, at most a day.

        Without these headers, the client keeps the card for five minutes. A card that cannot be fetched again is used
        for up to a day. The first call waits up to `timeout` seconds for an agent that does not listen yet.

        Raises:
            CardRefused: There is no card, or the card cannot be used. A `CardUnverified` has no signature of a trusted
                key.
            RemoteUnavailable: The agent cannot be reached.
        """
        card, _ = await self._finder.card()
        return deepcopy(card)

    @checked
    async def input_schema(self, skill_id: str | None = None) -> dict[str, Any] | None:
        """Return the JSON Schema of the data that begins a task, as the card declares it; None for any message.

        Args:
            skill_id: Id of a skill, for the data of the skill. Default: the data of the agent.

        Raises:
            CardRefused: The schema cannot be used: it is too large, or refers to another document.
        """
        card, _ = await self._finder.card()
        return remote_schemas.input_schema(card, skill_id)

    async def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the `result` of an answer, as the card declares it; None without a declaration.

        Raises:
            CardRefused: The schema cannot be used: it is too large, or refers to another document.
        """
        card, _ = await self._finder.card()
        return remote_schemas.output_schema(card)

    async def output_type(self) -> type[dict[str, Any]]:
        """Return Pydantic AI's `StructuredDict` of the declared output, such as for `RemoteAgent`.

        Raises:
            CardRefused: The card declares no output, or output that `StructuredDict` does not support.
        """
        card, _ = await self._finder.card()
        return remote_schemas.output_type(card)

    async def extended_card(self) -> AgentCard:
        """Return the extended card for this caller, and use it in the place of the card (§3.1.11).

        Raises:
            UnsupportedOperationError: The card offers no extended card. For other errors, see `send`.
        """
        card, transport = await self._finder.interface()
        if not card['capabilities'].get('extended_agent_card'):
            raise UnsupportedOperationError(f'The agent {card["name"][:200]} offers no extended card.')
        params = CardParams()
        wire: object = await transport.call('GetExtendedAgentCard', params)
        return deepcopy(await self._finder.extended(wire, transport.url))

    @checked
    async def send(
        self, content: Content, *, output_type: OutputType[OutputT] | None = NO_TYPE, **options: Unpack[WaitOptions]
    ) -> RemoteResult[OutputT]:
        """Send a message, and wait until the task has ended or waits for the client (§3.1.1).

        Args:
            content: The message: see `Content`.
            output_type: Type of the result's `output`, such as a Pydantic model. Agents that declare the extension
                `client-schema-v1` get the JSON Schema of a type whose values are objects. Default: as the agent
                answers.
            options: See `WaitOptions`.

        Returns:
            The result, with the text, the data and the files of the answer.

        Raises:
            A2AError: The agent has refused the message, or takes no tools of clients.
            RemoteUnavailable: The agent has not answered for `timeout` seconds, or has named no task for `max_wait`
                seconds. The text says if a task may have been started.
            RemoteProtocolError: The answer is not A2A.
            CardRefused: The card cannot be used.
        """
        history_length = options.pop('history_length', None)
        return_immediately = options.pop('return_immediately', False)
        max_wait = options.pop('max_wait', None)
        sending = cast('SendOptions', options)
        limit = None if max_wait is None else seconds(max_wait)
        last: Update | None = None
        try:
            async with chains.waiting.get(), asyncio.timeout(limit):
                exchange = await self._prepare(content, sending, output_type)
                # One request that waits for the end is enough, if a lost request can be repeated.
                waits = exchange.follower.may_repeat and limit is None
                stream = exchange.follower.streams and not waits and not return_immediately
                at_once = return_immediately or not (waits or stream)
                params = replace(exchange.params, history_length=history_length, return_immediately=at_once)
                async with aclosing(exchange.follower.send(params, stream=stream)) as updates:
                    async for update in updates:
                        last = update
                        last.result_of = exchange.sent.result
                        if return_immediately:
                            break
        except TimeoutError:
            if last is None:
                raise RemoteUnavailable(
                    f'The agent has named no task for {limit} seconds, the `max_wait`. The task may have been started.'
                ) from None
        assert last is not None, 'a message has an event'
        return last.result

    @checked
    async def stream(
        self, content: Content, *, output_type: OutputType[OutputT] | None = NO_TYPE, **options: Unpack[SendOptions]
    ) -> AsyncGenerator[Update[OutputT], None]:
        """Send a message, and yield the events of the task until the task ends or waits for the client (§3.1.2).

        The client resumes a cut stream, and polls the task of an agent that does not stream. Errors: see `send`.

        Args:
            content: The message: see `Content`.
            output_type: As for `send`.
            options: See `SendOptions`.
        """
        exchange = await self._prepare(content, options, output_type)
        streams = exchange.follower.streams
        params = replace(exchange.params, return_immediately=not streams)
        updates = exchange.follower.send(params, stream=streams)
        async with chains.waiting.get(), aclosing(updates):
            async for update in updates:
                update.result_of = exchange.sent.result
                yield update

    @checked
    async def subscribe(self, task_id: str, *, last_event_id: int | None = None) -> AsyncGenerator[Update, None]:
        """Yield the events of a task from now on, until the task ends or waits for the client (§3.1.6).

        Args:
            task_id: The task.
            last_event_id: Number of the last event that was received, for agents that number events.
        """
        card, transport = await self._finder.interface()
        updates = Follower.of(card, transport, self._timeout).subscribe(task_id, last_event_id)
        async with chains.waiting.get(), aclosing(updates):
            async for update in updates:
                update.result_of = Sent(self, card).result
                yield update

    @checked
    async def get(self, task_id: str, *, history_length: int | None = None) -> RemoteResult:
        """Return a task as it is (§3.1.3).

        Args:
            task_id: The task.
            history_length: Most messages in the returned task. Default: as the agent decides.

        Raises:
            TaskNotFoundError: The caller has no such task.
        """
        card, transport = await self._finder.interface()
        params = GetParams(id=task_id, history_length=history_length)
        return Sent(self, card).result(await transport.call('GetTask', params))

    @checked
    async def list(
        self,
        *,
        context_id: str | None = None,
        state: TaskState | None = None,
        since: datetime | None = None,
        history_length: int | None = None,
        include_artifacts: bool = False,
    ) -> AsyncIterator[RemoteResult]:
        """Yield the caller's tasks, the newest status first, over all pages (§3.1.4).

        Args:
            context_id: Only tasks of this conversation.
            state: Only tasks in this state.
            since: Only tasks whose status is not older.
            history_length: Most messages in each task. Default: as the agent decides.
            include_artifacts: True to include artifacts. Default False.
        """
        card, transport = await self._finder.interface()
        params = ListParams(
            context_id=context_id,
            state=state,
            since=None if since is None else round(since.timestamp() * 1000),
            history_length=history_length,
            include_artifacts=include_artifacts,
        )
        async for task in transport.items('ListTasks', params):
            yield Sent(self, card, without_artifacts=not include_artifacts).result(task)

    @checked
    async def inbox(self) -> AsyncGenerator[RemoteResult, None]:
        """Yield the tasks that wait for the caller, the newest status first, over all pages.

        These are the caller's tasks with an open question, external call or sign-in, or with an approval that the
        caller may give. At an agent of this package with `Approvals.approvers`, they are also the tasks of others with
        such an approval, of which the caller sees nothing else. The questions of the results leave out approvals that
        only an approver can give. `approve`, `deny` and `answer` of a result may be awaited during the iteration. A
        task comes once, also if it waits again meanwhile.

        Raises:
            UnsupportedOperationError: The agent has no list of tasks, such as in A2A 0.3. For other errors, see `send`.
            RemoteProtocolError: A list has more than 10,000 pages, or is not A2A.
        """
        card, transport = await self._finder.interface()
        async with aclosing(waiting_tasks(card, transport)) as tasks:
            async for task in tasks:
                result = Sent(self, card, of_inbox=True).result(task)
                if is_waiting(result):
                    yield result

    @checked
    async def cancel(self, task_id: str, *, metadata: dict[str, Any] | None = None) -> RemoteResult:
        """Cancel a task, and return the task (§3.1.5).

        Args:
            task_id: The task.
            metadata: Metadata of the request. Default: none.

        Raises:
            TaskNotFoundError: The caller has no such task.
            TaskNotCancelableError: The task has ended.
        """
        card, transport = await self._finder.interface()
        params = CancelParams(id=task_id, metadata=metadata)
        return Sent(self, card).result(await transport.call('CancelTask', params))

    @checked
    async def create_push_config(self, task_id: str, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        """Register a webhook for the events of a task (§3.1.7). Return the webhook with its id.

        Raises:
            PushNotificationNotSupportedError: The agent calls no webhooks.
            TaskNotFoundError: The caller has no such task.
            InvalidParamsError: The agent does not accept the URL.
        """
        _, transport = await self._finder.interface()
        params = CreatePushParams(task_id=task_id, target=read_target(config))
        return await transport.call('CreateTaskPushNotificationConfig', params)

    @checked
    async def get_push_config(self, task_id: str, config_id: str) -> TaskPushNotificationConfig:
        """Return a webhook of a task (§3.1.8)."""
        _, transport = await self._finder.interface()
        params = PushParams(task_id=task_id, id=config_id)
        return await transport.call('GetTaskPushNotificationConfig', params)

    @checked
    async def list_push_configs(self, task_id: str) -> list[TaskPushNotificationConfig]:
        """Return all webhooks of a task (§3.1.9)."""
        _, transport = await self._finder.interface()
        params = ListPushParams(task_id=task_id)
        return [config async for config in transport.items('ListTaskPushNotificationConfigs', params)]

    @checked
    async def delete_push_config(self, task_id: str, config_id: str) -> None:
        """Remove a webhook of a task (§3.1.10)."""
        _, transport = await self._finder.interface()
        params = PushParams(task_id=task_id, id=config_id)
        await transport.call('DeleteTaskPushNotificationConfig', params)

    @checked
    def conversation(self, context_id: str | None = None) -> Conversation:
        """Return a conversation with the agent.

        Args:
            context_id: Id of a conversation to continue. Default: a new conversation.
        """
        return Conversation(self, context_id)

    async def _prepare(self, content: Content, options: SendOptions, output_type: Any) -> _PreparedMessage:
        message = message_of(content)
        card, transport = await self._finder.interface()
        resend, message_id = options.get('resend', False), message['message_id']
        follower = Follower.of(card, transport, self._timeout, resend=resend, message_id=message_id)
        adapter = None if output_type is None else TypeAdapter[Any](output_type)
        params = send_params(message, options, card, output_type, adapter)
        return _PreparedMessage(follower, params, Sent(self, card, options, output_type, adapter))
