"""All groups of settings of one app."""

from __future__ import annotations

from ..types.frozen_values import frozen
from .access import Access
from .approvals import Approvals
from .limits import Limits
from .messages import Messages
from .push import Push
from .results import Results
from .retention import Retention
from .workers import Workers


@frozen
class Settings:
    """All groups of settings of one app."""

    access: Access
    approvals: Approvals
    limits: Limits
    messages: Messages
    push: Push | None
    results: Results
    retention: Retention
    workers: Workers
