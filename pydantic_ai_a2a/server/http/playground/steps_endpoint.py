"""The steps of tasks for the page of a developer, who uses the server's own machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.types import Receive, Scope, Send

from ....correlation_ids import new_correlation_id
from ....json_values import dump_json
from ....public_hosts import is_loopback
from ....types.callers import ANONYMOUS
from ...agent.playground_steps import Trace
from ...auth.client_machine import other_machine
from ...auth.request_info import RequestInfo, header
from ...auth.tenants import Tenants
from ...store.ports import Backend
from ..allowed_hosts import HOSTS
from ..asgi_requests import request_info
from ..replies import reply

_HOLD = 1.5
"""Seconds that a request waits for further steps. A task may end without one."""


class Steps:
    """Answers with the steps of the tasks in the query, as an ASGI app. Anyone but a developer gets `null`.

    The `Steps-Version` header of an answer, sent as `after`, lets the next request wait for further steps.

    Only for a server of one machine that does not authenticate callers. Names of other machines that `run` or `serve`
    answers for show that a proxy passes requests on, and so does HTTP/1.0: nginx may speak it, and no browser does.

    Args:
        backend: The backend of the tasks.
        tenants: Tenants that requests may name; None without tenants.
        trace: Has the steps.
    """

    def __init__(self, backend: Backend, tenants: Tenants | None, trace: Trace) -> None:
        self._backend = backend
        self._tenants = tenants
        self._trace = trace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = request_info(scope, new_correlation_id())
        is_of_one_machine = HOSTS not in scope or scope[HOSTS].are_local
        steps, headers = None, [('Cache-Control', 'no-store')]
        if is_of_one_machine and scope['http_version'] != '1.0' and _is_of_developer(request):
            query = parse_qs(scope['query_string'].decode('latin-1'))
            version = await self._version(query.get('after'))
            headers.append(('Steps-Version', str(version)))
            steps = await self._steps(scope, query.get('task', ()))
        await reply(send, 200, dump_json(steps), request.correlation_id, headers)

    async def _version(self, known: list[str] | None) -> int:
        """Return the version of the steps, after a wait if the page knows the version."""
        trace = self._trace
        trace.wanted = True
        if known == [str(version := trace.version)]:
            with suppress(TimeoutError):
                await asyncio.wait_for(trace.changed(version), _HOLD)
        return trace.version

    async def _steps(self, scope: Scope, task_ids: Iterable[str]) -> dict[str, Any]:
        tenant = scope['path_params'].get('tenant', '')
        caller = ANONYMOUS if self._tenants is None else await self._tenants.settle(ANONYMOUS, tenant)
        owner, steps = ANONYMOUS.owner if caller is None else caller.owner, dict[str, Any]()
        for task_id in task_ids:
            task = await self._backend.reader.load(task_id, owner, history_length=0, artifacts=False)
            if task is not None:
                context_id, conversations = task.header.context_id, self._backend.conversations(owner)
                steps[task_id] = await self._trace.steps(task_id, context_id, conversations)
        return steps


def _is_of_developer(request: RequestInfo) -> bool:
    """Return whether a page of this machine sends the request from this machine.

    A browser always sends the origin with POST. A page of another host has another origin, and so has a page that came
    through a proxy. A program can claim any origin: behind a proxy that adds no header, it looks like this machine. A
    secret in the page would not help, because the program gets the page in the same way.
    """
    origin = urlsplit(header(request.headers, b'origin') or '')
    is_own = origin.netloc == header(request.headers, b'host') and is_loopback(origin.hostname or '') is True
    return is_own and request.address is not None and other_machine(request) is None
