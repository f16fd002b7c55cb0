"""The app that serves an agent: an ASGI app, and the Python API of its tasks."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain, dropwhile
from typing import TYPE_CHECKING, Any, Self, cast

from fasta2a import FastA2A
from fasta2a.broker import Broker, InMemoryBroker
from fasta2a.schema import AgentExtension, Task
from fasta2a.storage import InMemoryStorage, Storage
from fasta2a.task_manager import TaskManager
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.conversation_store import ConversationStore
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..arguments import checked
from ..audit import audit
from ..card.template import CardSettings, CardTemplate
from ..errors import TaskNotFoundError, UnsupportedOperationError
from ..http.aborted_connections import REQUEST
from ..http.allowed_hosts import AllowedHosts, misdirected
from ..http.asgi_requests import redact
from ..http.catalogue import CATALOGUE_PATH, Agents, ReadyTogether
from ..http.health import LIVE_PATH, READY_PATH, Live
from ..http.playground.page import Playground
from ..http.playground.steps import Steps
from ..http.unread_bodies import closing
from ..http.urls import quoted
from ..protocol import stored
from ..runs.hosting import Hosting
from ..service.request_flow import Serving
from ..settings import Limits
from ..store.ports import Backend
from ..types import ANONYMOUS, Call, Caller, TaskQuery, TaskState, new_correlation_id

if TYPE_CHECKING:
    from ..engines.engine import AtEngine

_INSTEAD = (
    'Use app.get_task(), app.list_tasks(), app.cancel_task() and app.conversations(), or app.backend for all other'
    ' stored data.'
)


class OwnTaskManager(TaskManager):
    """A FastA2A task manager that shows the user's own storage and broker; the app itself enters the broker.

    Args:
        storage: The user's storage, if any.
        broker: The user's broker, if any.
        hosting: Knows whether the app runs.
    """

    def __init__(self, storage: Storage[Any] | None, broker: Broker | None, hosting: Hosting) -> None:
        self._hosting = hosting
        if storage is not None:
            self.storage = storage
        if broker is not None:
            self.broker = broker

    def __getattr__(self, name: str) -> Any:
        if name in ('storage', 'broker'):
            raise AttributeError(f'to_a2a() was given no {name}=. {_INSTEAD}')
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f'{type(self).__name__}({", ".join(sorted({"storage", "broker"}.intersection(vars(self))))})'

    @property
    def is_running(self) -> bool:
        """True once the app has started."""
        try:
            return self._hosting.begun
        except RuntimeError:  # outside of an event loop
            return False

    async def __aenter__(self) -> Self:
        """Do nothing: the app enters and leaves the broker itself."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Do nothing."""


class A2AApp(FastA2A):
    """The app of `to_a2a`: a FastA2A (Starlette) app, with a Python API for its tasks.

    The methods act for every owner of tasks. Call them only from code that may see all tasks.
    """

    def __init__(
        self,
        backend: Backend,
        serving: Serving,
        *,
        card: CardTemplate,
        hosting: Hosting,
        allowed_hosts: AllowedHosts | None,
        storage: Storage[Any] | None = None,
        broker: Broker | None = None,
        docs_url: str | None,
        fallback: ASGIApp,
        at_engine: AtEngine | None,
        **options: Any,
    ) -> None:
        # FastA2A requires a storage and a broker. No route uses them: the routes of FastA2A are replaced below.
        super().__init__(storage=InMemoryStorage(), broker=InMemoryBroker(), docs_url=None, **options)
        replaced = (self._agent_card_endpoint, self._agent_run_endpoint)
        self.router.routes = [route for route in self.router.routes if getattr(route, 'endpoint', None) not in replaced]
        self.router.default = fallback
        self._task_manager = None if storage is broker is None else OwnTaskManager(storage, broker, hosting)
        self._backend = backend
        self._grpc: dict[Callable[[str], str], asyncio.AbstractEventLoop] = {}
        self.docs_url = docs_url
        """Path of the playground; None without one."""
        self.serving = serving
        """The parts that the bindings need."""
        self.card = card
        """The agent card without the URL."""
        self.dispatcher = serving.dispatcher
        """Performs operations for callers, also for callers in this process."""
        self.at_engine = at_engine
        """What the engine needs of the app; None without `engine=`."""
        self.hosting = hosting
        """Runs the app's workers, from the first call or the lifespan on."""
        self.guard = self.dispatcher.guard
        """Decides who may call."""
        self.metering = self.dispatcher.metering
        """Counts the requests and runs of callers; None: nothing is counted."""
        self.allowed_hosts = allowed_hosts
        """The hosts that the app answers for; None: all hosts."""

    @property
    def task_manager(self) -> TaskManager:
        """The user's own FastA2A storage and broker.

        Raises:
            AttributeError: `to_a2a` was given neither.
        """
        if self._task_manager is None:
            raise AttributeError(
                f'This app has no task manager, since to_a2a() was given no storage= or broker=. {_INSTEAD}'
            )
        return self._task_manager

    @task_manager.setter
    def task_manager(self, value: TaskManager) -> None:
        """Ignore the task manager that FastA2A makes."""

    @property
    def backend(self) -> Backend:
        """The backend of the app's tasks and conversations."""
        return self._backend

    def declare_grpc(self, place: Callable[[str], str], extensions: Sequence[AgentExtension]) -> None:
        """List a gRPC server of the running loop on the agent card. The card lists the newest of several servers.

        Args:
            place: Returns `host:port` of the gRPC server, from the URL of the agent.
            extensions: Extensions of the binding.
        """
        self._grpc[place] = asyncio.get_running_loop()
        self._list_grpc(extensions)

    def withdraw_grpc(self, place: Callable[[str], str], extensions: Sequence[AgentExtension]) -> bool:
        """List a gRPC server no longer. Return True if it was the last one of the running loop."""
        loop = self._grpc.pop(place)
        self._list_grpc(extensions)
        return loop not in self._grpc.values()

    def _list_grpc(self, extensions: Sequence[AgentExtension]) -> None:
        self.card.serve_grpc(next(reversed(self._grpc), None), extensions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. Without a lifespan, the first request of an operation starts the app."""
        scope.setdefault(REQUEST, receive)
        if 'query_string' in scope and scope['query_string']:  # noqa: RUF019 - each call of a method counts
            redact(scope, self.guard)
        path = scope.get('path', '')
        if '//' in path and (below := path.removeprefix(scope.get('root_path', ''))).startswith('//'):
            # A client put a path of the binding behind an interface URL that ends in a slash.
            scope = {**scope, 'path': path.removesuffix(below) + '/' + below.lstrip('/')}
        if self.allowed_hosts is not None and not self.allowed_hosts.answer(scope):
            await misdirected(scope, receive, send)
            return
        if scope['type'] == 'http' and (scope['path'] != '/' or scope['method'] != 'POST'):
            # The JSON-RPC binding closes connections by itself, with fewer calls.
            receive, send = closing(scope, receive, send)
        await Starlette.__call__(self, scope, receive, send)

    async def get_task(self, task_id: str) -> Task:
        """Return a task as it is now, with its whole history (GetTask, §3.1.3).

        Raises:
            TaskNotFoundError: No task has this id.
        """
        task = await self._backend.reader.load(task_id, None)
        if task is None:
            raise TaskNotFoundError
        return stored.load_task(task)

    async def list_tasks(
        self,
        *,
        caller: Caller | None = None,
        context_id: str | None = None,
        state: TaskState | None = None,
        limit: int = 100,
    ) -> list[Task]:
        """Return the tasks with the newest status first, with history and artifacts (ListTasks, §3.1.4).

        Args:
            caller: Only this caller's tasks.
            context_id: Only tasks of this context.
            state: Only tasks in this state.
            limit: Maximum number of tasks, 1 or more. Default 100.

        Raises:
            ValueError: `limit` is less than 1.
        """
        if limit < 1:
            raise ValueError(f'limit must be at least 1, not {limit!r}.')
        owner = None if caller is None else self._owner(caller)
        query = TaskQuery(owner=owner, context_id=context_id, state=state, page_size=limit, include_artifacts=True)
        page = await self._backend.reader.list(query)
        return [stored.load_task(task) for task in page.tasks]

    async def cancel_task(self, task_id: str) -> Task:
        """Cancel a task (§3.1.5) and wait until its run has stopped, at most five seconds.

        Raises:
            TaskNotFoundError: No task has this id.
            TaskNotCancelableError: The task has ended.
        """
        task = await self.dispatcher.service.cancel(
            task_id, None, new_correlation_id(), lambda header: {'via': 'python', 'owner': header.owner}
        )
        return stored.load_task(task)

    async def resume_task(self, task_id: str, text: str = 'Access was granted.') -> Task:
        """Resume a task that is `auth-required`, after its credentials have come by another way (§7.6.1).

        The tool that asked for the credentials is called again.

        Args:
            task_id: The task.
            text: The text of the user's next message, for the agent.

        Raises:
            TaskNotFoundError: No task has this id.
            UnsupportedOperationError: The task does not wait for credentials, or waits for other credentials by now.
        """
        call = Call(caller=ANONYMOUS, correlation_id=new_correlation_id())
        return stored.load_task(await self.dispatcher.service.resume(call, task_id, text))

    async def erase_task(self, task_id: str) -> bool:
        """Delete a task with its messages, artifacts and events. Return whether the task existed.

        Raises:
            UnsupportedOperationError: The task is queued or running; cancel it first.
        """
        erased = await self._backend.housekeeping.erase_task(task_id, None, at=self._backend.now())
        if erased:
            audit('erased', correlation_id=new_correlation_id(), via='python', task=task_id)
        return erased

    async def erase_context(self, context_id: str, *, caller: Caller = ANONYMOUS) -> bool:
        """Delete a caller's conversation and all its tasks, batch by batch. Return whether anything was deleted.

        Raises:
            UnsupportedOperationError: A task of the conversation is queued or running; cancel it first.
        """
        owner, erased, ended = self._owner(caller), False, 'broken off'
        try:
            while batch := await self._backend.erase(owner, context_id):
                # A batch without tasks and conversations deletes the rest of a conversation that another call erases.
                erased = erased or bool(batch.tasks or batch.conversations)
            ended = None
        except UnsupportedOperationError:
            ended = 'refused'
            raise
        finally:
            if erased:
                facts = {'context': context_id, 'owner': owner, 'ended': ended}
                audit('erased', correlation_id=new_correlation_id(), via='python', **facts)
            await self._backend.housekeeping.set_erasing(owner, context_id, until=None)
        return erased

    def conversations(self, *, caller: Caller = ANONYMOUS) -> ConversationStore:
        """Return a caller's conversations as Pydantic AI's store: load, fork or delete conversations by context id."""
        return self._backend.conversations(self._owner(caller))

    def _owner(self, caller: Caller) -> str:
        return self.guard.owning(caller).owner


# --- an app in a larger app -------------------------------------------------------------------------------------------
# Mounts an A2A app in a larger Starlette or FastAPI app.


@checked
def mount(parent: Starlette, path: str, app: Starlette | AbstractAgent[Any, Any]) -> None:
    """Mount an app or an agent under a path, and run its lifespan with the parent's.

    The path without its final slash is answered too. A mount answers all paths below it, so routes and mounts that the
    parent gets later for such a path are never reached: the log names them at the start.

    A plain `parent.mount(path, app)` works as well: the app then starts with its first request, and the parent answers
    the bare path with a redirect, which not every client follows.

    Args:
        parent: A Starlette or FastAPI app that has not started yet.
        path: Begins with a slash, such as `/agent`; `/` for the parent's own URL.
        app: The app that `to_a2a` returned, or an agent for the defaults of `to_a2a`.

    Raises:
        TypeError: An argument has another type.
        ValueError: The path does not begin with a slash, or an earlier mount of the parent answers it.
    """
    if not path.startswith('/'):
        raise ValueError(f'mount(): path takes a path that begins with a slash, such as /agent, not {path!r}.')
    served: Starlette = cast('Any', app).to_a2a() if isinstance(app, AbstractAgent) else app
    mounted = Mount(path, served)
    earlier = [route.path or '/' for route in parent.routes if isinstance(route, Mount) and _hides(route, mounted)]
    if earlier:
        raise ValueError(
            f'mount(): no request would reach an app at {path}, because the app that is mounted at {earlier[0]} answers'
            ' there. Choose another path, or mount the longer path first.'
        )
    if mounted.path:
        parent.router.routes.append(Route(mounted.path, _Bare(mounted), include_in_schema=False))
    parent.router.routes.append(mounted)
    before = parent.router.lifespan_context

    @asynccontextmanager
    async def lifespan(scope_app: Any) -> AsyncGenerator[Any]:
        later = [*dropwhile(lambda route: route is not mounted, parent.routes)][1:]
        if hidden := [str(getattr(route, 'path', '')) or '/' for route in later if _hides(mounted, route)]:
            logger.warning(
                'No request reaches %s, because the app that is mounted at %s answers there: call mount() after adding'
                ' the other routes.',
                ', '.join(hidden),
                mounted.path or '/',
            )
        async with before(scope_app) as state, served.router.lifespan_context(served):
            yield state

    parent.router.lifespan_context = lifespan


def _hides(earlier: Mount, route: BaseRoute) -> bool:
    """Return whether an earlier mount answers all requests for a route."""
    path: str | None = getattr(route, 'path', None)  # a `Host` has none
    scope: Scope = {'type': 'http', 'path': f'{path}/', 'headers': ()}
    return path is not None and earlier.matches(scope)[0] is Match.FULL


class _Bare:
    """Answers a mount's path as if the final slash had been there."""

    def __init__(self, mounted: Mount) -> None:
        self._mounted = mounted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to the mounted app."""
        scope['path'] += '/'  # not in a copy: the server's access log reads the scope that the app redacts
        _, child = self._mounted.matches(scope)
        scope.update(child)
        await self._mounted.handle(scope, receive, send)


# --- several agents in one app ----------------------------------------------------------------------------------------
# Each under a path of its own, with one list of all agents.

_READ = ['GET', 'HEAD']


@checked
def catalogue(apps: Sequence[A2AApp] | Mapping[str, A2AApp], *, docs_url: str | None = '/docs') -> Starlette:
    """Serve several agents in one app, with one list of all agents.

    ```python
    from pydantic_ai import Agent

    from pydantic_ai_a2a import catalogue, to_a2a

    app = catalogue(
        [
            to_a2a(Agent('test', name='translator')),
            to_a2a(Agent('test', name='summarizer')),
        ]
    )
    ```

    `/.well-known/api-catalog` lists the agents for clients (RFC 9727), and `/` and `docs_url` list the agents for
    people. `/health/ready` is ready only if all agents are. Each agent authenticates its own callers.

    Args:
        apps: The apps of `to_a2a`. Each app is mounted at a path that is made of its agent's name, such as
            `/translator`; or the apps by path.
        docs_url: Path of the list for people, besides `/`. None: only `/`. Default `/docs`.

    Returns:
        A Starlette app for `run`, `serve` or uvicorn, or for `mount` in a larger app.

    Raises:
        ValueError: There is no app, or a path cannot be used, or two apps have the same path.
    """
    by_path = dict(apps) if isinstance(apps, Mapping) else _by_name(apps)
    own = [path for path in (docs_url, CATALOGUE_PATH, LIVE_PATH, READY_PATH) if path is not None]
    for path in by_path:
        _check(path, own)
    if docs_url is not None and not re.fullmatch('/.+', docs_url):
        raise ValueError(f'docs_url takes a path that begins with a slash, such as /docs, not {docs_url!r}.')
    if not by_path:
        raise ValueError('catalogue() needs at least one app.')
    agents = Agents(by_path, {path: app.docs_url for path, app in by_path.items() if app.docs_url is not None})
    parent = Starlette(
        routes=[
            Route(CATALOGUE_PATH, agents.linkset, methods=_READ),
            Route(LIVE_PATH, Live(), methods=_READ),
            Route(READY_PATH, ReadyTogether(agents), methods=_READ),
            *(Route(path, agents.page, methods=_READ) for path in ('/', docs_url) if path is not None),
        ]
    )
    for path in sorted(by_path, key=len, reverse=True):  # the longest first: /team/joker is not below /team
        mount(parent, path, by_path[path])
    return parent


def _by_name(apps: Sequence[A2AApp]) -> dict[str, A2AApp]:
    by_path: dict[str, A2AApp] = {}
    for app in apps:
        slug = re.sub(r'[\W_]+', '-', (app.name or 'agent').lower()).strip('-') or 'agent'
        if f'/{slug}' in by_path:
            raise ValueError(
                f'catalogue(): two agents have the path /{slug}. Give the agents different names, or pass the apps by '
                'path.'
            )
        by_path[f'/{slug}'] = app
    return by_path


def _check(path: str, own: Sequence[str]) -> None:
    if not re.fullmatch(r'(/[^/{}?#\s]+)+', path):
        raise ValueError(f'catalogue() takes paths such as /translator, not {path!r}.')
    if any(path == taken or taken.startswith(f'{path}/') for taken in own):
        raise ValueError(f'catalogue(): the path {path} is used by the list or the health of all agents.')


# --- the playground of an app -----------------------------------------------------------------------------------------
# Whether the app has the page, and the addresses of the pages of a server.

logger = logging.getLogger('pydantic_ai_a2a')


def check_docs_url(path: str | None) -> None:
    """Refuse a path that no request can have.

    Raises:
        ValueError: The path does not begin with a slash.
    """
    if path is not None and not path.startswith('/'):
        raise ValueError(f'docs_url takes a path that begins with a slash, such as /docs, not {path!r}.')


def playground(
    path: str | None, card: CardSettings, limits: Limits, steps: Steps | None, *, anonymous: bool, durable: bool
) -> Playground | None:
    """Return the playground of an app; None without a path, or if the app does not serve what the page calls."""
    if path is None:
        return None
    if '1.0' not in card.versions or not card.http_json:
        logger.info('There is no playground at %s: the agent does not serve A2A 1.0 over HTTP+JSON.', path)
        return None
    return Playground(path, limits, steps, anonymous=anonymous, durable=durable)


def playground_paths(app: ASGIApp) -> Iterator[str]:
    """Return the paths of the playgrounds of an app and of the mounted apps, as URLs have them."""
    return map(quoted, _paths(app, set()))


def _paths(app: object, seen: set[int]) -> Iterator[str]:
    """Return the paths below an app, without the paths that a route of the app itself answers."""
    if id(app) in seen:
        return
    seen.add(id(app))
    inner = (getattr(app, 'app', None), *_routes(app))
    below = chain.from_iterable(_paths(part, seen) for part in inner if part is not None)
    own = [app.docs_url] if isinstance(app, A2AApp) and app.docs_url is not None else []
    prefix = app.path if isinstance(app, Mount) else ''
    yield from (prefix + path for path in chain(own, below) if not _taken(app, path))


def _taken(app: object, path: str) -> bool:
    """Return whether a route of the app itself answers at a path, such as FastAPI's own page."""
    scope: Scope = {'type': 'http', 'method': 'GET', 'path': path, 'headers': ()}
    return any(not isinstance(route, Mount) and route.matches(scope)[0] is Match.FULL for route in _routes(app))


def _routes(app: object) -> Sequence[BaseRoute]:
    return getattr(app, 'routes', None) or ()
