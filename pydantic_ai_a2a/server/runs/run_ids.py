"""The id of a run: logs, traces, and the client of a failed task have the same id."""

from __future__ import annotations

from ..store.ports import Claim


def run_id(claim: Claim) -> str:
    """Return the Pydantic AI run id, also the correlation id of a failure: logs, traces and client agree."""
    run = f'{claim.header.id}.{claim.run}'
    # Pydantic AI refuses an id of the history. A checkpoint has the ids of earlier attempts.
    begins = claim.attempt == 1 and claim.checkpoint is claim.tried is None
    return run if begins else f'{run}.{claim.fence}'
