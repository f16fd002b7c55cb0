"""No setting shows a secret that it holds."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from cryptography.fernet import Fernet

import pydantic_ai_a2a
from pydantic_ai_a2a import (
    A2A,
    Access,
    APIKeyAuth,
    BearerAuth,
    Caller,
    ClientCredentials,
    Credential,
    Credentials,
    Postgres,
    Push,
    RequestInfo,
)

from .signing.pairs import pem

SECRET = Fernet.generate_key().decode()
URL = f'postgresql://agent:{SECRET}@localhost/agents'
PRIVATE_KEY = pem()

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
def test_a_setting_with_a_secret_does_not_show_it(setting: Any) -> None:
    for shown in (repr(setting), str(setting), repr([setting]), f'{setting}'):
        assert SECRET not in shown
        assert 'PRIVATE' not in shown


def test_each_public_field_that_may_hold_a_secret_is_hidden_or_named_here() -> None:
    shown = {
        f'{name}.{field.name}'
        for name in pydantic_ai_a2a.__all__
        if is_dataclass(kind := getattr(pydantic_ai_a2a, name)) and isinstance(kind, type)
        for field in fields(kind)
        if field.repr and MAY_HOLD_A_SECRET.search(field.name)
    }
    assert shown == HOLDS_NONE
