"""The routes of the playground: the page, its modules, and the headers that protect the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property
from html import escape
from pathlib import Path
from urllib.parse import quote

from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from ....correlation_ids import new_correlation_id
from ....settings.limits import Limits
from ..app_urls import quoted
from ..cached_answers import CachedAnswer
from ..encoded_paths import AnyPath
from .steps_endpoint import Steps

_STATIC = Path(__file__).with_name('static')
_TYPES = {
    '.css': b'text/css; charset=utf-8',
    '.js': b'text/javascript; charset=utf-8',
    '.svg': b'image/svg+xml',
}
FILES: Mapping[str, bytes] = {
    path.relative_to(_STATIC).as_posix(): _TYPES[path.suffix]
    for path in sorted(_STATIC.rglob('*'))
    if path.suffix in _TYPES
}
"""The files of the page, with their media types."""

_POLICY = '; '.join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        'trusted-types dompurify',
    )
)
_HEADERS = (
    ('Cache-Control', 'no-cache'),
    ('Content-Security-Policy', _POLICY),
    ('Cross-Origin-Resource-Policy', 'same-origin'),
    ('Referrer-Policy', 'no-referrer'),
)


class Playground:
    """The page at `docs_url`. The page needs no authentication: it holds no data of the agent.

    Args:
        path: Path of the page.
        limits: Limits that the page tells before it sends a message.
        anonymous: True if the server does not authenticate callers.
        durable: True if tasks outlive the process. Otherwise the page can tell that the server has restarted.
        steps: Answers with the steps of tasks for a developer; None for no steps.
    """

    def __init__(self, path: str, limits: Limits, steps: Steps | None, *, anonymous: bool, durable: bool) -> None:
        self._path, self._steps = path, steps
        folder, _, name = path.rpartition('/')
        self._facts = {
            'ROOT': '../' * folder.count('/') or './',
            'FOLDER': f'./{quote(name)}/' if name else './',
            'ANONYMOUS': str(anonymous).lower(),
            'PROCESS': '' if durable else new_correlation_id(),
            'STEPS': str(steps is not None).lower(),
            'FILES': str(limits.files),
            'BODY': str(limits.body),
        }

    def routes(self, *, below: str = '', takes: Callable[[Mapping[str, str]], bool] | None = None) -> list[BaseRoute]:
        """Return the routes of the page and its files.

        Args:
            below: A prefix of the paths, such as `/{tenant}`.
            takes: Returns whether a route takes a path with these params; None: the routes take all params.
        """
        folder = below + quoted(self._path).removesuffix('/')

        def takes_file(params: Mapping[str, str]) -> bool:
            return params['file'] in FILES and (takes is None or takes(params))

        methods = ('GET', 'HEAD')
        return [
            AnyPath(folder or '/', _PlaygroundPage(lambda: self._page, self._path), methods=methods, takes=takes),
            AnyPath(folder + '/{file:path}', _PageFile(), methods=methods, takes=takes_file),
            *([AnyPath(f'{folder}/steps', self._steps, methods=['POST'], takes=takes)] if self._steps else ()),
        ]

    @cached_property
    def _page(self) -> CachedAnswer:
        page = (_STATIC / 'index.html').read_text(encoding='utf-8')
        for name, value in self._facts.items():
            page = page.replace(f'{{{{{name}}}}}', escape(value))
        return CachedAnswer(page.encode(), _HEADERS, media_type=b'text/html; charset=utf-8')


class _PlaygroundPage:
    """Serves the page, as an ASGI app. A path with a wrong final slash is redirected: the page has relative URLs."""

    def __init__(self, page: Callable[[], CachedAnswer], path: str) -> None:
        self._page = page
        self._slash = path.endswith('/')
        self._name = path.removesuffix('/').rpartition('/')[2]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['path'].endswith('/') == self._slash:
            await self._page()(scope, receive, send)
            return
        place = f'./{quote(self._name)}/' if self._slash else f'../{quote(self._name)}'
        query = scope['query_string'].decode('latin-1')
        await RedirectResponse(f'{place}?{query}' if query else place)(scope, receive, send)


class _PageFile:
    """Serves the files of the page, as an ASGI app."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _file(scope['path_params']['file'])(scope, receive, send)


@cache
def _file(name: str) -> CachedAnswer:
    return CachedAnswer((_STATIC / name).read_bytes(), _HEADERS, media_type=FILES[name])
