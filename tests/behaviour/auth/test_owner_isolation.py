"""Two callers do what they like under the same names: neither sees, counts, stops or continues what is the other's."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import wraps
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Caller, Workers, to_a2a

from ...agents import echo_prompts, user_prompts
from ...app_client import LIMIT, Answer, RpcError, lifespan, message, rpc, state_of, texts
from ...serving import each_backend, serving
from ...sizes import LONG, examples
from ..callers import caller_from_header, client_of_caller
from ..refusals import error_of_answer

T = TypeVar('T')

CALLERS = ('ann', 'bob')
NOWHERE = '0' * 32
CONTEXTS = (None, 'context 1', 'context 2')

callers = st.sampled_from(CALLERS)
contexts = st.sampled_from(CONTEXTS)
picks = st.integers(min_value=0, max_value=50)
"""Which of the tasks that anybody has, or one that there is not."""


def texts_of_task(task: dict[str, Any]) -> str:
    """All that was said in a task, by whomever."""
    parts = [part for each in task.get('history', ()) for part in each['parts']]
    return ' '.join([*(part['text'] for part in parts), *texts(task)])


def content(answer: Answer) -> dict[str, Any]:
    """An answer without what is different in every one."""
    wire = answer.json
    del wire['error']['data'][0]['metadata']['correlationId']
    return wire


async def result_or_code(work: Coroutine[Any, Any, T]) -> T | int:
    """What it gives, or the code of the error that it is refused with."""
    try:
        return await work
    except RpcError as error:
        return error.code


def as_each_caller(operation: Callable[..., None]) -> Callable[..., None]:
    """What one caller does, and the other then does as well, with the same ids."""

    @wraps(operation)
    def both(self: TwoCallers, *, who: str, **arguments: Any) -> None:
        for name in (who, *(other for other in CALLERS if other != who)):
            self.operations[name] += 1
            operation(self, who=name, **arguments)

    return both


class TwoCallers(RuleBasedStateMachine):
    """What each of two callers may know, against what the server tells them."""

    of_both: ClassVar[list[int]] = []
    """How many operations each of them has done at least, each time."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.gate = asyncio.Event()
        self.app = to_a2a(
            Agent(FunctionModel(self.answer)), auth=caller_from_header, workers=Workers(drain_grace=0.1, lease=3_600)
        )
        self.clients = {name: client_of_caller(self.app, name) for name in CALLERS}
        self.owners: dict[str, str] = {}
        """Whose each task is."""
        self.contexts: dict[str, str] = {}
        """The context of each task."""
        self.operations: Counter[str] = Counter()
        self.used: set[tuple[str, int]] = set()
        """Which message ids each caller has used."""
        self.stack = AsyncExitStack()
        self.do(self.stack.enter_async_context(lifespan(self.app)))

    async def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if 'wait' in user_prompts(messages)[-1]:
            await self.gate.wait()
        return echo_prompts(messages, info)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, LIMIT))

    def picked(self, pick: int) -> str:
        return [*self.owners, NOWHERE][pick % (len(self.owners) + 1)]

    def others(self, who: str, task_id: str) -> bool:
        """Whether there is no such task for the caller."""
        return self.owners.get(task_id) != who

    def post(self, who: str, method: str, params: dict[str, Any]) -> Answer:
        return self.do(self.clients[who].post(rpc(method, params)))

    def is_nowhere(self, who: str, method: str, params: dict[str, Any], task_id: str) -> None:
        """What the caller is told of a task, word for word, is what it is told of none."""
        told, of_none = (
            content(self.post(who, method, json.loads(json.dumps(params).replace('TASK', id))))
            for id in (task_id, NOWHERE)
        )
        assert told == of_none

    @rule(
        who=callers,
        context=contexts,
        n=st.integers(min_value=1, max_value=5),
        words=st.sampled_from(['go on', 'wait']),
        to=st.none() | picks,
        method=st.sampled_from(['SendMessage', 'SendStreamingMessage']),
    )
    @as_each_caller
    def sends(self, *, who: str, context: str | None, n: int, words: str, to: int | None, method: str) -> None:
        """A message, perhaps one that the other sent too, to a new task or to anybody's."""
        said = message(f'{who}: {words}', messageId=f'the same message id {n}')
        if context is not None:
            said['contextId'] = context
        if to is not None:
            task_id = self.picked(to)
            if self.others(who, task_id):
                params = {'message': {**said, 'taskId': 'TASK'}}
                self.is_nowhere(who, method, params, task_id)
                return
            said['taskId'] = task_id
        task = self.do(result_or_code(self.sent(who, method, said)))
        if isinstance(task, int):
            # An own message has the id, or the task has ended; else it is in another context than the message.
            assert task in {-32602, -32004} if to is not None else (who, n) in self.used
            return
        self.used.add((who, n))
        assert self.owners.setdefault(task['id'], who) == who
        assert context in (None, task['contextId'])
        self.contexts[task['id']] = task['contextId']

    async def sent(self, who: str, method: str, said: dict[str, Any]) -> dict[str, Any]:
        client = self.clients[who]
        if method == 'SendMessage':
            return await client.send(said, returnImmediately=True)
        async with client.send_streaming(said) as stream:
            return (await anext(stream)).result['task']

    @rule(who=callers, pick=picks)
    @as_each_caller
    def looks(self, who: str, pick: int) -> None:
        task_id = self.picked(pick)
        if self.others(who, task_id):
            self.is_nowhere(who, 'GetTask', {'id': 'TASK'}, task_id)
        else:
            self.is_own(who, self.do(self.clients[who].get_task(task_id)))

    def is_own(self, who: str, task: dict[str, Any]) -> None:
        assert self.owners[task['id']] == who
        assert not any(other in texts_of_task(task) for other in CALLERS if other != who)

    @rule(who=callers, pick=picks)
    @as_each_caller
    def cancels(self, who: str, pick: int) -> None:
        task_id = self.picked(pick)
        if not self.others(who, task_id):
            assert self.post(who, 'CancelTask', {'id': task_id}).status == 200
            return
        self.is_nowhere(who, 'CancelTask', {'id': 'TASK'}, task_id)

    @rule(who=callers, pick=picks)
    @as_each_caller
    def subscribes(self, who: str, pick: int) -> None:
        task_id = self.picked(pick)
        if self.others(who, task_id):
            self.is_nowhere(who, 'SubscribeToTask', {'id': 'TASK'}, task_id)
            return
        task = self.do(result_or_code(self.subscribed(who, task_id)))
        if isinstance(task, int):
            assert task == -32004  # it has ended
        else:
            self.is_own(who, task)

    async def subscribed(self, who: str, task_id: str) -> dict[str, Any]:
        async with self.clients[who].subscribe(task_id) as stream:
            return (await anext(stream)).result['task']

    @rule(who=callers, context=contexts, size=st.integers(min_value=1, max_value=3))
    @as_each_caller
    def lists(self, who: str, context: str | None, size: int) -> None:
        """Pages of a list, whose tokens are nobody else's."""
        params = {'pageSize': size, 'includeArtifacts': True} | ({} if context is None else {'contextId': context})
        [other] = [name for name in CALLERS if name != who]
        found: list[str] = []
        token = ''
        while True:
            page = self.do(self.clients[who].call('ListTasks', {**params, 'pageToken': token}))
            for task in page['tasks']:
                self.is_own(who, task)
            found += [task['id'] for task in page['tasks']]
            if not (token := page['nextPageToken']):
                break
            assert error_of_answer(self.post(other, 'ListTasks', {**params, 'pageToken': token})).code == -32602
        own = [id for id, owner in self.owners.items() if owner == who and context in (None, self.contexts[id])]
        assert sorted(found) == sorted(own)
        assert page['totalSize'] == len(own)

    @rule()
    def lets_go_on(self) -> None:
        """What waits may go on, and what comes after it waits again."""
        self.gate.set()
        self.do(asyncio.sleep(0))
        self.gate = asyncio.Event()

    @invariant()
    def remembers_only_what_the_caller_said(self) -> None:
        for who in CALLERS:
            for context in CONTEXTS[1:]:
                conversation = self.do(self.app.conversations(caller=Caller(id=who)).load(str(context)))
                if conversation is not None:
                    assert all(text.startswith(who) for text in user_prompts(conversation.messages))

    def teardown(self) -> None:
        self.of_both.append(min(self.operations[name] for name in CALLERS))
        self.gate.set()
        for task_id, who in self.owners.items():
            self.is_own(who, self.do(self.ended(who, task_id)))
        self.do(self.stack.aclose())
        self.loop.close()

    async def ended(self, who: str, task_id: str) -> dict[str, Any]:
        client = self.clients[who]

        async def follow() -> None:
            async with client.subscribe(task_id) as stream:
                await stream.rest()

        assert await result_or_code(follow()) in {None, -32004}
        task = await client.get_task(task_id)
        assert state_of(task) in {'COMPLETED', 'CANCELED'}
        return task


def test_two_callers_stay_isolated_in_random_operations() -> None:
    steps = 650 if LONG else 40  # of which some are nobody's
    checks = [HealthCheck.large_base_example, HealthCheck.too_slow] if LONG else []
    run_state_machine_as_test(
        TwoCallers,
        settings=settings(
            examples(15, 10), stateful_step_count=steps, print_blob=False, suppress_health_check=checks, deadline=None
        ),
    )
    assert max(TwoCallers.of_both) >= (500 if LONG else 20)


# That there is no such task takes as long, whosever it is: the same statements.


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of SQLite, by its own account."""
    told: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        connection.set_trace_callback(told.append)
        return connection

    monkeypatch.setattr(sqlite3, 'connect', traced)
    return told


VALUE = re.compile(r"x?'(?:[^']|'')*'|\b\d+\b", re.IGNORECASE)
"""A value within a statement of SQL."""


OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    'look': ('GetTask', {'id': 'TASK'}),
    'look at a part': ('GetTask', {'id': 'TASK', 'historyLength': 1}),
    'cancel': ('CancelTask', {'id': 'TASK'}),
    'subscribe': ('SubscribeToTask', {'id': 'TASK'}),
    'continue': ('SendMessage', {'message': message(taskId='TASK')}),
    'continue in its context': ('SendMessage', {'message': message(taskId='TASK', contextId='CONTEXT')}),
    'continue in a stream': ('SendStreamingMessage', {'message': message(taskId='TASK')}),
    'list its context': ('ListTasks', {'contextId': 'CONTEXT'}),
}


@each_backend('memory', 'sqlite')
@pytest.mark.parametrize('state', ['COMPLETED', 'WORKING'])
async def test_foreign_and_unknown_tasks_run_same_sql(
    state: str, backend: str, statements: list[str], subtests: pytest.Subtests
) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        begun.set()
        if state == 'WORKING':
            await gate.wait()
        return echo_prompts(messages, info)

    async with serving(
        Agent(FunctionModel(answer), name='agent'),
        backend=backend,
        auth=caller_from_header,
        workers=Workers(lease=3_600),
    ) as client:
        ann, bob = (client_of_caller(client.app, name) for name in CALLERS)
        async with ann.send_streaming(message(contextId='CONTEXT')) as stream:
            await stream.until(f'TASK_STATE_{state}')
        await begun.wait()  # by then, the run has read from the store what it needs
        task = (await ann.call('ListTasks'))['tasks'][0]

        async def told(operation: str, task_id: str, context_id: str) -> tuple[list[str], bytes]:
            method, params = OPERATIONS[operation]
            body = rpc(method, params).replace(b'TASK', task_id.encode()).replace(b'CONTEXT', context_id.encode())
            statements.clear()
            answer = await bob.post(body)
            correlation_id = answer.headers['x-correlation-id'].encode()
            about = [each for each in statements if task_id in each or context_id in each]
            # Rows of readers are written beside the requests, at the looks of the process.
            about = [each for each in about if not each.startswith(('INSERT INTO reader', 'DELETE FROM reader'))]
            return [VALUE.sub('?', each) for each in about], answer.body.replace(correlation_id, b'')

        for operation in OPERATIONS:
            with subtests.test(operation):
                await told(operation, NOWHERE, 'NO CONTEXT')  # what is done once only is done
                of_nobody = await told(operation, NOWHERE, 'NO CONTEXT')
                of_ann = await told(operation, task['id'], task['contextId'])
                assert of_ann == of_nobody
                assert of_ann[0] != []
        gate.set()
