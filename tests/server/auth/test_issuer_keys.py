"""The keys of an issuer: how often they are fetched, what happens when it has others, or does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from jwt.algorithms import ECAlgorithm

from pydantic_ai_a2a.errors import OverloadedError
from pydantic_ai_a2a.wire.signing.issuer_keys import IssuerKeys, UnknownKey
from pydantic_ai_a2a.wire.signing.key_sets import read_key_set

from ...app_client import LIMIT
from .issuer import ISSUER, Issuer, Key, issuer

ONE, TWO = Key('one'), Key('two')
CACHE, STALE, REFETCH = 600.0, 3600.0, 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def keys(*of: Key) -> AsyncGenerator[tuple[Issuer, IssuerKeys, Clock]]:
    """An issuer, its keys, and the time."""
    clock = Clock()
    async with issuer(*of) as server, asyncio.timeout(LIMIT):
        url = f'{server.url}/keys'
        yield server, IssuerKeys(ISSUER, url, ['ES256'], (CACHE, STALE, REFETCH), discovery=False, clock=clock), clock


async def assert_unknown_key(jwks: IssuerKeys, kid: str) -> bool:
    with pytest.raises(UnknownKey):
        await jwks.find(kid, 'ES256')
    return True


async def retry_after(jwks: IssuerKeys, kid: str) -> str:
    with pytest.raises(OverloadedError) as refused:
        await jwks.find(kid, 'ES256')
    return refused.value.headers['Retry-After']


async def wait_for_fetches(server: Issuer, times: int) -> None:
    """Wait until the issuer was asked so often."""
    while len(server.asked) < times:
        server.waiting.clear()
        await server.waiting.wait()


async def test_concurrent_lookups_fetch_the_keys_once() -> None:
    async with keys(ONE) as (server, jwks, _):
        server.held.clear()
        asking = [asyncio.ensure_future(jwks.find('one', 'ES256')) for _ in range(20)]
        await server.waiting.wait()
        asking.pop().cancel()
        server.held.set()
        found = await asyncio.gather(*asking)
        assert {key.key_id for key in found} == {'one'}
    assert server.asked == ['/keys']


async def test_unknown_keys_are_refetched_at_most_once_per_interval() -> None:
    async with keys(ONE) as (server, jwks, clock):
        assert all([await assert_unknown_key(jwks, f'made-up-{n}') for n in range(100)])
        clock.now += REFETCH - 1
        assert await assert_unknown_key(jwks, 'made-up')
        assert len(server.asked) == 1
        clock.now += 1
        assert await assert_unknown_key(jwks, 'made-up')
        assert len(server.asked) == 2


async def test_rotated_keys_replace_the_old_keys() -> None:
    async with keys(ONE) as (server, jwks, clock):
        await jwks.find('one', 'ES256')
        server.has(TWO)
        assert await assert_unknown_key(jwks, 'two')
        clock.now += REFETCH
        assert (await jwks.find('two', 'ES256')).key_id == 'two'
        assert await assert_unknown_key(jwks, 'one')


async def test_cached_keys_serve_while_new_keys_are_fetched() -> None:
    async with keys(ONE) as (server, jwks, clock):
        await jwks.find('one', 'ES256')
        server.has(TWO)
        server.held.clear()
        clock.now += CACHE + 1
        assert (await jwks.find('one', 'ES256')).key_id == 'one'
        assert (await jwks.find('one', 'ES256')).key_id == 'one'
        server.held.set()
        assert (await jwks.find('two', 'ES256')).key_id == 'two'
    assert len(server.asked) == 2


async def test_keys_of_failing_issuer_serve_until_stale(caplog: pytest.LogCaptureFixture) -> None:
    async with keys(ONE) as (server, jwks, clock):
        await jwks.find('one', 'ES256')
        server.status = b'500 Oops'
        clock.now += CACHE + STALE
        assert (await jwks.find('one', 'ES256')).key_id == 'one'
        await wait_for_fetches(server, 2)
        clock.now += 1
        assert await retry_after(jwks, 'one') == '29'
        assert await retry_after(jwks, 'made-up') == '29'
        server.status = b'200 OK'
        clock.now += REFETCH
        assert (await jwks.find('one', 'ES256')).key_id == 'one'
    [record] = [each for each in caplog.records if each.name == 'pydantic_ai_a2a']
    assert record.getMessage() == f'The keys of the issuer {ISSUER} could not be fetched (ValueError: HTTP 500).'


async def test_failed_first_fetch_gives_retry_after_without_refetching() -> None:
    async with keys(ONE) as (server, jwks, clock):
        server.status = b'302 Found'
        assert await retry_after(jwks, 'one') == '30'
        clock.now += REFETCH - 0.5
        assert await retry_after(jwks, 'one') == '1'
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ('answer', 'complaint'),
    [
        (b'not JSON', 'expected'),
        ([], 'the document is not a JSON object'),
        ({}, 'the document has no keys'),
        ({'keys': {}}, 'the document has no keys'),
        (b' ' * 300_000, 'more than 262144 bytes'),
    ],
    ids=['text', 'list', 'none', 'object', 'huge'],
)
async def test_invalid_key_set_gives_retry_after(
    answer: object, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with keys() as (server, jwks, _):
        server.keys = answer
        await retry_after(jwks, 'one')
    assert complaint in caplog.text


async def test_unreachable_issuer_gives_retry_after(caplog: pytest.LogCaptureFixture) -> None:
    async with issuer() as server:
        url = f'{server.url}/keys'
    await retry_after(IssuerKeys(ISSUER, url, ['ES256'], (CACHE, STALE, REFETCH), discovery=False), 'one')
    assert 'ConnectError' in caplog.text


async def test_fetch_in_another_event_loop_gives_retry_after() -> None:
    async with keys(ONE) as (server, jwks, _):
        server.held.clear()
        elsewhere = asyncio.create_task(asyncio.to_thread(asyncio.run, jwks.find('one', 'ES256')))
        await server.waiting.wait()
        assert await retry_after(jwks, 'one') == '30'
        server.held.set()
        assert await elsewhere == await jwks.find('one', 'ES256')
    assert server.asked == ['/keys']


@pytest.mark.parametrize(
    'changes',
    [
        {'use': 'enc'},
        {'alg': 'ES384'},
        {'kty': 'oct', 'k': 'AAAA'},
        {'kty': 'RSA'},
        {'crv': 'P-384'},
        {'x': 'AAAA'},
        {'x': None},
        {'kid': 7},
        ECAlgorithm.to_jwk(ONE.private, as_dict=True),
    ],
    ids=range(9),
)
def test_unusable_keys_are_skipped(changes: dict[str, Any]) -> None:
    table = read_key_set({'keys': [ONE.public | changes, 'no key', TWO.public]}, ['ES256'])
    assert table.keys() == {('two', 'ES256'), (None, 'ES256')}


def test_token_without_key_id_uses_only_fitting_key() -> None:
    unnamed = Key(None)
    assert read_key_set({'keys': [ONE.public]}, ['ES256']).keys() == {('one', 'ES256'), (None, 'ES256')}
    assert read_key_set({'keys': [unnamed.public]}, ['ES256']).keys() == {(None, 'ES256')}
    assert read_key_set({'keys': [unnamed.public, ONE.public]}, ['ES256']).keys() == {('one', 'ES256')}
    many = [ONE.public, TWO.public, *([{}] * 98), Key('too many').public]
    assert read_key_set({'keys': many}, ['ES256']).keys() == {('one', 'ES256'), ('two', 'ES256')}
