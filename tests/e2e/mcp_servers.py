"""Two MCP servers.

`app` needs a token of its issuer, and is the issuer too, which exchanges tokens of the agent's callers. The tool of
`pids` answers at once, fails, never answers, or ends its process. The server `pids` also runs over stdio, as the main
program.
"""

from __future__ import annotations

import asyncio
import os
from os import getpid
from urllib.parse import parse_qs

from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

TOKENS = {'ann': 'token-of-ann-at-the-agent', 'bob': 'token-of-bob-at-the-agent'}
BOSS = 'token-of-boss-at-the-agent'
MARK = 'mail-access-of'
"""The beginning of each exchanged token."""
EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange'
ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token'

granted: dict[str, str] = {}
"""The user of each exchanged token."""
seen: list[str] = []
"""The calls of tools, each with its user, in order."""
hooks: list[str] = []
"""The bodies of notifications."""


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        user = granted.get(token)
        return None if user is None else AccessToken(token=token, client_id='agent', scopes=[], subject=user)


settings = AuthSettings(issuer_url=AnyHttpUrl('http://127.0.0.1'), resource_server_url=None)
server = MCPServer('mail', token_verifier=Verifier(), auth=settings)


def user_of_call(tool: str) -> str:
    token = get_access_token()
    assert token is not None
    assert token.subject is not None
    seen.append(f'{token.subject} {tool}')
    return token.subject


@server.tool()
def read_mail() -> str:
    """Read the newest mail."""
    return f'a mail for {user_of_call("reads")}'


@server.tool()
def delete_mail() -> str:
    """Delete the newest mail."""
    return f'no mail for {user_of_call("deletes")}'


@server.custom_route('/token', methods=['POST'])
async def exchange_token(request: Request) -> Response:
    """Exchange a token of the agent's callers (RFC 8693)."""
    form = {name: value for name, [value] in parse_qs((await request.body()).decode()).items()}
    users = {token: user for user, token in TOKENS.items()}
    user = users.get(form['subject_token'])
    if form['grant_type'] != EXCHANGE or form['subject_token_type'] != ACCESS_TOKEN or user is None:
        return JSONResponse({'error': 'invalid_grant'}, status_code=400)
    token = f'{MARK}-{user}-{len(granted)}'
    granted[token] = user
    return JSONResponse(
        {'access_token': token, 'issued_token_type': ACCESS_TOKEN, 'token_type': 'Bearer', 'expires_in': 600}
    )


@server.custom_route('/hook', methods=['POST'])
async def take_hook(request: Request) -> Response:
    hooks.append(repr(request.headers) + (await request.body()).decode())
    return Response()


@server.custom_route('/seen', methods=['GET'])
async def show_seen(request: Request) -> Response:
    return JSONResponse({'seen': seen, 'granted': [*granted], 'hooks': hooks})


app = server.streamable_http_app(stateless_http=True)


slow = MCPServer('pids')


@slow.tool()
async def pid(waits: bool = False, fails: bool = False, dies: bool = False) -> int:
    """Return the id of the server's process."""
    if dies:
        os._exit(1)
    if fails:
        raise ValueError('no id')
    if waits:
        print('a call waits', flush=True)
        await asyncio.Event().wait()
    return getpid()


pids = slow.streamable_http_app()

if __name__ == '__main__':
    slow.run('stdio')
