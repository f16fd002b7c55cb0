"""The refusal of options that exclude each other, or that need another option."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.agent import AbstractAgent

from ...settings.access import Access
from ...settings.app_settings import Settings
from ...settings.approvals import Approvals
from ...settings.messages import HTTPS_ONLY, Messages
from ...settings.quotas import Quotas
from ...settings.workers import Workers
from ..agent.dependencies import DepsFactory
from ..agent.hooks import Hooks
from ..agent.run_options import RunOptions
from ..auth.authenticator import Authenticator
from ..auth.guard import Auth
from ..store.ports import Backend


def check_auth(
    access: Access, approvals: Approvals, auth: Auth | None, quotas: Quotas | None, *, card_security: bool
) -> None:
    """Check `auth` and what needs it.

    Args:
        access: What callers may do.
        approvals: Who may decide about approvals.
        auth: How they authenticate.
        quotas: Quotas of each caller.
        card_security: True if the user has written security schemes or requirements for the card.

    Raises:
        TypeError: The options do not go together.
    """
    if isinstance(auth, type):  # such as `BearerAuth` itself, which can be called like a function
        raise TypeError(f'to_a2a(): auth takes an Authenticator, not the class {auth.__name__}.')
    is_anonymous = auth is None
    enforces = isinstance(auth, Authenticator | Sequence)
    refuse_options(
        (
            enforces and card_security,
            'With auth=, the card gets its security_schemes and security_requirements from auth=. Remove both'
            ' arguments.',
        ),
        (is_anonymous and bool(access.scopes), 'Access.scopes needs auth=: anonymous callers have no scopes.'),
        (
            is_anonymous and access.owner is not None,
            'Access.owner needs auth=: all anonymous callers share one owner.',
        ),
        (
            is_anonymous and access.extended_card is not None,
            'Access.extended_card needs auth=: only authenticated callers get the extended card.',
        ),
        (
            is_anonymous and access.credentials is not None,
            'Access.credentials needs auth=: anonymous callers have no credentials.',
        ),
        (
            is_anonymous and approvals.approvers is not None,
            'Approvals.approvers needs auth=: all anonymous callers are one caller.',
        ),
        (
            is_anonymous and quotas is not None and quotas.running is not None,
            'Quotas.running needs auth=: all anonymous callers are one caller, which Workers.running limits.',
        ),
    )


def check_run(settings: Settings, deps_factory: DepsFactory | None, hooks: Hooks, options: RunOptions) -> None:
    """Check the options of runs, which conflict with each other or with a worker of the user's own.

    Raises:
        TypeError: The options do not go together.
    """
    messages: Messages = settings.messages
    others = {
        'deps_factory': deps_factory is not None,
        'force_download': not messages.force_download,
        'allowed_file_url_schemes': messages.allowed_file_url_schemes != HTTPS_ONLY,
    }
    names = [name for name, value in options.items() if value is not None]
    names = sorted([*names, *hooks.given, *(name for name, is_there in others.items() if is_there)])
    refuse_options(
        (
            settings.workers.worker is not None and bool(names),
            f'With Workers.worker, to_a2a() takes no {", ".join(names)}: set the options of runs on the worker itself.',
        ),
        (
            deps_factory is None and bool(messages.deps_headers),
            'Messages.deps_headers needs deps_factory=, which receives the headers.',
        ),
        (
            deps_factory is not None and options.get('deps') is not None,
            'Give deps= or deps_factory=, not both.',
        ),
    )


def check_waiting(hooks: Hooks, store: Backend) -> None:
    """Check that a store keeps the calls of `on_waiting`.

    Raises:
        ValueError: The store keeps none.
    """
    if hooks.on_waiting is not None and store.hook_calls is None:
        raise ValueError('on_waiting= needs a backend with hook calls (Backend.hook_calls).')


def check_engine(
    engine: object,
    agent: AbstractAgent[Any, Any],
    settings: Settings,
    hooks: Hooks,
    options: RunOptions,
    *,
    durable: bool,
) -> Settings:
    """Check an engine, and what cannot be combined with an engine. Return the settings of the app with the engine.

    Raises:
        TypeError: The options do not go together, or the agent lacks the capability of the engine.
    """
    from ..runs.engine import Engine  # noqa: PLC0415 - apps without an engine import none

    if not isinstance(engine, Engine):
        raise TypeError(f'engine= takes an engine such as DBOS(url), not {engine!r}.')
    workers = settings.workers
    refused = 'cannot be combined with engine='
    steers = settings.messages.while_working == 'steer'
    partial_data = bool(settings.results.progress.partial_data)
    retries = workers.retries != Workers().retries or workers.retry_on is not None
    attempts = not engine.in_server and workers.attempts != Workers().attempts
    refuse_options(
        (
            not durable,
            'engine= needs tasks that outlive the process, and no storage=, broker= or Workers.worker of your own: use'
            " backend='sqlite:///agent.db' or a PostgreSQL database.",
        ),
        (steers, f"while_working='steer' {refused}: a running workflow takes no messages. Use while_working='queue'."),
        (
            hooks.of_tools,
            f'on_tool_call= and on_tool_result= {refused}: a crash repeats them. Call them in the tools.',
        ),
        (partial_data, f'Progress.partial_data {refused}, which gives no partial outputs. Remove one.'),
        (retries, f'Workers.retries and Workers.retry_on {refused}: set the retries on the capability of the agent.'),
        (
            attempts,
            f'Workers.attempts {refused}{type(engine).__name__}(): a workflow outlives any number of workers. Set'
            ' maximum_attempts in the retry policy of the capability, or a timeout.',
        ),
    )
    engine.check(agent, options)
    starts = workers.attempts if engine.in_server else sys.maxsize  # a workflow outlives any number of servers
    return replace(settings, workers=replace(workers, retries=0, attempts=starts))


def refuse_options(*rules: tuple[bool, str]) -> None:
    """Raise the first of some errors whose condition is true."""
    for is_wrong, text in rules:
        if is_wrong:
            raise TypeError(text)
