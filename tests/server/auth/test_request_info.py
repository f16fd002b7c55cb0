"""A request that came over another transport than HTTP, as functions and classes of `auth=` see it."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from pydantic_ai_a2a import Caller, RequestInfo, StarletteAuth
from pydantic_ai_a2a.server.auth.callable_auth import CallableAuth

REQUEST = RequestInfo(correlation_id='test', headers=[(b'x-user', b'ann')], query=b'team=writers', address='10.0.0.1')


def ann(request: Request) -> Caller | None:
    assert request.query_params['team'] == 'writers'
    assert request.client is not None
    return Caller(id=request.headers['X-User'], tenant=request.client.host)


async def test_auth_function_gets_starlette_request_over_any_transport() -> None:
    assert await CallableAuth(ann, {}).authenticate(REQUEST) == Caller(id='ann', tenant='10.0.0.1')


async def test_request_without_address_has_no_client() -> None:
    assert RequestInfo(correlation_id='test').starlette().client is None


async def test_starlette_auth_without_http_is_an_error() -> None:
    with pytest.raises(RuntimeError, match='AuthenticationMiddleware'):
        await StarletteAuth().authenticate(REQUEST)


def test_request_info_repr_hides_credentials() -> None:
    assert repr(REQUEST) == "RequestInfo(correlation_id='test', address='10.0.0.1')"
