"""Dispatches requests to operations: tenant, scopes, capabilities, extensions, rates, spans and direct replies."""

from __future__ import annotations

import logging
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from fasta2a.extensions import (
    format_extensions_header,
    missing_required_extensions,
    parse_extensions_header,
    select_activated_extensions,
)
from opentelemetry.trace import Span

from ... import chains
from ...errors import (
    A2AError,
    AgentUnavailable,
    AgentUnusable,
    ClientGone,
    ExtensionSupportRequiredError,
    InvalidParamsError,
    QuotaExceededError,
)
from ...telemetry import propagation, spans
from ...telemetry.attributes import ids_of
from ...types.callers import Caller
from ...types.frozen_values import frozen
from ...types.operation_params import SendParams
from ...types.service_calls import Call
from ...types.stored_tasks import StoredTask
from ...wire.extensions.own_extensions import LIVE_TEXT_URI
from ...wire.protocol.codec import Codec
from ...wire.protocol.missing_capabilities import refuse_unsupported
from ...wire.protocol.operations import OPERATIONS, Operation, Params
from ...wire.protocol.versions import version_of
from ..auth.guard import Guard
from ..auth.request_info import RequestInfo, header
from ..auth.tenants import Tenants
from ..card.template import CardTemplate
from ..quotas import Metering, audit_refusal
from .direct_messages import DirectMessage, DirectReplies
from .event_streams import EventStream
from .extended_card import ExtendedCard
from .refusals import REASONS, as_error, audit_refused
from .service import Service

logger = logging.getLogger('uvicorn.error')  # which shows information, such as the URL of the playground

Held = TypeVar('Held')

_DEPTH = chains.HEADER.encode()


@frozen
class Dispatcher:
    """The parts of an app that dispatch a request to its operation."""

    service: Service
    guard: Guard
    metering: Metering | None = None
    card: CardTemplate
    """Declares the capabilities and the extensions."""
    extended: ExtendedCard | None = None
    direct: DirectReplies | None = None
    """Answers messages with messages; None: all answers are tasks."""
    tenants: Tenants | None = None
    """Tenants that requests may name; None: the names of tenants are ignored."""
    start: Callable[[], Awaitable[None]]
    """Starts the app, if its lifespan has not."""
    live_on_request: bool = False
    """True if only streams that activate the extension for live text have live text."""
    keep: Callable[[Iterable[tuple[bytes, bytes]], Caller], dict[str, Any]] | None = None
    """Makes the facts of a call that runs read, from its headers and caller; None if no run reads facts."""


class Dispatch:
    """The dispatch of one request to its operation. Call `close` when the answer was read.

    Args:
        parts: The parts of the app.
        request: The request's values.
    """

    headers: tuple[tuple[str, str], ...] = ()
    """Headers of the answer: the active extensions (§4.6)."""
    held: ExitStack | None = None
    """Span, stream slot and subscription of the request, until `close`; None without them."""
    _admitted: Caller | None = None
    """The caller that `admit` found."""
    _caller: Caller | None = None
    """The caller, in the tenant that the request names."""
    _counted = False
    """True once the rates of the caller have counted the request."""
    _is_direct: bool | None = None
    """True if the agent answers the message with a message; None until the user's function was asked."""
    _tenant = ''
    """The tenant that the request names."""
    _live = False
    """True if the request activates the extension for live text."""

    def __init__(self, parts: Dispatcher, request: RequestInfo) -> None:
        self._parts = parts
        self._request = request

    async def admit(self) -> None:
        """Find the caller. The request's body need not have been read.

        Raises:
            A2AError: The caller may not call; see `Guard.admit`.
        """
        self._caller = self._admitted = await self._parts.guard.admit(self._request)

    async def perform(
        self,
        operation: Operation,
        params: Params | None,
        codec: Codec,
        *,
        on_drop: Callable[[], object],
        tenant: str = '',
        size: int = 0,
        unanswered: bool = False,
        left: Future[None] | None = None,
    ) -> Any:
        """Perform an operation for the caller.

        Args:
            operation: The operation.
            params: Its params.
            codec: The codec of the request, which has the errors and the extensions' header of its version.
            on_drop: Called when the reader of an event stream falls too far behind.
            tenant: The tenant that the transport names beside the params.
            size: Bytes of the request's body.
            unanswered: True if the client gets no answer: no stream is opened, and no task is waited for.
            left: Done once the client has gone. A wait for a task then ends; the task goes on.

        Returns:
            The result of the service's method, an `EventStream` for a stream; a `DirectMessage`, if the agent answers
            with a message; the JSON of the extended agent card; None for a stream that nobody reads.

        Raises:
            A2AError: The request is refused.
            ClientGone: The client has gone before a direct reply was made.
        """
        parts, request = self._parts, self._request
        caller, params = await self._check(operation, params, codec, tenant)
        await parts.start()
        traceparent = span = None
        if spans.recording():
            named = {
                'a2a.protocol.version': version_of(codec),
                'a2a.tenant': self._tenant,
                'gen_ai.agent.name': parts.card.name,
            }
            span = self._hold(spans.operation_span(operation.name, request.headers, named))
            traceparent = propagation.dump_trace()
        facts = None if parts.keep is None else parts.keep(request.headers, caller)
        call = Call(
            caller=caller,
            correlation_id=request.correlation_id,
            traceparent=traceparent,
            kept=facts,
            size=size,
            dialect=codec.dialect,
            request=request,
            live=self._live,
            left=left,
        )
        try:
            if parts.metering is not None:
                await self._meter(parts.metering, operation, params)
            if unanswered and isinstance(params, SendParams):
                operation, params = OPERATIONS['SendMessage'], replace(params, return_immediately=True)
            if not operation.service:
                return await self._card(caller, codec.dialect)
            if parts.direct is not None and isinstance(params, SendParams) and await self._takes(parts.direct, params):
                return await self._reply(parts.direct, call, params)
            method = getattr(parts.service, operation.service)
            if operation.stream:
                result = None if unanswered else self._follow(await method(call, params, on_drop))
            else:
                result = await method(call, params)
            if span is not None:
                _name_task(span, params, result)
            return result
        except QuotaExceededError as error:
            if parts.metering is not None:
                audit_refusal(error, caller, request.address, request.correlation_id)
            raise

    async def refused(self, exception: BaseException) -> A2AError:
        """Return the error for the client. Count and record the refusal, also of a request that was not performed."""
        error = as_error(exception, self._request.correlation_id)
        audit_refused(error, self._request, self._caller)
        metering = self._parts.metering
        if isinstance(error, AgentUnusable) and self._request.scope is not None:
            self._request.scope.get(REASONS, []).append(error.__cause__)
        if isinstance(error, AgentUnavailable | AgentUnusable):
            return error  # another try to enter the agent would fail as well
        if self._counted or metering is None or self._admitted is None or self._caller is None:
            return error
        address = self._request.address
        try:
            await self._parts.start()
            await metering.admit('*', metering.subject(self._admitted, address))
        except Exception as failure:
            if isinstance(failure, QuotaExceededError):
                audit_refusal(failure, self._caller, address, self._request.correlation_id)
            return as_error(failure, self._request.correlation_id)
        return error

    def close(self, error: BaseException | None = None) -> None:
        """End the span, free the stream slot, and end the subscription of the request.

        Args:
            error: The error that ended the request, for the span.
        """
        held, self.held = self.held, None
        if held is not None:
            held.__exit__(None if error is None else type(error), error, None if error is None else error.__traceback__)

    def _hold(self, manager: AbstractContextManager[Held]) -> Held:
        if self.held is None:
            self.held = ExitStack()
        return self.held.enter_context(manager)

    async def _check(
        self, operation: Operation, params: Params | None, codec: Codec, tenant: str
    ) -> tuple[Caller, Params | None]:
        """Return the caller in the tenant of the request, and the params with the extensions that are active."""
        parts, request, caller = self._parts, self._request, self._caller
        assert caller is not None, 'admit() has found the caller'
        if parts.tenants is not None:
            caller = self._caller = await self._in_tenant(
                parts.tenants, caller, tenant, '' if params is None else params.tenant
            )
        if parts.guard.scoped:
            self._authorize(caller, operation, params)
        if operation.lists:
            parts.guard.check_list(caller, request)
        if operation.capability is not None:
            refuse_unsupported(operation, parts.card.capabilities, codec.refusals)
        if isinstance(params, SendParams) and (sent := header(request.headers, _DEPTH)) is not None:
            chains.depth.set(chains.depth_of(sent))
        requested = header(request.headers, codec.extensions_key)
        if requested is not None or parts.card.needs_extensions:
            params = self._activate(requested, params, codec)
        if operation.stream and parts.live_on_request and not self._live:
            note_whole_text()
        return caller, params

    async def _in_tenant(self, tenants: Tenants, caller: Caller, path: str, named: str) -> Caller:
        """Return the caller in the tenant that the transport or the params name (§8.3.2)."""
        if path and named not in ('', path):
            raise InvalidParamsError.of('tenant', 'must be the same as in the path')
        self._tenant = path or named
        settled = await self._request.ask('Access.tenants', tenants.settle(caller, self._tenant))
        if settled is None:
            self._parts.guard.refuse_tenant(caller, self._tenant, self._request)
        return settled if settled is caller else self._parts.guard.owning(settled)

    def _authorize(self, caller: Caller, operation: Operation, params: Params | None) -> None:
        """Refuse a caller without the scopes of the operation. Webhooks of messages need their own scopes."""
        names = [operation.name]
        if isinstance(params, SendParams) and params.push_config is not None:
            names.append('CreateTaskPushNotificationConfig')
        for name in names:
            self._parts.guard.authorize(caller, name, self._request)

    def _activate(self, requested: str | None, params: Params | None, codec: Codec) -> Params | None:
        """Return the params with their active extensions, which the answer's headers repeat (§4.6).

        FastA2A's own functions decide which extensions are active.
        """
        name, declared = codec.extensions_header, self._parts.card.extensions
        active = select_activated_extensions(declared, parse_extensions_header(requested))
        headers = ((name, format_extensions_header(active)),) if active else ()
        missing = missing_required_extensions(declared, active)
        if missing and (isinstance(params, SendParams) or not codec.reads_without_extensions):
            raise ExtensionSupportRequiredError(
                f'The agent requires an extension that the request does not declare in {name}.',
                metadata={'requiredExtensions': ', '.join(missing)},
                headers=dict(headers),
            )
        self.headers = headers
        self._live = LIVE_TEXT_URI in active
        if active and isinstance(params, SendParams):
            return replace(params, extensions=tuple(active))
        return params

    async def _meter(self, metering: Metering, operation: Operation, params: Params | None) -> None:
        """Count the request, and hold a stream slot for a request that stays open."""
        assert self._admitted is not None, 'admit() has found the caller'
        self._counted = True
        # The caller without the tenant that the request names: a caller of many tenants would have many rates.
        subject = metering.subject(self._admitted, self._request.address)
        await metering.admit(operation.name, subject)
        if operation.stream or (isinstance(params, SendParams) and await self._waits(params)):
            self._hold(metering.stream(subject))

    async def _waits(self, params: SendParams) -> bool:
        """Return whether a send is answered only after a run."""
        if not params.return_immediately:
            return True
        direct = self._parts.direct
        return direct is not None and await self._takes(direct, params)

    async def _takes(self, direct: DirectReplies, params: SendParams) -> bool:
        """Return whether the agent answers the message with a message. The user's function is asked once."""
        if self._is_direct is None:
            self._is_direct = await self._request.ask('Messages.reply', direct.takes(params.message))
        return self._is_direct is True

    async def _reply(self, direct: DirectReplies, call: Call, params: SendParams) -> DirectMessage:
        submission = await self._parts.service.submissions.check_direct(call, params)
        message = await direct.answer(submission, call.correlation_id, self._request.gone)
        if message is None:
            raise ClientGone
        return DirectMessage(message)

    async def _card(self, caller: Caller, version: str) -> bytes:
        """Return the caller's extended card."""
        extended = self._parts.extended
        assert extended is not None, 'the card declares it'
        card = extended.render(caller, self._request.base_url(), self._tenant, version)
        return await self._request.ask('Access.extended_card', card)

    def _follow(self, stream: EventStream) -> EventStream:
        if stream.subscription is not None:
            self._hold(closing(stream.subscription))
        return stream


def _name_task(span: Span, params: Params | None, result: object) -> None:
    """Name the task in the span of an operation that has succeeded; the ids of refused requests are callers' text."""
    span.set_attributes(ids_of(params))
    task = result
    if isinstance(result, EventStream):
        task, result.span = result.first, span
    if isinstance(task, StoredTask):
        spans.name_task(span, task.header.id, task.header.context_id, task.header.state)


@cache
def note_whole_text() -> None:
    """Log that a stream has no live text, once in a process."""
    logger.info(
        'A stream did not activate %s, so the text of its answer comes in one piece. Clients get the text while the'
        ' model writes it if they send this URI in the header A2A-Extensions (A2A 0.3: X-A2A-Extensions). See "Live'
        ' text" in docs/clients.md.',
        LIVE_TEXT_URI,
    )
