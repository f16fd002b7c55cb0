"""The argument of a workflow: the data of a run as JSON, from the server of its task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.tools import DeferredToolResults, ToolDefinition
from pydantic_ai.usage import RunUsage

from ..agent.run_options import RunInfo
from ..quotas import Left
from ..store.ports import Claim
from .engine import EngineRun
from .temporal_dependencies import dump_deps

JSON_CONFIG = ConfigDict(ser_json_bytes='base64', val_json_bytes='base64')


CLAIM: TypeAdapter[Claim] = TypeAdapter(Claim)


class _Sent(NamedTuple):
    """The data of a run for its workflow, as JSON."""

    claim: Claim
    deps: str | None
    """The `deps` of `deps_factory`, as JSON."""
    shown: list[str]
    prompt: str | Sequence[UserContent] | None
    history: Sequence[ModelMessage]
    info: RunInfo
    text_output: bool
    usage: RunUsage | None
    budget: Left | None
    answers: DeferredToolResults | None
    client_tools: Sequence[ToolDefinition]
    spent: float
    given: list[Any] = []  # noqa: RUF012 - never changed
    """The data of the client for `Messages.input_type`, if any. Servers of the versions before do not send it."""
    approved: Mapping[str, dict[str, Any]] = {}
    """See `RunArguments.approved`. Servers of the version before do not send it."""


SENT_RUN: TypeAdapter[_Sent] = TypeAdapter(_Sent, config=JSON_CONFIG)


def dump_run(run: EngineRun) -> bytes:
    """Write the data of a run.

    Raises:
        UserError: The `deps` would change on their way.
    """
    arguments, validated = run.arguments, run.current.validated
    sent = _Sent(
        # The messages of the claim are in the history.
        claim=replace(run.current.claim, own_messages=None, checkpoint=None, pending=None, tried=None),
        deps=None if run.options is None else dump_deps(run.app.runner.agent, run.options.get('deps')).decode(),
        shown=[*arguments.shown],
        prompt=arguments.prompt,
        history=arguments.history,
        info=arguments.info,
        text_output=arguments.text_output,
        usage=arguments.usage,
        budget=arguments.budget,
        answers=arguments.answers,
        approved=arguments.approved,
        client_tools=arguments.client_tools,
        spent=arguments.spent,
        given=[] if validated is None else [validated.given],
    )
    return SENT_RUN.dump_json(sent)
