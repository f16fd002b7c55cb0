"""The app that serves an agent: an ASGI app, and the Python API of its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fasta2a import FastA2A
from fasta2a.broker import Broker, InMemoryBroker
from fasta2a.schema import AgentExtension, Task
from fasta2a.storage import InMemoryStorage, Storage
from fasta2a.task_manager import TaskManager
from pydantic_ai.conversation_store import ConversationStore
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from ...correlation_ids import new_correlation_id
from ...errors import TaskNotFoundError, UnsupportedOperationError
from ...types.a2a_objects import TaskState
from ...types.callers import ANONYMOUS, Caller
from ...types.service_calls import Call
from ...types.task_queries import TaskQuery
from ...wire.protocol import stored_values
from ..audit import audit
from ..card.template import CardTemplate
from ..http.aborted_connections import REQUEST
from ..http.allowed_hosts import AllowedHosts, misdirected
from ..http.asgi_requests import redact
from ..http.unread_bodies import closing
from ..runs.app_hosting import Hosting
from ..service.request_flow import Serving
from ..store.ports import Backend
from .own_task_manager import INSTEAD, OwnTaskManager

if TYPE_CHECKING:
    from ..runs.engine import AtEngine


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
        self._grpc: dict[Callable[[str], str | None], asyncio.AbstractEventLoop] = {}
        self.docs_url = docs_url
        """Path of the playground; None without one."""
        self.outermost = False
        """True if the server starts the app itself, so the paths of the app are those of the server."""
        self.playground_logged = False
        """True if the log has had the path of the playground."""
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
                f'This app has no task manager, since to_a2a() was given no storage= or broker=. {INSTEAD}'
            )
        return self._task_manager

    @task_manager.setter
    def task_manager(self, value: TaskManager) -> None:
        """Ignore the task manager that FastA2A makes."""

    @property
    def backend(self) -> Backend:
        """The backend of the app's tasks and conversations."""
        return self._backend

    def declare_grpc(self, place: Callable[[str], str | None], extensions: Sequence[AgentExtension]) -> None:
        """List a gRPC server of the running loop on the agent card. The card lists the newest of several servers.

        Args:
            place: Returns `host:port` of the gRPC server, from the URL of the agent; None leaves it off this card.
            extensions: Extensions of the binding.
        """
        self._grpc[place] = asyncio.get_running_loop()
        self._list_grpc(extensions)

    def withdraw_grpc(self, place: Callable[[str], str | None], extensions: Sequence[AgentExtension]) -> bool:
        """List a gRPC server no longer. Return True if it was the last one of the running loop."""
        loop = self._grpc.pop(place)
        self._list_grpc(extensions)
        return loop not in self._grpc.values()

    def _list_grpc(self, extensions: Sequence[AgentExtension]) -> None:
        def newest(base: str) -> str | None:
            return next((url for place in reversed([*self._grpc]) if (url := place(base)) is not None), None)

        self.card.serve_grpc(newest if self._grpc else None, extensions)

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
        if scope['type'] == 'lifespan':
            self.outermost = True
        elif scope['type'] == 'http' and (scope['path'] != '/' or scope['method'] != 'POST'):
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
        return stored_values.load_task(task)

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
        return [stored_values.load_task(task) for task in page.tasks]

    async def cancel_task(self, task_id: str) -> Task:
        """Cancel a task (§3.1.5) and wait until its run has stopped, at most five seconds.

        Raises:
            TaskNotFoundError: No task has this id.
            TaskNotCancelableError: The task has ended.
        """
        task = await self.dispatcher.service.cancel(
            task_id, None, new_correlation_id(), lambda header: {'via': 'python', 'owner': header.owner}
        )
        return stored_values.load_task(task)

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
        return stored_values.load_task(await self.dispatcher.service.incoming.resume(call, task_id, text))

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
