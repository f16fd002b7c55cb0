"""A run of an agent in spans and metrics."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter, time

from pydantic_ai.usage import RunUsage

from ...reported_numbers import count_of
from ...telemetry.metrics import Instruments, metrics
from ...telemetry.spans import recording, run_span
from ...wire.protocol import new_ids
from ..store.ports import Claim
from .run_state import RunState

_NO_SPAN: AbstractContextManager[object] = nullcontext()


def observed_run(claim: Claim, state: RunState) -> AbstractContextManager[object]:
    """Observe the block as the run of a claim: with a span and with metrics, as far as an SDK is configured."""
    header, instruments = claim.header, metrics.instruments
    span = run_span(header.id, header.context_id, claim.traceparent) if recording() else _NO_SPAN
    return span if instruments is None else _measured(span, claim, state, instruments)


@contextmanager
def _measured(
    span: AbstractContextManager[object], claim: Claim, state: RunState, instruments: Instruments
) -> Generator[None]:
    first = claim.run == 1 and claim.attempt == 1 and claim.tried is None
    instruments.begin_run(time() - new_ids.time_of(claim.header.id) if first else None)
    start, before = perf_counter(), _tokens(claim.used)
    error: BaseException | None = None
    try:
        with span:
            yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        used = zip(_tokens(state.usage), before, strict=True)
        instruments.end_run(perf_counter() - start, error, [now - then for now, then in used])


def _tokens(usage: RunUsage | None) -> tuple[int, int]:
    """Return the tokens of the input and of the output."""
    return (0, 0) if usage is None else (count_of(usage.input_tokens), count_of(usage.output_tokens))
