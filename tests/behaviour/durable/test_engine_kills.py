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
from ...engines import lose_activities, skip_without_dbos
from ..durable_processes import ServerClient, kill, poll_until, server_process
from ..pending_calls import answer_message, approve, pending_calls

APP = 'tests.behaviour.durable_kills:app'
PACKAGES = ('pydantic_ai.durable_exec.dbos', 'pydantic_ai.durable_exec.temporal')
KILLED = [('dbos', 'server'), ('temporal', 'server'), ('temporal', 'worker'), ('temporal', 'both')]
"""Engines, and whose processes are killed. At DBOS, the server runs the workflow."""
DBOS, TEMPORAL_SERVER, TEMPORAL_WORKER, TEMPORAL_BOTH = KILLED


def killing(*cases: Any) -> pytest.MarkDecorator:
    """Run a test with these of `KILLED` alone."""
    return pytest.mark.parametrize('killed_app', cases, indirect=True, ids=' '.join)


class KilledApp:
    """A server of an app of `durable_kills`, and at Temporal a worker."""

    def __init__(self, folder: Path, engine: str, killed: str, temporal: str) -> None:
        self.remote: ServerClient
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
                other = self._stack.enter_context(server_process('tests.behaviour.durable_kills:remote_app', env=env))
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

        await poll_until(found)
        return read

    async def reached(self, prompt: str, task: dict[str, Any]) -> None:
        """Wait until a task waits at the gate of its prompt."""
        file = self._folder / f'{prompt}.reached'

        async def reached() -> bool:
            if not file.exists():
                now = await self.remote.call('GetTask', id=task['id'])
                assert state_of(now) != 'FAILED', self.remote.server.output
            return file.exists()

        await poll_until(reached)
        file.unlink()

    async def told(self, beginning: str) -> str:
        """What a hook notes after these words."""

        async def noted() -> bool:
            return any(line.startswith(beginning) for line in self.ledger)

        await poll_until(noted)
        [told] = (line.removeprefix(beginning) for line in self.ledger.elements() if line.startswith(beginning))
        return told

    async def noted(self, line: str, *, times: int) -> None:
        """Wait until a hook has noted a line so many times."""

        async def is_noted() -> bool:
            return self.ledger[line] == times

        await poll_until(is_noted)

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
        """Wait for charges, which are stored after their tasks if a cancel did not wait for its run."""

        async def charged() -> bool:
            return await self.charged() >= requests

        await poll_until(charged)
        assert await self.charged() == requests

    def _start(self, *, server: bool, worker: bool) -> None:
        if worker:
            command = ('-m', 'pydantic_ai_a2a', 'worker', '--engine', APP)
            self._worker = self._stack.enter_context(process(*command, env=self._env, packages=PACKAGES))
            self._worker.wait_for('the worker runs the workflows of')
        if server:
            self.remote = self._stack.enter_context(server_process(APP, env=self._env, packages=PACKAGES))


@pytest.fixture(params=KILLED, ids=' '.join)
def killed_app(request: pytest.FixtureRequest, tmp_path: Path) -> KilledApp:
    engine, killed = request.param
    if engine == 'dbos':
        skip_without_dbos()
    return KilledApp(tmp_path, engine, killed, '' if engine == 'dbos' else request.getfixturevalue('temporal'))


# --- how runs end -----------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """How a task ends."""

    parts: Sequence[Any]
    """The answer, and the files of tools before it."""
    output: str = ''
    """What `on_complete` gets."""
    failure: str | None = None


PICTURE = {'raw': b64encode(b'picture').decode(), 'mediaType': 'image/png'}
PDF = {'raw': b64encode(b'a file').decode(), 'mediaType': 'application/pdf', 'filename': 'a.pdf'}
OUTCOMES = {
    'text': Outcome(['text + seen'], "'text + seen'"),
    'validated': Outcome([('Offer', {'priceCents': 701})], 'Offer(price_cents=701)'),
    'union': Outcome([('Refused', {'cents': 7})], 'Refused(cents=7)'),
    'deps': Outcome(['deps + word 2:00:00'], "'deps + word 2:00:00'"),
    'files': Outcome([b64encode(b'picture').decode(), 'a file', b64encode(b'picture').decode()], "'a file'"),
    'content filter': Outcome([], failure='refused-content'),
    'usage limit': Outcome([], failure='usage-limit'),
    'bad output': Outcome([], failure='bad-output'),
    'unknown error': Outcome([], failure='internal'),
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


async def test_killed_run_has_same_result_and_charge(killed_app: KilledApp) -> None:
    points = ('look', 'model-2')
    promises = {f'{kind} at {point}': promise for kind, promise in OUTCOMES.items() for point in points}
    promises['text at hook'] = OUTCOMES['text']
    async with killed_app.serving('desk'):
        tasks = {
            prompt: await killed_app.send(prompt, *([PDF] if prompt.startswith('files') else [])) for prompt in promises
        }
        await killed_app.kill(tasks)
        killed_app.open()
        for prompt, (parts, output, failure) in promises.items():
            done = await killed_app.over(tasks[prompt])
            heard = AS_JSON.get(output, output) if killed_app.at_temporal else output
            of_hook = f'completed {prompt}: ' if failure is None else f'failed {done["id"]}: '
            assert (prompt, parts_of(done), await killed_app.told(of_hook)) == (prompt, parts, failure or heard)
            assert failure == done['status'].get('message', {}).get('metadata', {}).get('failure')
            if not prompt.endswith('look'):
                assert killed_app.ledger[f'look for {prompt}'] == 1  # was complete
        # Each run is charged once: a request for `look`, and another one for the answer.
        assert await killed_app.charged() == sum(2 if promise.failure is None else 1 for promise in promises.values())


@killing(DBOS, TEMPORAL_BOTH)
async def test_approved_calls_run_once_and_denied_never(killed_app: KilledApp) -> None:
    def decided(task: dict[str, Any]) -> dict[str, Any]:
        first, second = (call['id'] for call in pending_calls(task))
        return answer_message(task, approve(first), {'id': second, 'decision': 'deny'})

    async with killed_app.serving('desk'):
        sent = {
            point: await killed_app.send(f'approval at {point}') for point in ('look', 'answer', 'delete', 'model-3')
        }
        waiting = {point: await killed_app.over(sent[point]) for point in ('answer', 'delete', 'model-3')}
        for point in ('delete', 'model-3'):
            await killed_app.give(decided(waiting[point]))
        await killed_app.kill({f'approval at {point}': sent[point] for point in ('look', 'delete', 'model-3')})
        killed_app.open()
        for point in ('look', 'answer'):
            await killed_app.give(decided(await killed_app.over(sent[point])))
        for point, task in sent.items():
            done = await killed_app.over(task)
            assert (point, state_of(done), parts_of(done)) == (
                point,
                'COMPLETED',
                ['approval + seen + no a + The tool call was denied.'],
            )
            assert (point, killed_app.ledger[f'delete a for approval at {point}']) == (point, 1)
            assert (point, killed_app.ledger[f'delete b for approval at {point}']) == (point, 0)


# --- what clients send ------------------------------------------------------------------------------------------------


@killing(DBOS, TEMPORAL_SERVER, TEMPORAL_WORKER)
async def test_message_to_killed_run_reaches_model_once(killed_app: KilledApp) -> None:
    async with killed_app.serving('desk'):
        task = await killed_app.send('text at look')
        await killed_app.send('more', taskId=task['id'], contextId=task['contextId'])
        await killed_app.kill({'text at look': task})
        killed_app.open()
        assert parts_of(await killed_app.over(task)) == ['text + seen', 'text + more + seen']
    assert killed_app.ledger['model-1 for text at look'] == 1


async def test_run_canceled_after_kill_is_charged_once(killed_app: KilledApp) -> None:
    """One run is cancelled right after the kill, and one when it goes on."""
    async with killed_app.serving('desk'):
        tasks = {prompt: await killed_app.send(prompt) for prompt in ('text at look', 'deps at look')}
        await killed_app.kill(tasks)
        for prompt, task in tasks.items():
            if prompt == 'deps at look' and killed_app.repeats:
                await killed_app.reached(prompt, task)
            assert state_of(await killed_app.remote.call('CancelTask', id=task['id'])) == 'CANCELED'
        await killed_app.noted('cancelled: 1', times=2)
        await killed_app.is_charged(2)


@killing(DBOS, TEMPORAL_SERVER, TEMPORAL_WORKER)
async def test_stream_resumes_after_kill_without_repeated_text(killed_app: KilledApp) -> None:
    prompt = 'text at text'
    async with killed_app.serving('streams'):
        async with killed_app.remote.stream('SendStreamingMessage', {}, message=message(prompt)) as events:
            number, first = await anext(events)
            seen = Seen(first)
            while seen.text != 'Before the gate, ':
                number, event = await anext(events)
                seen.add(event)
        await killed_app.kill({prompt: first['task']})
        async with (
            killed_app.remote.subscribe(first['task']['id'], Last_Event_ID=str(number)) as resumed,
            killed_app.remote.subscribe(first['task']['id']) as anew,
        ):
            _, snapshot = await anext(anew)
            other = Seen(snapshot)
            killed_app.open()
            async for _, event in resumed:
                seen.add(event)
            async for _, event in anew:
                other.add(event)
        done = await killed_app.over(first['task'])
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


@killing(DBOS, TEMPORAL_WORKER)
async def test_only_interrupted_mcp_stdio_call_is_repeated(killed_app: KilledApp) -> None:
    async with killed_app.serving('mcp'):
        tasks = {prompt: await killed_app.send(prompt) for prompt in ('text at look', 'text at model-2')}
        await killed_app.kill(tasks)
        killed_app.open()
        for task in tasks.values():
            assert parts_of(await killed_app.over(task)) == ['text + seen']
    assert killed_app.ledger['look for text at model-2'] == 1


@killing(DBOS, TEMPORAL_BOTH)
async def test_remote_agent_runs_approved_call_once(killed_app: KilledApp) -> None:
    def approved(task: dict[str, Any]) -> dict[str, Any]:
        return answer_message(task, approve(pending_calls(task)[0]['id']))

    async with killed_app.serving('remote'):
        points = ('look', 'answer', 'delete there', 'model-3')
        sent = {point: await killed_app.send(f'text at {point}') for point in points}
        for point in ('delete there', 'model-3'):
            await killed_app.give(approved(await killed_app.over(sent[point])))
        await killed_app.over(sent['answer'])
        await killed_app.kill({f'text at {point}': sent[point] for point in ('look', 'delete there', 'model-3')})
        killed_app.open()
        for point in ('look', 'answer'):
            await killed_app.give(approved(await killed_app.over(sent[point])))
        for point, task in sent.items():
            assert (point, parts_of(await killed_app.over(task))) == (point, ['text + seen + text + nothing there'])
            assert (point, killed_app.ledger[f'delete there for text at {point}']) == (point, 1)
