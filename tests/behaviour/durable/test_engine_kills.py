"""What a run at an engine promises although the processes of its server and its worker are killed."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFile, SqliteFileBackend

from ...app_client import message, state_of
from ...e2e.server import Process, process
from ...engines import lose_activities, need_dbos
from ..asking import answers, approve, asked
from ..durable_processes import Remote, kill, started, until

APP = 'tests.behaviour.durable_kills:app'
PACKAGES = ('pydantic_ai.durable_exec.dbos', 'pydantic_ai.durable_exec.temporal')
KILLED = [('dbos', 'server'), ('temporal', 'server'), ('temporal', 'worker'), ('temporal', 'both')]
"""Engines, and whose processes are killed. At DBOS, the server runs the workflow."""
QUICK = KILLED[:2]
slow = pytest.mark.slow


class House:
    """A server of an app of `durable_kills`, and at Temporal a worker."""

    def __init__(self, folder: Path, engine: str, killed: str, temporal: str) -> None:
        self.remote: Remote
        self._folder = folder
        self.repeats = killed != 'server' or engine == 'dbos'
        """Whether a kill cuts models and tools, which begin again."""
        self._kills_server = killed != 'worker'
        self._kills_worker = killed in ('worker', 'both')
        self.at_temporal = engine == 'temporal'
        self._worker: Process | None = None
        self._stack = ExitStack()
        self._env = {
            'A2A_TEST_FOLDER': str(folder),
            'A2A_TEST_BACKEND': f'sqlite:///{folder}/agent.db',
            'A2A_TEST_DBOS': f'sqlite:///{folder}/dbos.db',
            'A2A_TEST_ENGINE': engine,
            'A2A_TEST_TEMPORAL': temporal,
            'A2A_TEST_QUEUE': uuid4().hex,
        }

    @asynccontextmanager
    async def serving(self, agent: str) -> AsyncGenerator[None]:
        """Serve an agent in the block."""
        with self._stack:
            if agent == 'remote':
                env = {**self._env, 'A2A_TEST_AGENT': ''}
                other = self._stack.enter_context(started('tests.behaviour.durable_kills:remote_app', env=env))
                self._env['A2A_TEST_REMOTE'] = other.url
            self._env['A2A_TEST_AGENT'] = agent
            self._start(server=True, worker=self.at_temporal)
            yield

    async def send(self, text: str, *parts: Any, **fields: Any) -> dict[str, Any]:
        """Send a message, and return the task as it begins."""
        return await self.give(message(parts=[{'text': text}, *parts], **fields))

    async def give(self, sent: dict[str, Any]) -> dict[str, Any]:
        configuration = {'returnImmediately': True}
        return (await self.remote.call('SendMessage', message=sent, configuration=configuration))['task']

    async def kill(self, tasks: Mapping[str, dict[str, Any]]) -> None:
        """Kill the processes once the tasks wait at the gates of their prompts, and start others."""
        for prompt, task in tasks.items():
            await self.reached(prompt, task)
        if self._kills_server:
            await kill(self.remote.server)
        if self._kills_worker and self._worker is not None:
            await kill(self._worker)
            await lose_activities(self._env['A2A_TEST_TEMPORAL'], *(task['id'] for task in tasks.values()))
        self._start(server=self._kills_server, worker=self._kills_worker)

    def open(self) -> None:
        """Open all gates."""
        (self._folder / 'opened').touch()

    async def over(self, task: dict[str, Any]) -> dict[str, Any]:
        """A task once it has ended, or waits for its client."""
        read: dict[str, Any] = {}

        async def found() -> bool:
            read.update(await self.remote.call('GetTask', id=task['id']))
            return state_of(read) != 'WORKING'

        await until(found)
        return read

    async def reached(self, prompt: str, task: dict[str, Any]) -> None:
        """Wait until a task waits at the gate of its prompt."""
        file = self._folder / f'{prompt}.reached'

        async def reached() -> bool:
            if not file.exists():
                now = await self.remote.call('GetTask', id=task['id'])
                assert state_of(now) != 'FAILED', self.remote.server.output
            return file.exists()

        await until(reached)
        file.unlink()

    async def told(self, beginning: str) -> str:
        """What a hook notes after these words."""

        async def noted() -> bool:
            return any(line.startswith(beginning) for line in self.ledger)

        await until(noted)
        [told] = (line.removeprefix(beginning) for line in self.ledger.elements() if line.startswith(beginning))
        return told

    @property
    def ledger(self) -> Counter[str]:
        """How often models, tools and hooks have begun."""
        return Counter((self._folder / 'ledger.txt').read_text().splitlines())

    async def charged(self) -> int:
        """The requests that the budget has counted."""
        backend = SqliteFileBackend(SqliteFile(path=self._folder / 'agent.db'), 'agent', reader_lag=10**6)
        try:
            return sum(each.requests for each in await backend.quotas.spent('/', 24 * 3600 * 1000, at=0))
        finally:
            backend.close()

    async def is_charged(self, requests: int) -> None:
        """Wait for a charge, which is stored after the task if the cancel did not wait for the run."""

        async def charged() -> bool:
            return await self.charged() > 0

        await until(charged)
        assert await self.charged() == requests

    def _start(self, *, server: bool, worker: bool) -> None:
        if worker:
            command = ('-m', 'pydantic_ai_a2a', 'worker', '--engine', APP)
            self._worker = self._stack.enter_context(process(*command, env=self._env, packages=PACKAGES))
            self._worker.wait_for('the worker runs the workflows of')
        if server:
            self.remote = self._stack.enter_context(started(APP, env=self._env, packages=PACKAGES))


@pytest.fixture(params=KILLED, ids=' '.join)
def house(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    engine, killed = request.param
    if engine == 'dbos':
        need_dbos()
    return House(tmp_path, engine, killed, '' if engine == 'dbos' else request.getfixturevalue('temporal'))


# --- how runs end -----------------------------------------------------------------------------------------------------


class Promise(NamedTuple):
    """How a task ends."""

    parts: Sequence[Any]
    """The answer, and the files of tools before it."""
    output: str = ''
    """What `on_complete` gets."""
    failure: str | None = None


PICTURE = {'raw': b64encode(b'picture').decode(), 'mediaType': 'image/png'}
PDF = {'raw': b64encode(b'a file').decode(), 'mediaType': 'application/pdf', 'filename': 'a.pdf'}
PROMISES = {
    'text': Promise(['text + seen'], "'text + seen'"),
    'validated': Promise([('Offer', {'priceCents': 701})], 'Offer(price_cents=701)'),
    'union': Promise([('Refused', {'cents': 7})], 'Refused(cents=7)'),
    'deps': Promise(['deps + word 2:00:00'], "'deps + word 2:00:00'"),
    'files': Promise([b64encode(b'picture').decode(), 'a file', b64encode(b'picture').decode()], "'a file'"),
    'content filter': Promise([], failure='refused-content'),
    'usage limit': Promise([], failure='usage-limit'),
    'bad output': Promise([], failure='bad-output'),
    'unknown error': Promise([], failure='internal'),
}

AS_JSON = {'Offer(price_cents=701)': "{'priceCents': 701}"}
"""What `on_complete` gets at Temporal in the place of an output that JSON changes: its validator changes each value."""


def parts_of(task: dict[str, Any]) -> list[Any]:
    """The texts, the files, and the data with their types, of the artifacts."""
    parts = [part for artifact in task.get('artifacts', ()) for part in artifact['parts']]
    return [
        (part['metadata']['python_type'], part['data']['result'])
        if 'data' in part
        else part.get('text') or part.get('raw')
        for part in parts
    ]


@slow
async def test_killed_run_has_same_result_and_charge(house: House) -> None:
    points = ('look', 'model-2')
    promises = {f'{kind} at {point}': promise for kind, promise in PROMISES.items() for point in points}
    promises['text at hook'] = PROMISES['text']
    async with house.serving('desk'):
        tasks = {
            prompt: await house.send(prompt, *([PDF] if prompt.startswith('files') else [])) for prompt in promises
        }
        await house.kill(tasks)
        house.open()
        for prompt, (parts, output, failure) in promises.items():
            done = await house.over(tasks[prompt])
            heard = AS_JSON.get(output, output) if house.at_temporal else output
            of_hook = f'completed {prompt}: ' if failure is None else f'failed {done["id"]}: '
            assert (prompt, parts_of(done), await house.told(of_hook)) == (prompt, parts, failure or heard)
            assert failure == done['status'].get('message', {}).get('metadata', {}).get('failure')
            if not prompt.endswith('look'):
                assert house.ledger[f'look for {prompt}'] == 1  # was complete
        # Each run is charged once: a request for `look`, and another one for the answer.
        assert await house.charged() == sum(2 if promise.failure is None else 1 for promise in promises.values())


@slow
async def test_approved_calls_run_once_and_denied_never(house: House) -> None:
    def decided(task: dict[str, Any]) -> dict[str, Any]:
        first, second = (call['id'] for call in asked(task))
        return answers(task, approve(first), {'id': second, 'decision': 'deny'})

    async with house.serving('desk'):
        sent = {point: await house.send(f'approval at {point}') for point in ('look', 'answer', 'delete', 'model-3')}
        waiting = {point: await house.over(sent[point]) for point in ('answer', 'delete', 'model-3')}
        for point in ('delete', 'model-3'):
            await house.give(decided(waiting[point]))
        await house.kill({f'approval at {point}': sent[point] for point in ('look', 'delete', 'model-3')})
        house.open()
        for point in ('look', 'answer'):
            await house.give(decided(await house.over(sent[point])))
        for point, task in sent.items():
            done = await house.over(task)
            assert (point, state_of(done), parts_of(done)) == (
                point,
                'COMPLETED',
                ['approval + seen + no a + The tool call was denied.'],
            )
            assert (point, house.ledger[f'delete a for approval at {point}']) == (point, 1)
            assert (point, house.ledger[f'delete b for approval at {point}']) == (point, 0)


# --- what clients send ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    'house', [*QUICK, *(pytest.param(each, marks=slow) for each in KILLED[2:])], indirect=True, ids=' '.join
)
async def test_message_to_killed_run_reaches_model_once(house: House) -> None:
    async with house.serving('desk'):
        task = await house.send('text at look')
        await house.send('more', taskId=task['id'], contextId=task['contextId'])
        await house.kill({'text at look': task})
        house.open()
        assert parts_of(await house.over(task)) == ['text + seen', 'text + more + seen']
    assert house.ledger['model-1 for text at look'] == 1


@slow
async def test_resumed_run_is_charged_once_when_canceled(house: House) -> None:
    async with house.serving('desk'):
        task = await house.send('text at look')
        await house.kill({'text at look': task})
        if house.repeats:
            await house.reached('text at look', task)
        assert state_of(await house.remote.call('CancelTask', id=task['id'])) == 'CANCELED'
        assert await house.told('cancelled: ') == '1'
        await house.is_charged(1)


@slow
async def test_run_canceled_right_after_kill_is_charged(house: House) -> None:
    async with house.serving('desk'):
        task = await house.send('text at look')
        await house.kill({'text at look': task})
        assert state_of(await house.remote.call('CancelTask', id=task['id'])) == 'CANCELED'
        assert await house.told('cancelled: ') == '1'
        await house.is_charged(1)


@slow
async def test_stream_resumes_after_kill_without_repeated_text(house: House) -> None:
    prompt = 'text at text'
    async with house.serving('streams'):
        async with house.remote.stream('SendStreamingMessage', {}, message=message(prompt)) as events:
            number, first = await anext(events)
            seen = Seen(first)
            while seen.text != 'Before the gate, ':
                number, event = await anext(events)
                seen.add(event)
        await house.kill({prompt: first['task']})
        async with (
            house.remote.subscribe(first['task']['id'], Last_Event_ID=str(number)) as resumed,
            house.remote.subscribe(first['task']['id']) as anew,
        ):
            _, snapshot = await anext(anew)
            other = Seen(snapshot)
            house.open()
            async for _, event in resumed:
                seen.add(event)
            async for _, event in anew:
                other.add(event)
        done = await house.over(first['task'])
    assert [seen.text, other.text, *parts_of(done)] == ['Before the gate, and after.'] * 3


class Seen:
    """The artifacts that a client of a stream has."""

    def __init__(self, event: dict[str, Any]) -> None:
        self._artifacts = {each['artifactId']: texts_of(each) for each in event['task'].get('artifacts', ())}

    def add(self, event: dict[str, Any]) -> None:
        if (update := event.get('artifactUpdate')) is not None:
            name, text = update['artifact']['artifactId'], texts_of(update['artifact'])
            self._artifacts[name] = self._artifacts.get(name, '') * update.get('append', False) + text

    @property
    def text(self) -> str:
        return ' | '.join(self._artifacts.values())


def texts_of(artifact: dict[str, Any]) -> str:
    return ''.join(part['text'] for part in artifact['parts'])


# --- servers that agents call -----------------------------------------------------------------------------------------


@slow
async def test_only_interrupted_mcp_stdio_call_is_repeated(house: House) -> None:
    async with house.serving('mcp'):
        tasks = {prompt: await house.send(prompt) for prompt in ('text at look', 'text at model-2')}
        await house.kill(tasks)
        house.open()
        for task in tasks.values():
            assert parts_of(await house.over(task)) == ['text + seen']
    assert house.ledger['look for text at model-2'] == 1


@slow
async def test_remote_agent_runs_approved_call_once(house: House) -> None:
    def approved(task: dict[str, Any]) -> dict[str, Any]:
        return answers(task, approve(asked(task)[0]['id']))

    async with house.serving('remote'):
        points = ('look', 'answer', 'delete there', 'model-3')
        sent = {point: await house.send(f'text at {point}') for point in points}
        for point in ('delete there', 'model-3'):
            await house.give(approved(await house.over(sent[point])))
        await house.over(sent['answer'])
        await house.kill({f'text at {point}': sent[point] for point in ('look', 'delete there', 'model-3')})
        house.open()
        for point in ('look', 'answer'):
            await house.give(approved(await house.over(sent[point])))
        for point, task in sent.items():
            assert (point, parts_of(await house.over(task))) == (point, ['text + seen + text + nothing there'])
            assert (point, house.ledger[f'delete there for text at {point}']) == (point, 1)
