"""The options of `to_a2a` for type checkers, which compare `deps`, factories and hooks with the agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal

from fasta2a.broker import Broker
from fasta2a.schema import AgentExtension, AgentProvider, SecurityRequirement, SecurityScheme, Skill
from fasta2a.storage import Storage
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ExceptionHandler, Lifespan

from ...settings.access import Access
from ...settings.approvals import Approvals
from ...settings.limits import Limits
from ...settings.messages import Messages
from ...settings.push import Push
from ...settings.results import Results
from ...settings.retention import Retention
from ...settings.workers import Workers
from ..agent.dependencies import DepsFactory
from ..agent.hooks import OnCancel, OnComplete, OnFailure, OnToolCall, OnToolResult, OnWaiting, OutputT
from ..agent.run_options import CommonRunOptions, DepsT
from ..auth.guard import Auth
from ..runs.engine import Engine
from ..store.ports import Backend
from ..store.postgres.settings import Postgres


class AppOptions(CommonRunOptions[DepsT], Generic[DepsT, OutputT], total=False):
    """The options of both overloads of `to_a2a`, which has their defaults and their meaning."""

    # Agent card
    name: str | None
    url: str | None
    version: str
    description: str | None
    provider: AgentProvider | None
    skills: list[Skill] | None
    extensions: list[AgentExtension] | None
    security_schemes: dict[str, SecurityScheme] | None
    security_requirements: list[SecurityRequirement] | None
    docs_url: str | None
    default_input_modes: Sequence[str] | None
    default_output_modes: Sequence[str] | None
    # Server
    backend: Literal['memory'] | str | Postgres | Backend
    storage: Storage[Any] | None
    broker: Broker | None
    auth: Auth | None
    access: Access
    approvals: Approvals
    limits: Limits
    messages: Messages
    push: Push | None
    results: Results
    retention: Retention
    workers: Workers
    engine: Engine | None
    # Runs
    deps_factory: DepsFactory[DepsT] | None
    on_complete: OnComplete[OutputT] | None
    on_cancel: OnCancel | None
    on_failure: OnFailure | None
    on_waiting: OnWaiting | None
    on_tool_call: OnToolCall[DepsT] | None
    on_tool_result: OnToolResult[DepsT] | None
    # Starlette
    debug: bool
    routes: Sequence[BaseRoute] | None
    middleware: Sequence[Middleware] | None
    exception_handlers: dict[Any, ExceptionHandler] | None
    lifespan: Lifespan[Any] | None
