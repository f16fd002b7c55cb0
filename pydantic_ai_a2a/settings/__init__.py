"""The settings of an app, in frozen dataclasses by topic. Each option is documented at its definition.

Users construct the groups. `to_a2a` joins the groups into one `Settings` for the parts of the app.
"""

from __future__ import annotations

from ..types import frozen
from .access import SUPPORTED, TLS, Access, MakeCard, Owner, TenantRule, Version
from .credentials import Credential, Credentials, Exchange
from .limits import LONG, Budget, Limits, Quotas, Rate
from .messages import HTTPS_ONLY, Approvals, Approvers, Messages, PlainText, Reply, Rule, WhileWorking
from .results import Progress, Push, Results, TextStream
from .running import Retention, Workers

__all__ = (
    'HTTPS_ONLY',
    'LONG',
    'SUPPORTED',
    'TLS',
    'Access',
    'Approvals',
    'Approvers',
    'Budget',
    'Credential',
    'Credentials',
    'Exchange',
    'Limits',
    'MakeCard',
    'Messages',
    'Owner',
    'PlainText',
    'Progress',
    'Push',
    'Quotas',
    'Rate',
    'Reply',
    'Results',
    'Retention',
    'Rule',
    'Settings',
    'TenantRule',
    'TextStream',
    'Version',
    'WhileWorking',
    'Workers',
)


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
