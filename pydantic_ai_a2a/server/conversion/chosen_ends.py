"""The end of a run in a state that the agent has chosen."""

from __future__ import annotations

from collections.abc import Sequence

from ...settings.approvals import Approvals
from ...types.a2a_objects import Part
from .chosen_states import AuthRequired, Rejected, State
from .deferred_calls import Asked
from .pending_calls import Pending
from .status_parts import data_part, shown, text_part


def asked_by(state: State, rules: Approvals, task_id: str) -> Asked:
    """Return the end of a run that came to a state of the agent's choice."""
    if isinstance(state, Rejected):
        return Asked(state='rejected', parts=[text_part(state.reason)])
    if isinstance(state, AuthRequired):
        return Asked(state='auth-required', parts=[text_part(state.message), *_authorization(state.schemes, state.url)])
    if state.schema is None:
        return Asked(state='input-required', parts=[text_part(state.question)])
    pending = Pending(schema=dict(state.schema), question=state.question)
    return Asked(state='input-required', parts=shown(pending, rules, task_id), pending=pending)


def _authorization(schemes: Sequence[str], url: str | None) -> list[Part]:
    fields = {name: value for name, value in (('schemes', [*schemes]), ('url', url)) if value}
    return [data_part({'pending': [], 'authorization': fields})] if fields else []
