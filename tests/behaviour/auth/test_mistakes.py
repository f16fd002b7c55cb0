"""An operator's function returns an undocumented value: the caller is refused, and the log names the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import Request

from pydantic_ai_a2a import Access, AllOf, Approvals, BearerAuth, Caller, to_a2a
from pydantic_ai_a2a.auth.callers import Authenticator, RequestInfo

from ...client import Client, RpcError, lifespan
from ..asking import Tools, answers, approve
from ..refused import refusal, send, untouched

TOKEN = 'long-token-of-ann'
BEARER = {'Authorization': f'Bearer {TOKEN}'}


async def _later(value: Any) -> Any:
    return value


def _returns(value: Any) -> Callable[..., Any]:
    def mistaken(*_: Any) -> Any:
        return value

    return mistaken


def _forgets_to_await(*_: Any) -> Any:
    return _later(_later(True))


def _says_no_later(*_: Any) -> Any:
    return _later('no')


WRONG: dict[str, Callable[..., Any]] = {
    'text': _returns('no'),
    'a number': _returns(1),
    'an object': _returns(object()),
    'nothing': _returns(None),
    'later': _says_no_later,
    'a coroutine of a coroutine': _forgets_to_await,
}
"""Functions that return neither True nor False."""
each_wrong = pytest.mark.parametrize('wrong', WRONG.values(), ids=list(WRONG))


def _named(caplog: pytest.LogCaptureFixture, option: str, function: Callable[..., Any]) -> bool:
    return any(f'{option} {function.__qualname__} returned' in record.getMessage() for record in caplog.records)


class Careless(Authenticator):
    async def authenticate(self, request: RequestInfo) -> Caller | None:
        return Caller()


FOUND: dict[str, Callable[[], Any]] = {
    'anonymous': Caller,
    'only a tenant': lambda: Caller(tenant='acme'),
    'only an owner': lambda: Caller(owns_as='ann'),
    'a name': lambda: 'ann',
    'true': lambda: True,
    'false': lambda: False,
}


@pytest.mark.parametrize('found', FOUND.values(), ids=list(FOUND))
@pytest.mark.parametrize('is_async', [False, True])
async def test_only_a_caller_with_an_id_is_let_in(
    found: Callable[[], Any], is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def authenticate(_: Request) -> Any:
        return _later(found()) if is_async else found()

    async with untouched(auth=authenticate) as client:
        refusal(await client.post(send()), status=401, id=None)
    assert _named(caplog, 'auth=', authenticate)


async def test_a_coroutine_is_no_caller(caplog: pytest.LogCaptureFixture) -> None:
    async with untouched(auth=_forgets_to_await) as client:
        refusal(await client.post(send()), status=401, id=None)
    assert _named(caplog, 'auth=', _forgets_to_await)


async def test_each_of_all_ways_has_to_find_a_caller_with_an_id(caplog: pytest.LogCaptureFixture) -> None:
    ann = BearerAuth({TOKEN: 'ann'})
    for auth in (Careless(), AllOf(ann, Careless()), AllOf(Careless(), ann)):
        async with untouched(auth=auth) as client:
            refusal(await client.post(send(), BEARER), status=401, id=None)
        assert 'auth= Careless returned Caller instead of a Caller with an id, or None' in caplog.text
        caplog.clear()


@each_wrong
async def test_a_tenant_is_allowed_by_true_only(wrong: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    async with untouched(auth=BearerAuth({TOKEN: 'ann'}), access=Access(tenants=wrong)) as client:
        answer = await client.post(send(), BEARER, path='/acme/')
    assert 'is not a tenant of this caller' in refusal(answer).message
    assert _named(caplog, 'Access.tenants', wrong)


@each_wrong
async def test_an_approver_is_named_by_true_only(wrong: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    tools = Tools()
    app = to_a2a(tools.agent, auth=BearerAuth({TOKEN: 'ann'}), approvals=Approvals(approvers=wrong))
    client = Client(app, headers=BEARER)
    async with lifespan(app):
        task = await client.send('delete')
        with pytest.raises(RpcError, match='The caller may not answer this call'):
            await client.send(answers(task, approve()))
    assert tools.deleted == []
    assert _named(caplog, 'Approvals.approvers', wrong)
