"""The state of a run: what its job, its recorder and its worker tell each other.

The recorder makes the state from the claim, and each attempt and each try has a claim, a recorder and a state of its
own. All of them use the state in the event loop of the run, so it needs no lock.

| attribute | written by | read by |
|---|---|---|
| `usage` | the job, before the run; then the agent adds to it | the recorder, metrics, `attempts` |
| `text_type` | the job, before the run | the recorder, for texts of the model |
| `live` | the job, when a message that wants live text enters the run | the job |
| `taken` | the job, when the model has answered a message that entered the run | the recorder, for steps and the end |
| `tool_artifacts` | the job, with those of earlier attempts; the recorder, once stored | the recorder, for the end |
| `has_stored_steps` | the recorder, once a step is stored | `attempts`, which then counts tries anew |
| `transient` | the job, when a request to the model fails | `attempts`, which may try again |
"""

from __future__ import annotations

from pydantic_ai.usage import RunUsage

from ...wire.extensions.own_extensions import wants_live
from ...wire.protocol.stored import PLAIN
from ..store.ports import Claim


class RunState:
    """The state of one run of a claimed task.

    Args:
        claim: The claim, with the progress of earlier attempts.
    """

    def __init__(self, claim: Claim) -> None:
        self.usage: RunUsage | None = claim.used
        """Usage of the run over all attempts and tries. Grows during the run."""
        self.text_type = PLAIN
        """The media type of the agent's text."""
        self.live = claim.request is not None and wants_live(claim.request)
        """True if a message of the run wants live text before there is a reader."""
        self.taken = 0 if claim.checkpoint is None else claim.checkpoint.taken
        """Row of the newest client message that entered the run under way; 0 for none."""
        self.tool_artifacts: dict[str, bytes] = {}
        """Artifacts from tools, as JSON, by id."""
        self.has_stored_steps = False
        """True once this try has stored a step of the run."""
        self.transient: Exception | None = None
        """The error of the model after which the run can be tried again."""
