"""The argument of a workflow: the data of a run as JSON, from the server of its task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, TypeAdapter
from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.tools import DeferredToolResults, ToolDefinition
from pydantic_ai.usage import RunUsage

from ..server.agent.run_info import RunInfo
from ..server.budget_rest import Left
from ..server.runs.engine import EngineRun
from ..server.store.ports import Claim
from .temporal_dependencies import dump_deps
from .temporal_json import JSON_CONFIG, as_object

CLAIM: TypeAdapter[Claim] = TypeAdapter(Claim)


@dataclass(frozen=True)
class SentRun:
    """The data of a run for its workflow, as a JSON object."""

    __pydantic_config__: ClassVar[ConfigDict] = JSON_CONFIG

    claim: Claim
    deps: str | None
    """The `deps` of `deps_factory`, as JSON."""
    shown: list[str]
    prompt: str | Sequence[UserContent] | None
    history: Sequence[ModelMessage]
    info: RunInfo
    text_output: bool
    usage: RunUsage | None
    budget: Annotated[Left, BeforeValidator(lambda values: values[: len(Left._fields)])] | None
    answers: DeferredToolResults | None
    client_tools: Sequence[ToolDefinition]
    spent: float
    given: Sequence[Any] = ()
    """The data of the client for `Messages.input_type`, if any. Servers of the versions before do not send it."""
    approved: Mapping[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """See `RunArguments.approved`. Servers of the version before do not send it."""


_SENT_RUN: TypeAdapter[SentRun] = TypeAdapter(SentRun)


def dump_run(run: EngineRun) -> bytes:
    """Write the data of a run.

    Raises:
        UserError: The `deps` would change on their way.
    """
    arguments, validated = run.arguments, run.current.validated
    sent = SentRun(
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
    return _SENT_RUN.dump_json(sent)


def load_run(body: bytes) -> SentRun:
    """Read the JSON of `dump_run`, also of the version before."""
    return _SENT_RUN.validate_json(as_object(body, SentRun))
