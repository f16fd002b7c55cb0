"""Requests to issuers of tokens."""

from __future__ import annotations

import pytest

from pydantic_ai_a2a import issuer_requests
from pydantic_ai_a2a.issuer_requests import connected, fetch, metadata_urls

from .bounds import LIMIT
from .webhooks import webhook


@pytest.mark.parametrize('slash', ['', '/'])
def test_issuer_has_two_metadata_urls(slash: str) -> None:
    assert metadata_urls(f'https://login.example.com/tenant{slash}') == (
        'https://login.example.com/tenant/.well-known/openid-configuration',
        'https://login.example.com/.well-known/oauth-authorization-server/tenant',
    )
    assert metadata_urls(f'https://login.example.com{slash}')[1] == (
        'https://login.example.com/.well-known/oauth-authorization-server'
    )


async def test_redirect_of_issuer_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ('TIME', 'SILENCE'):
        monkeypatch.setattr(issuer_requests, name, LIMIT)
    async with (
        webhook(b'HTTP/1.1 307 Elsewhere\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n', 200) as hook,
        connected() as client,
    ):
        status, _ = await fetch(client, hook.url, form={'grant_type': 'client_credentials'})
        assert (status, len(hook.received)) == (307, 1)
