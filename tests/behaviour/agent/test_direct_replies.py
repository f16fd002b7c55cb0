"""Messages that are answered with messages: no task is made, and the conversation goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Literal

import pytest
from a2a.types import StreamResponse
from fasta2a.schema import Message as FastA2AMessage
from fasta2a.schema import send_message_response_ta
from fasta2a.storage import InMemoryStorage
from google.protobuf.json_format import ParseDict
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.conversation_store import ConversationConflict, ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from starlette.types import Message as AsgiMessage

from pydantic_ai_a2a import Artifacts, Budget, InputRequired, Limits, Messages, Quotas, Rejected, Workers, to_a2a
from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.server.store.sql.conversations import SqlConversationStore
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.wire.extensions.own_extensions import RUN_METADATA_URI

from ...agents import GatedAgent, call_output_tool, echo_prompts, scripted_model, user_prompts
from ...app_client import LIMIT, Answer, Client, Exchange, lifespan, message, rpc, state_of, texts
from ...clocks import skip_time
from ...serving import list_tasks, serving, wait_until_ended
from ..refusals import error_of_answer

ECHO = Agent(FunctionModel(echo_prompts))
DIRECT = Messages(reply='message')


def checked_reply(frame: dict[str, Any]) -> dict[str, Any]:
    """The message of a frame, as the official models read it."""
    assert ParseDict(frame['result'], StreamResponse()).WhichOneof('payload') == 'message'
    assert frame['result'].keys() == {'message'}
    return frame['result']['message']


async def send_text(client: Client, text: str, **fields: Any) -> dict[str, Any]:
    """The message that answers one."""
    answer = await client.post(rpc('SendMessage', {'message': message(text, **fields)}))
    assert answer.status == 200, answer.body
    return checked_reply(answer.json)


def reply_text(said: dict[str, Any]) -> str:
    return ' '.join(part['text'] for part in said['parts'])


async def test_message_is_answered_without_creating_a_task() -> None:
    async with serving(ECHO, messages=DIRECT) as client:
        said = await send_text(client, 'hello')
        assert await list_tasks(client) == []
    assert reply_text(said) == 'hello'
    assert said['role'] == 'ROLE_AGENT'
    assert said.keys() == {'messageId', 'contextId', 'role', 'parts'}


def task_if_named(said: FastA2AMessage) -> Literal['task', 'message']:
    return 'task' if 'task' in said['parts'][0].get('text', '') else 'message'


async def test_conversation_continues_across_messages_and_tasks() -> None:
    async with serving(ECHO, messages=Messages(reply=task_if_named)) as client:
        first = await send_text(client, 'one')
        context_id = first['contextId']
        second = await send_text(client, 'two', contextId=context_id)
        task = await client.send(message('a task', contextId=context_id))
        last = await send_text(client, 'three', contextId=context_id)
        own = await send_text(client, 'mine', contextId='my-own-context')
        again = await send_text(client, 'again', contextId='my-own-context')
        assert [each['id'] for each in await list_tasks(client)] == [task['id']]
    assert [reply_text(each) for each in (second, last)] == ['one + two', 'one + two + a task + three']
    assert texts(task) == ['one + two + a task']
    assert {each['contextId'] for each in (second, last)} == {context_id}
    assert (own['contextId'], reply_text(again)) == ('my-own-context', 'mine + again')


async def frames(client: Client, text: str) -> list[dict[str, Any]]:
    """The events of a stream."""
    answer = await client.post(rpc('SendStreamingMessage', {'message': message(text)}))
    assert answer.headers['content-type'] == 'text/event-stream'
    return [json.loads(each.removeprefix(b'data: ')) for each in answer.body.split(b'\n\n') if each]


async def test_stream_contains_only_reply_message() -> None:
    async with serving(ECHO, messages=DIRECT) as client:
        [frame] = await frames(client, 'hello')
        assert await list_tasks(client) == []
    assert reply_text(checked_reply(frame)) == 'hello'


async def test_fasta2a_client_reads_reply_message() -> None:
    request = {
        'jsonrpc': '2.0',
        'id': 1,
        'method': 'message/send',
        'params': {'message': {'messageId': 'm', 'role': 'user', 'parts': [{'text': 'hello'}]}},
    }
    async with serving(ECHO, messages=DIRECT) as client:
        headers = {'Content-Type': 'application/json'}
        answer = await Exchange(client.app, 'POST', '/', headers, json.dumps(request).encode()).answer()
    read: Any = send_message_response_ta.validate_json(answer.body)
    assert (read['result']['message']['role'], read['result']['message']['parts']) == ('agent', [{'text': 'hello'}])


async def test_message_with_task_id_goes_to_its_task() -> None:
    async def never(said: FastA2AMessage) -> Literal['task', 'message']:
        await asyncio.sleep(0)
        return 'message' if 'direct' in said['parts'][0].get('text', '') else 'task'

    gates = GatedAgent()
    async with serving(gates.agent, messages=Messages(reply=never)) as client:
        task = await client.send('first', returnImmediately=True)
        await gates.reached('first')
        same = await client.send(message('direct', taskId=task['id']), returnImmediately=True)
        gates.open('first', 'direct')
        done = await wait_until_ended(client, task['id'])
    assert same['id'] == task['id']
    assert texts(done) == ['first', 'first + direct']


async def test_invalid_message_is_refused() -> None:
    async with serving(ECHO, messages=DIRECT) as client:
        bad = await client.post(rpc('SendMessage', {'message': message('x', parts=[])}))
        long = await client.post(rpc('SendMessage', {'message': message('x' * 2_000_000)}))
    assert [error_of_answer(each).code for each in (bad, long)] == [-32602, -32602]


def end_by_prompt(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    if user_prompts(messages)[-1] == 'cancel':
        raise asyncio.CancelledError
    if user_prompts(messages)[-1] == 'break':
        raise ValueError('secret')
    return echo_prompts(messages, _)


@pytest.mark.parametrize('method', ['SendMessage', 'SendStreamingMessage'])
@pytest.mark.parametrize('text', ['break', 'cancel'])
async def test_failed_run_is_error_with_correlation_id(
    method: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[Any] = []
    async with serving(Agent(FunctionModel(end_by_prompt)), messages=DIRECT, on_failure=failures.append) as client:
        said = message(text, contextId='c')
        answer = await client.post(rpc(method, {'message': said}))
        after = await send_text(client, 'after', contextId='c')
    error = error_of_answer(answer)
    assert (error.code, error.message) == (-32603, 'The agent failed with an internal error.')
    assert answer.headers['x-correlation-id'] in caplog.text
    assert b'secret' not in answer.body
    assert reply_text(after) == 'after'
    assert [(each.kind, each.context_id, each.correlation_id) for each in failures] == [
        ('internal', 'c', answer.headers['x-correlation-id'])
    ]


async def test_run_is_limited_by_max_wait() -> None:
    async with serving(Slow().agent, messages=DIRECT, limits=Limits(max_wait=0.05)) as client:
        error = error_of_answer(await client.post(rpc('SendMessage', {'message': message()})))
    assert (error.code, error.message) == (-32603, 'The run ran out of time.')


async def test_timed_out_run_stops_before_on_failure_hook() -> None:
    slow = Slow()

    async def stopped(_: object) -> None:
        await slow.stopped.wait()

    limits = Limits(max_wait=LIMIT / 4)
    async with serving(slow.agent, messages=DIRECT, limits=limits, on_failure=stopped) as client:
        sending = asyncio.ensure_future(client.post(rpc('SendMessage', {'message': message('slow')})))
        await slow.begun.wait()
        skip_time(LIMIT / 4)
        error_of_answer(await sending)


class Slow:
    """An agent whose runs do not end by themselves."""

    def __init__(self) -> None:
        self.begun, self.stopped = asyncio.Event(), asyncio.Event()
        self.agent: Agent[object, str] = Agent(FunctionModel(self._answer), name='agent')

    async def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if user_prompts(messages)[-1] == 'quick':
            return echo_prompts(messages, _)
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()
        raise AssertionError

    def ask(self, client: Client, method: str = 'SendMessage') -> Exchange:
        body = rpc(method, {'message': message('slow', contextId='c')})
        return Exchange(client.app, 'POST', '/', {'Content-Type': 'application/json', **client.headers}, body)


@pytest.mark.parametrize('method', ['SendMessage', 'SendStreamingMessage'])
async def test_client_disconnect_stops_its_run(method: str) -> None:
    slow = Slow()
    async with serving(slow.agent, messages=DIRECT) as client:
        exchange = slow.ask(client, method)
        await slow.begun.wait()
        exchange.gone.set()
        await slow.stopped.wait()
        await exchange.task
        after = await send_text(client, 'quick', contextId='c')
    assert reply_text(after) == 'quick'


class RepeatedBodyEnd(Exchange):
    """A request of a server that says once more that the body is over."""

    _said = 0

    async def _receive(self) -> AsgiMessage:
        self._said += 1
        if self._said == 2:
            return {'type': 'http.request', 'body': b'', 'more_body': False}
        return await super()._receive()


async def test_end_of_request_body_is_no_disconnect() -> None:
    async with serving(ECHO, messages=DIRECT) as client:
        headers = {'Content-Type': 'application/json', **client.headers}
        body = rpc('SendMessage', {'message': message('hello')})
        answer = await RepeatedBodyEnd(client.app, 'POST', '/', headers, body).answer()
    assert reply_text(checked_reply(answer.json)) == 'hello'


async def test_shutdown_stops_run_after_drain_grace_with_503() -> None:
    slow = Slow()
    app = to_a2a(slow.agent, messages=DIRECT, workers=Workers(drain_grace=0.05))
    async with asyncio.timeout(LIMIT):
        async with lifespan(app):
            exchange = slow.ask(Client(app))
            await slow.begun.wait()
        answer = await exchange.answer()
    error = error_of_answer(answer, status=503)
    assert (error.code, answer.headers['retry-after']) == (-32000, '1')
    assert slow.stopped.is_set()


async def test_running_limit_refuses_further_direct_replies() -> None:
    slow = Slow()
    async with serving(slow.agent, messages=DIRECT, workers=Workers(running=1)) as client:
        exchange = slow.ask(client)
        await slow.begun.wait()
        error = error_of_answer(await client.post(rpc('SendMessage', {'message': message('quick')})), status=503)
        exchange.gone.set()
        await exchange.task
        assert reply_text(await send_text(client, 'quick')) == 'quick'
    assert error.code == -32000


@pytest.mark.parametrize('of', ['caller', 'server'])
async def test_concurrency_limits_hold_during_budget_lookup(of: str, tmp_path: Any) -> None:
    slow, budget = Slow(), Budget(window=timedelta(hours=1), requests=9)
    options: dict[str, Any] = {
        'backend': f'sqlite:///{tmp_path}/agent.db?synchronous=normal',
        'limits': Limits(quotas=Quotas(tasks=1 if of == 'caller' else None, budgets=[budget])),
        'workers': Workers(running=9 if of == 'caller' else 1),
    }
    async with serving(slow.agent, messages=DIRECT, **options) as client:
        both = [slow.ask(client), slow.ask(client)]
        await slow.begun.wait()
        [refused], [running] = await asyncio.wait([each.task for each in both], return_when='FIRST_COMPLETED')
        for each in both:
            each.gone.set()
        await running
        answer = await next(each for each in both if each.task is refused).answer()
    assert answer.status == (429 if of == 'caller' else 503)


async def test_quotas_apply_to_direct_replies() -> None:
    slow = Slow()
    async with serving(slow.agent, messages=DIRECT, limits=Limits(quotas=Quotas(tasks=1))) as client:
        exchange = slow.ask(client)
        await slow.begun.wait()
        error = error_of_answer(await client.post(rpc('SendMessage', {'message': message('quick')})), status=429)
        exchange.gone.set()
        await exchange.task
    assert error.code == -32000
    budget = Budget(window=timedelta(hours=1), requests=1)
    async with serving(ECHO, messages=DIRECT, limits=Limits(quotas=Quotas(budgets=[budget]))) as client:
        assert reply_text(await send_text(client, 'one')) == 'one'
        error_of_answer(await client.post(rpc('SendMessage', {'message': message('two')})), status=429)


async def test_messages_of_same_context_are_answered_in_order() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, messages=DIRECT) as client:
        one = asyncio.create_task(send_text(client, 'one', contextId='c'))
        await gates.reached('one')
        two = asyncio.create_task(send_text(client, 'two', contextId='c'))
        gates.open('one', 'two')
        assert [reply_text(await each) for each in (one, two)] == ['one', 'one + two']


async def test_concurrent_task_and_direct_reply_both_keep_their_turns() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, messages=Messages(reply=task_if_named)) as client:
        answering = asyncio.create_task(send_text(client, 'one', contextId='c'))
        await gates.reached('one')
        gates.open('a task', 'last')
        await client.send(message('a task', contextId='c'))
        gates.open('one')
        await answering
        last = await send_text(client, 'last', contextId='c')
    assert reply_text(last) == 'a task + one + last'


async def test_context_erased_during_reply_stays_erased() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, messages=DIRECT) as client:
        gates.open('one', 'last')
        await send_text(client, 'one', contextId='c')
        answering = asyncio.create_task(send_text(client, 'two', contextId='c'))
        await gates.reached('two')
        app = client.a2a_app
        assert await app.erase_context('c')
        gates.open('two')
        assert reply_text(await answering) == 'one + two'
        assert reply_text(await send_text(client, 'last', contextId='c')) == 'last'


async def test_message_during_erasure_is_refused() -> None:
    async with serving(ECHO, messages=DIRECT) as client:
        app = client.a2a_app
        await app.backend.housekeeping.set_erasing('/', 'c', until=app.backend.now() + round(10_000 * LIMIT))
        refused = error_of_answer(
            await client.post(rpc('SendMessage', {'message': message(contextId='c')})), status=503
        )
        assert refused.message.startswith('The data of the caller, or of the context, is being erased')
        assert await send_text(client, 'elsewhere', contextId='d')


def ask_by_prompt(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    text = user_prompts(messages)[-1]
    if text in ('question', 'no'):
        tool = next(each for each in info.output_tools if (text == 'no') == ('Rejected' in each.name))
        said = {'reason': 'Not this.'} if text == 'no' else {'question': 'Which one?'}
        return ModelResponse(parts=[ToolCallPart(tool.name, said)])
    if text == 'approval':
        return ModelResponse(parts=[ToolCallPart('dangerous')])
    return echo_prompts(messages, info)


ASKING = Agent(FunctionModel(ask_by_prompt), output_type=[str, InputRequired, Rejected])


@ASKING.tool_plain(requires_approval=True)
def dangerous() -> str:
    raise ModelRetry('never')


async def test_question_is_reply_message_but_approval_is_refused() -> None:
    async with serving(ASKING, messages=DIRECT) as client:
        question = await send_text(client, 'question', contextId='c')
        answer = await send_text(client, 'this one', contextId='c')
        rejected = await send_text(client, 'no', contextId='c')
        approval = await client.post(rpc('SendMessage', {'message': message('approval', contextId='c')}))
        after = await send_text(client, 'after', contextId='c')
    assert [reply_text(each) for each in (question, rejected)] == ['Which one?', 'Not this.']
    assert reply_text(answer) == 'question + this one'
    assert (error_of_answer(approval).code, reply_text(after)) == (-32004, 'question + this one + after')


async def test_several_artifacts_become_parts_of_reply_message() -> None:
    def made() -> Artifacts:
        return Artifacts(report='Text', numbers={'a': 1})

    async with serving(Agent(scripted_model(call_output_tool()), output_type=made), messages=DIRECT) as client:
        said = await send_text(client, 'go')
    assert [each.get('text') or each['data'] for each in said['parts']] == ['Text', {'result': {'a': 1}}]


async def test_reply_message_carries_run_metadata() -> None:
    async with serving(ECHO, messages=DIRECT) as client:
        header = {'A2A-Extensions': RUN_METADATA_URI}
        answer: Answer = await client.post(rpc('SendMessage', {'message': message('hi')}), header)
    said = checked_reply(answer.json)
    assert (said['extensions'], said['metadata'][RUN_METADATA_URI]['usage']['requests']) == ([RUN_METADATA_URI], 1)
    assert answer.headers['a2a-extensions'] == RUN_METADATA_URI


async def test_canceled_request_stops_pending_reply_function() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def endless(said: FastA2AMessage) -> Any:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serving(ECHO, messages=Messages(reply=endless)) as client:
        exchange = Slow().ask(client)
        await began.wait()
        exchange.task.cancel()
        await ended.wait()
        with pytest.raises(asyncio.CancelledError):
            await exchange.task


async def test_invalid_reply_function_result_is_internal_error() -> None:
    def wrong(said: FastA2AMessage) -> Any:
        return 'both'

    async with serving(ECHO, messages=Messages(reply=wrong)) as client:
        assert error_of_answer(await client.post(rpc('SendMessage', {'message': message()}))).code == -32603


async def test_unavailable_store_is_http_503() -> None:
    async with serving(Agent(scripted_model(StoreUnavailable())), messages=DIRECT) as client:
        error_of_answer(await client.post(rpc('SendMessage', {'message': message()})), status=503)


class ConflictingConversations(MemoryBackend):
    """A store to whose conversations others always add something just before."""

    def __init__(self, conflicts: int) -> None:
        super().__init__('agent', reader_lag=10**6)
        self.conflicts = conflicts

    def conversations(self, owner: str) -> SqlConversationStore:
        backend = self

        class Store(SqlConversationStore):
            async def write_record(self, record: ConversationRecord, **rest: Any) -> None:
                backend.conflicts -= 1
                if backend.conflicts >= 0:
                    raise ConversationConflict(record.conversation_id)
                await super().write_record(record, **rest)

        return Store(self, self.namespace, owner)


async def test_reply_is_stored_despite_conversation_conflicts() -> None:
    async with serving(ECHO, messages=DIRECT, backend=ConflictingConversations(3)) as client:
        assert reply_text(await send_text(client, 'one', contextId='c')) == 'one'
        assert reply_text(await send_text(client, 'two', contextId='c')) == 'one + two'
    async with serving(ECHO, messages=DIRECT, backend=ConflictingConversations(100)) as client:
        error = error_of_answer(await client.post(rpc('SendMessage', {'message': message()})))
    assert (error.code, error.message) == (-32603, 'The store of the server failed.')


class LosesAnswers(MemoryBackend):
    """A store that writes the first turn, and loses the answer of that commit."""

    lost = False

    def conversations(self, owner: str) -> SqlConversationStore:
        backend = self

        class Store(SqlConversationStore):
            async def write_record(self, record: ConversationRecord, **rest: Any) -> None:
                await super().write_record(record, **rest)
                if not backend.lost:
                    backend.lost = True
                    raise StoreUnavailable

        return Store(self, self.namespace, owner)


async def test_lost_commit_answer_stores_turn_once() -> None:
    backend = LosesAnswers('agent', reader_lag=10**6)
    async with serving(ECHO, messages=DIRECT, backend=backend) as client:
        assert reply_text(await send_text(client, 'one', contextId='c')) == 'one'
        assert backend.lost
        assert reply_text(await send_text(client, 'two', contextId='c')) == 'one + two'


async def streamed(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
    raise AssertionError('nobody watches')
    yield ''


async def test_conversation_of_direct_replies_survives_restart(tmp_path: Any) -> None:
    agent = Agent(FunctionModel(echo_prompts, stream_function=streamed))
    for text, heard_by_then in (('one', 'one'), ('two', 'one + two')):
        async with serving(agent, messages=DIRECT, name='a', backend=f'sqlite:///{tmp_path}/a.db') as client:
            assert reply_text(await send_text(client, text, contextId='c')) == heard_by_then


def test_reply_option_rejects_custom_storage_and_bad_value() -> None:
    with pytest.raises(TypeError, match=r'Messages\.reply cannot be combined'):
        to_a2a(ECHO, messages=DIRECT, storage=InMemoryStorage())
    with pytest.raises(ValueError, match="reply takes 'task', 'message' or a function, not the string"):
        to_a2a(ECHO, messages=Messages(reply='both'))  # pyright: ignore[reportArgumentType]


async def test_messages_are_answered_with_tasks_by_default() -> None:
    async with serving(ECHO) as client:
        assert state_of(await client.send()) == 'COMPLETED'
