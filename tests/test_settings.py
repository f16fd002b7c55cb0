"""What settings can be set to, and that none shows a secret that it holds."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet

import pydantic_ai_a2a
from pydantic_ai_a2a import (
    A2A,
    Access,
    APIKeyAuth,
    BearerAuth,
    Budget,
    Caller,
    ClientCredentials,
    Credential,
    Credentials,
    Limits,
    Postgres,
    Push,
    Quotas,
    Rate,
    RequestInfo,
    Retention,
    Workers,
)

from .wire.signing.signing_keys import private_pem

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ('make', 'wrong'),
    [
        (lambda: Limits(body=0), 'Limits.body must be positive, not 0.'),
        (lambda: Limits(max_wait=-1), 'Limits.max_wait must be positive, not -1.0.'),
        (lambda: Retention(events=timedelta(0)), 'Retention.events must be positive, not 0.0.'),
        (lambda: Workers(running=-3), 'Workers.running must be positive, not -3.'),
        (lambda: Rate(0, DAY), 'Rate.count must be positive, not 0.'),
        (lambda: Rate(1, timedelta()), 'Rate.per must be positive, not 0.0.'),
        (lambda: Rate(1, DAY, burst=0), 'Rate.burst must be positive, not 0.'),
        (lambda: Budget(window=timedelta(), tokens=1), 'Budget.window must be positive, not 0.0.'),
        (lambda: Budget(window=DAY, requests=0), 'Budget.requests must be positive, not 0.'),
        (lambda: Budget(window=DAY, tokens=-1), 'Budget.tokens must be positive, not -1.'),
        (lambda: Budget(window=DAY, cost=0.0), 'Budget.cost must be positive, not 0.0.'),
        (lambda: Budget(window=DAY), 'A Budget needs requests=, tokens= or cost=.'),
        (lambda: Quotas(streams=0), 'Quotas.streams must be positive, not 0.'),
        (lambda: Quotas(tasks=0), 'Quotas.tasks must be positive, not 0.'),
    ],
)
def test_invalid_setting_value_is_refused(make: Any, wrong: str) -> None:
    with pytest.raises(ValueError, match=f'^{re.escape(wrong)}$'):
        make()


SECRET = Fernet.generate_key().decode()
URL = f'postgresql://agent:{SECRET}@localhost/agents'
PRIVATE_KEY = private_pem()

MAY_HOLD_A_SECRET = re.compile('key|secret|token|password|credential|signing|url|dsn|value$|headers|query|claims')
HOLDS_NONE = {
    'Access.credentials',  # Credentials, which hides its keys
    'AuthRequired.url',  # for the client to read
    'CallContext.headers',  # only those that `deps_headers` names
    'Messages.deps_headers',  # names of headers
    'Messages.allowed_file_url_schemes',
    'AgentWorker.allowed_file_url_schemes',
    'NoCredential.url',  # for the client to read
    'Budget.tokens',  # a number
    'TLS.key',  # the path of a file
    'TrustedKeys.keys',  # public keys
}


@pytest.mark.parametrize(
    'setting',
    [
        Access(signing=[PRIVATE_KEY]),
        Push(keys=[SECRET]),
        Push(keys=[SECRET], signing=[PRIVATE_KEY]),
        Credential(value=SECRET, expires_in=1),
        Credentials(exchange=lambda request, caller: None, keys=[SECRET]),
        Postgres(URL),
        Postgres('postgresql://localhost/agents', listen_dsn=URL),
        ClientCredentials('https://issuer.example', 'agent', SECRET, parameters={'assertion': SECRET}),
        BearerAuth({SECRET: 'ann'}),
        APIKeyAuth({SECRET: 'ann'}),
        A2A('https://agent.example', headers={'authorization': f'Bearer {SECRET}'}),
        RequestInfo(correlation_id='c', headers=[(b'authorization', SECRET.encode())], query=SECRET.encode()),
        Caller(id='ann', claims={'token': SECRET}),
    ],
    ids=lambda setting: type(setting).__name__,
)
def test_secret_setting_is_not_shown_in_repr(setting: Any) -> None:
    for shown in (repr(setting), str(setting), repr([setting]), f'{setting}'):
        assert SECRET not in shown
        assert 'PRIVATE' not in shown


def test_public_secret_fields_are_hidden_or_listed() -> None:
    shown = {
        f'{name}.{field.name}'
        for name in vars(pydantic_ai_a2a)['__all__']
        if is_dataclass(kind := getattr(pydantic_ai_a2a, name)) and isinstance(kind, type)
        for field in fields(kind)
        if field.repr and MAY_HOLD_A_SECRET.search(field.name)
    }
    assert shown == HOLDS_NONE
