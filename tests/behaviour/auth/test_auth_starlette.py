"""Callers that Starlette's own authentication has found, around the app and around what it is mounted in."""

from __future__ import annotations

import logging

import pytest
from fasta2a.schema import HttpSecurityScheme, SecurityScheme
from fastapi import FastAPI
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection

from pydantic_ai_a2a import Access, Caller, StarletteAuth, mount, to_a2a

from ...client import Client, lifespan
from ..refused import refusal, send, untouched
from ..stage import serving

BASIC = {'basic': SecurityScheme(http_auth_security_scheme=HttpSecurityScheme(scheme='Basic'))}


class Nameless(SimpleUser):
    """A user of a Starlette whose `SimpleUser` has no identity."""

    @property
    def identity(self) -> str:
        raise NotImplementedError


class Backend(AuthenticationBackend):
    """Lets in whoever says a name, and knows what bob may do."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        name = conn.headers.get('x-user')
        if name is None:
            return None
        user = Nameless(name) if name.startswith('old') else SimpleUser(name)
        return AuthCredentials(['authenticated', 'write'] if name == 'bob' else ['authenticated']), user


AROUND = Middleware(AuthenticationMiddleware, backend=Backend())


@pytest.mark.parametrize('name', ['ann', 'old-ann'])
async def test_the_middlewares_user_is_the_caller(name: str) -> None:
    app = to_a2a(Agent('test'), auth=StarletteAuth(tenant='acme'), middleware=[AROUND])
    async with lifespan(app):
        task = await Client(app, headers={'X-User': name}).send()
        owned = await app.list_tasks(caller=Caller(id=name, tenant='acme'))
    assert [each['id'] for each in owned] == [task['id']]


async def test_the_caller_may_have_claims_of_the_user() -> None:
    claims: list[object] = []
    async with serving(
        Agent('test'),
        auth=StarletteAuth(claims=lambda user: {'name': user.display_name}),
        middleware=[AROUND],
        deps_factory=lambda call: claims.append(call.caller.claims),
        headers={'X-User': 'ann'},
    ) as client:
        await client.send()
    assert claims == [{'name': 'ann'}]


@pytest.mark.parametrize('parent', [Starlette, FastAPI])
async def test_the_middleware_may_be_around_what_the_app_is_mounted_in(parent: type[Starlette]) -> None:
    outer = parent(middleware=[AROUND])
    app = to_a2a(Agent('test'), auth=StarletteAuth(), access=Access(scopes={'SendMessage': 'write'}))
    mount(outer, '/agent', app)
    async with lifespan(outer):
        for path in ('/agent', '/agent/'):
            await Client(outer, path=path, headers={'X-User': 'bob'}).send()
            answer = await Client(outer, path=path).post(send(), {'X-User': 'ann'})
            assert refusal(answer, status=403).message.startswith(
                'The operation needs credentials with the scope: write'
            )
        assert len(await app.list_tasks(caller=Caller(id='bob'))) == 2


async def test_a_user_who_is_not_authenticated_is_refused() -> None:
    async with untouched(auth=StarletteAuth(BASIC), middleware=[AROUND]) as client:
        answer = await client.post(send())
        card = (await client.get('/.well-known/agent-card.json')).json
    refusal(answer, status=401, id=None)
    assert answer.headers['www-authenticate'] == 'Basic realm="a2a"'
    assert card['security'] == [{'basic': []}]


async def test_a_user_without_a_name_is_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with untouched(auth=StarletteAuth(), middleware=[AROUND]) as client:
        assert refusal(await client.post(send(), {'X-User': ''}), id=None).code == -32603
    assert 'no identity and no display_name' in caplog.text


async def test_without_the_middleware_nobody_is_let_in(caplog: pytest.LogCaptureFixture) -> None:
    async with untouched(auth=StarletteAuth()) as client:
        assert refusal(await client.post(send(), {'X-User': 'ann'}), id=None).code == -32603
    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert "needs Starlette's AuthenticationMiddleware" in str(record.exc_info[1])
