"""The `deps` of a run: made from the call that started the run, and closed at the end of the run.

The process that accepted the call may differ from the process of the run, so the task stores the factory's input.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from inspect import isasyncgenfunction, isawaitable, isgeneratorfunction, signature
from typing import Any, TypeAlias, TypeVar, cast

from pydantic_ai.exceptions import RunCancelled, RunTimedOut
from pydantic_core import from_json

from ...base_exceptions import is_cancelled
from ...time_spans import seconds
from ...types.a2a_objects import SecurityScheme
from ...types.callers import Caller, dump_caller, load_caller, sender_of
from ...wire.protocol import stored_values
from ..conversion.typed_input import ValidatedInput
from ..store.ports import Claim
from .call_context import CallContext
from .run_info import RunInfo
from .run_options import DepsT, RunOptions
from .run_token import RunToken

logger = logging.getLogger('pydantic_ai_a2a')

_CREDENTIALS = frozenset({'authorization', 'cookie', 'proxy-authorization'})
"""Headers with credentials, never stored."""

T = TypeVar('T')

_Opened: TypeAlias = DepsT | AbstractContextManager[DepsT] | AbstractAsyncContextManager[DepsT]
DepsFactory: TypeAlias = Callable[[CallContext], _Opened[DepsT] | Awaitable[_Opened[DepsT]]]
"""Makes the `deps` of one run. Returns `deps`, an awaitable, or a context manager, async or not."""


class DependenciesFailed(Exception):
    """The `deps` of a run could not be made or closed. Never sent to a client; the log has the cause."""


class Dependencies:
    """Gives each run `deps` of its own.

    Args:
        factory: Makes the `deps`.
        headers: Names of the HTTP headers for the factory.
        timeout: Seconds for the factory; None for no limit.
    """

    def __init__(self, factory: DepsFactory, headers: Iterable[str], timeout: float | None) -> None:
        self._factory = factory
        self._headers = frozenset(name.lower().encode('latin-1') for name in headers)
        self._timeout = timeout

    def keep(self, headers: Iterable[tuple[bytes, bytes]], caller: Caller) -> dict[str, Any]:
        """Return the stored part of a call besides its message and owner, as JSON values."""
        values: dict[str, str] = {}
        for name, value in headers:
            if name in self._headers:
                key, text = name.decode('latin-1'), value.decode('latin-1')
                values[key] = f'{values[key]}, {text}' if key in values else text
        return {**keep_caller((), caller), 'headers': values}

    async def use(
        self,
        claim: Claim,
        token: RunToken,
        info: RunInfo,
        run_id: str,
        run: Callable[[Any], Awaitable[T]],
        *,
        validated: ValidatedInput | None = None,
    ) -> T:
        """Run with `deps`, and close the `deps` after any end of the run, before the end is recorded.

        Raises:
            DependenciesFailed: The `deps` could not be made, or not be closed after a successful run.
            RunCancelled: The token was cancelled, or (RunTimedOut) the factory took too long.
        """
        opened = AsyncExitStack()
        deps = await self._open(_call_of(claim, validated), token, opened, info, run_id)
        try:
            result = await run(deps)
        except BaseException as error:
            await _close_after(error, opened, claim.header.id)
            raise
        try:
            await opened.aclose()
        except Exception as error:
            raise DependenciesFailed('deps_factory= failed while it closed the dependencies of a run.') from error
        return result

    async def _open(
        self, call: CallContext, token: RunToken, opened: AsyncExitStack, info: RunInfo, run_id: str
    ) -> Any:
        opening = asyncio.timeout(self._timeout)
        try:
            async with opening:
                with token.opening(opening):
                    return await self._enter(call, opened)
        except Exception as error:
            if not opening.expired():
                raise DependenciesFailed('deps_factory= failed before the run.') from error
            kind, why = (RunCancelled, 'cancelled') if token.cancelled else (RunTimedOut, 'not made in time')
            raise kind(
                f'The dependencies were {why}.',
                metadata={'a2a': info},
                run_id=run_id,
                conversation_id=call.context_id,
            ) from error

    async def _enter(self, call: CallContext, opened: AsyncExitStack) -> Any:
        made: Any = self._factory(call)
        # An awaitable context manager, such as a connection, is opened once only.
        if isawaitable(made) and not isinstance(made, AbstractAsyncContextManager):
            made = await made
        if isinstance(made, AbstractAsyncContextManager):
            return await opened.enter_async_context(cast('AbstractAsyncContextManager[Any]', made))
        if isinstance(made, AbstractContextManager):
            return opened.enter_context(cast('AbstractContextManager[Any]', made))
        return made


async def _close_after(error: BaseException, opened: AsyncExitStack, task_id: str) -> None:
    """Close the `deps` with the error of the run. The error of the run stays."""
    try:
        await opened.__aexit__(type(error), error, error.__traceback__)
    except Exception:
        logger.exception(
            'deps_factory= failed while it closed the dependencies of task %s; the error of the run stays.',
            task_id,
        )
    except asyncio.CancelledError as cancellation:
        if is_cancelled(cancellation, asyncio.current_task()):  # else a dependency raised the error
            raise


def _call_of(claim: Claim, validated: ValidatedInput | None) -> CallContext:
    header = claim.header
    request = _request_of(claim)
    call: dict[str, Any] = request.get('call', {})
    return CallContext(
        caller=caller_of(claim),
        headers=call.get('headers', {}),
        message=stored_values.load_message(claim.message),
        metadata=request.get('metadata', {}),
        task_id=header.id,
        context_id=header.context_id,
        validated=validated,
    )


def _request_of(claim: Claim) -> dict[str, Any]:
    return {} if claim.request is None else from_json(claim.request)


def caller_of(claim: Claim) -> Caller:
    """Return the sender of the message of a run. Without a stored sender, return the owner of the task."""
    fields = sender_of(claim.request)
    return Caller.of(claim.header.owner) if fields is None else load_caller(fields)


def keep_caller(_: object, caller: Caller) -> dict[str, Any]:
    """Return the caller as JSON values, to be stored with the message."""
    return {'caller': dump_caller(caller)}


def dependencies(
    factory: DepsFactory | None,
    headers: Collection[str],
    options: RunOptions,
    schemes: Mapping[str, SecurityScheme],
) -> Dependencies | None:
    """Return the `Dependencies` of a factory; None without a factory.

    Raises:
        TypeError: The factory is a generator function, or cannot be called with one argument.
        ValueError: A header has credentials, by its name or by one of the security schemes.
    """
    if factory is None:
        return None
    if isasyncgenfunction(factory) or isgeneratorfunction(factory):
        raise TypeError('deps_factory= yields: decorate it with contextlib.asynccontextmanager or contextmanager.')
    _check_argument(factory)
    keys = {key['name'].lower() for scheme in schemes.values() if (key := scheme.get('api_key_security_scheme'))}
    if secret := sorted(name for name in headers if name.lower() in _CREDENTIALS | keys):
        raise ValueError(
            f'deps_headers= must not name {", ".join(secret)}: headers are stored with the task,'
            ' and credentials are never stored.'
        )
    timeout = options.get('timeout')
    return Dependencies(factory, headers, None if timeout is None else seconds(timeout))


def _check_argument(factory: DepsFactory) -> None:
    """Refuse a factory that surely cannot be called with a `CallContext` alone."""
    try:
        # A wrapper may give more arguments to the function that it wraps.
        arguments = signature(factory, follow_wrapped=False)
    except (NameError, TypeError, ValueError):  # such as a class in C, or annotations that Python 3.14 cannot evaluate
        return
    try:
        arguments.bind(None)
    except TypeError as error:
        raise TypeError(f'deps_factory= is called with one argument, the CallContext: {error}.') from None
