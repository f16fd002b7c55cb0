"""The run of the agent inside of a workflow, the same for all engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.exceptions import RunCancelled, RunTimedOut
from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from ...errors import LeaseLost, StoreFailed, StoreUnavailable
from ..agent.run_arguments import RunArguments
from ..agent.run_options import RunOptions
from ..agent.run_output import Answer, RunOutput
from ..agent.runner import Runner
from ..conversion.failures import EngineFailure, classify
from ..store.run_usage import plain_usage

USAGE: TypeAdapter[RunUsage | None] = TypeAdapter(RunUsage | None)


@dataclass
class Canceled:
    """The output of a cancelled run, whose messages are those until the cancel."""

    text: str


async def perform(
    runner: Runner,
    arguments: RunArguments,
    options: RunOptions | None,
    answer: Callable[[RunOutput], Answer] | None = None,
) -> RunOutput:
    """Run the agent in a workflow.

    Args:
        runner: Runs the agent.
        arguments: The arguments of the run, the same in each replay of the workflow.
        options: Options of this run only.
        answer: Makes the answer of the run here, for an engine that changes values on their way; None: the server does.

    Raises:
        EngineFailure: The run has failed.
        LeaseLost, StoreFailed, StoreUnavailable: A tool has written to the task in vain.
    """
    # Engines refuse tokens, which belong to one process. The workflow's token cancels the run itself.
    given: Any = dict(options or {}, cancellation_token=None)
    try:
        ended = await runner.run(arguments, given)
        ended = ended._replace(usage=plain_usage(ended.usage), whole=_whole(ended, arguments.history))
        return ended if answer is None or ended.waits else ended._replace(answer=answer(ended))
    except (LeaseLost, StoreFailed, StoreUnavailable):
        raise
    except Exception as error:
        if isinstance(error, RunCancelled) and not isinstance(error, RunTimedOut):
            return RunOutput(Canceled(error.message), (), None, error.new_messages(), plain_usage(error.usage))
        raise EngineFailure(*classify(error), _dumped(arguments.usage)) from error


def _whole(ended: RunOutput, history: Sequence[ModelMessage]) -> tuple[Sequence[ModelMessage], int] | None:
    """Return the messages of a result for the hooks, if the run has changed its history; see `RunOutput.whole`."""
    if (result := ended.result) is None or (messages := result.all_messages()) == [*history, *ended.messages]:
        return None
    return messages, len(messages) - len(result.new_messages())


def _dumped(usage: RunUsage | None) -> Any:
    return None if usage is None else USAGE.dump_python(plain_usage(usage), mode='json')
