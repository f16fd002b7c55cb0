"""The settings of an app, in frozen dataclasses by topic. Each option is documented at its definition.

Users construct the groups. `to_a2a` joins the groups into one `Settings` for the parts of the app.

The rooms import a group from its module. The names below are for users.
"""

from __future__ import annotations

from .access import SUPPORTED, Access, MakeCard, Owner, TenantRule, Version
from .app_settings import Settings
from .approvals import Approvals, Approvers, PlainText
from .budgets import Budget
from .credentials import Credential, Credentials, Exchange
from .limits import Limits
from .messages import HTTPS_ONLY, Messages, Reply, Rule, WhileWorking
from .progress import Progress
from .push import Push
from .quotas import Quotas
from .rate_limits import Rate
from .results import Results, TextStream
from .retention import Retention
from .tls import TLS
from .workers import Workers

__all__ = [
    'HTTPS_ONLY',
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
]
