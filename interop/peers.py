"""Runs the servers that README compares: `python -m interop.peers` writes what a client sees into `peers.json`.

Each server gets an environment of its own below `.interop/`, runs tasks of four steps, and keeps tasks in a SQLite
file, if it can. The client sends two tasks at the same time, cancels a task, asks for a tool that needs an approval
(the SDK and a2akit have no such tools), and reads a task whose server was killed with `kill -9` in the third step and
started again. `python -m interop.peers langgraph` runs one server.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from uuid import uuid4

import httpx

HERE = Path(__file__).parent
SEEN = HERE / 'peers.json'
PORT = 8790
URL = f'http://127.0.0.1:{PORT}/'
PEERS: dict[str, tuple[list[str], bool]] = {
    'pydantic_ai_a2a': ([], True),
    'fasta2a': (['fasta2a==2.1.1', 'pydantic-ai-slim', 'uvicorn'], False),
    'a2a_sdk': (['a2a-sdk[http-server,sqlite]==1.3.0', 'uvicorn'], True),
    'a2akit': (['a2akit[sqlite]==0.0.32', 'uvicorn'], False),
    'langgraph': (['langgraph-cli[inmem]==0.4.40', 'langgraph-api==0.16.7'], True),
}
"""The packages of each server, and whether the client speaks A2A 1.0; none is the environment of this program."""


def python(name: str, packages: list[str]) -> str:
    """Return the Python with these packages."""
    if not packages:
        return sys.executable
    folder = HERE.parent / '.interop' / f'peer-{name}'
    interpreter = str(folder / 'bin' / 'python')
    if not (folder / 'made').exists():
        subprocess.run([sys.executable, '-m', 'venv', '--clear', folder], check=True)
        subprocess.run([interpreter, '-m', 'pip', 'install', '-qq', *packages], check=True)
        (folder / 'made').touch()
    return interpreter


def command(interpreter: str, name: str, folder: str) -> list[str]:
    """Return the command that serves the agent."""
    if name != 'langgraph':
        return [interpreter, str(HERE / 'servers' / 'steps.py'), name, str(PORT), folder]
    shutil.copy(HERE / 'servers' / 'steps_graph.py', folder)
    config = {'dependencies': ['.'], 'graphs': {'steps': './steps_graph.py:graph'}}
    (Path(folder) / 'langgraph.json').write_text(json.dumps(config))
    program = str(Path(interpreter).with_name('langgraph'))
    options = '--no-browser', '--no-reload', '--n-jobs-per-worker', '10'  # as deployed servers have
    return [program, 'dev', *options, '--port', str(PORT)]


@contextmanager
def served(interpreter: str, name: str, folder: str) -> Iterator[None]:
    """Serve the agent. At the end, the process is killed."""
    cwd = folder if name == 'langgraph' else HERE.parent
    with subprocess.Popen(command(interpreter, name, folder), cwd=cwd) as process:
        try:
            for _ in range(100):
                try:
                    httpx.get(f'{URL}.well-known/agent-card.json')
                    break
                except httpx.TransportError:
                    time.sleep(0.2)
            yield
        finally:
            process.kill()


def call(method: str, params: Any, *, is_new: bool) -> Any:
    """Call a method by its name of A2A 1.0."""
    old = {'SendMessage': 'message/send', 'GetTask': 'tasks/get', 'CancelTask': 'tasks/cancel'}
    body = {'jsonrpc': '2.0', 'id': '1', 'method': method if is_new else old[method], 'params': params}
    headers = {'A2A-Version': '1.0'} if is_new else {}
    return httpx.post(place(), json=body, headers={'Accept': 'application/json', **headers}, timeout=30).json()


def place() -> str:
    """Return the URL of the agent: LangGraph's agents have paths of their own."""
    found = httpx.post(f'{URL}assistants/search', json={})
    return f'{URL}a2a/{found.json()[0]["assistant_id"]}' if found.is_success else URL


def begin(message: Any) -> str:
    """Send a message, and read its stream in a thread; return the id of the task."""
    ids = Queue[str]()
    params = {'message': message}
    body = {'jsonrpc': '2.0', 'id': '1', 'method': 'SendStreamingMessage', 'params': params}

    def read() -> None:
        headers = {'A2A-Version': '1.0', 'Accept': 'text/event-stream'}
        with suppress(httpx.TransportError), httpx.stream('POST', place(), json=body, headers=headers) as response:
            for line in response.iter_lines():
                if line.startswith('data:') and (task := json.loads(line[5:])['result'].get('task')):
                    ids.put(task['id'])

    Thread(target=read, daemon=True).start()
    return ids.get(timeout=20)


def send(text: str, *, is_new: bool) -> str:
    """Send a message, and return the id of its task without waiting for its end."""
    new = {'role': 'ROLE_USER', 'parts': [{'text': text}]}
    old = {'role': 'user', 'kind': 'message', 'parts': [{'kind': 'text', 'text': text}]}
    message = {**(new if is_new else old), 'messageId': uuid4().hex}
    if place() != URL:  # LangGraph answers `SendMessage` at the end of the task
        return begin(message)
    options = {'returnImmediately': True} if is_new else {'blocking': False, 'acceptedOutputModes': ['text/plain']}
    task = call('SendMessage', {'message': message, 'configuration': options}, is_new=is_new)['result']
    return task.get('task', task)['id']


def state(task_id: str, *, is_new: bool) -> str:
    """Return the state of a task, or the error in its place."""
    answer = call('GetTask', {'id': task_id}, is_new=is_new)
    if 'error' in answer:
        return answer['error']['message']
    return answer['result']['status']['state'].removeprefix('TASK_STATE_').lower()


def seen(name: str, packages: list[str], *, is_new: bool) -> dict[str, Any]:
    """Return what a client sees of a server."""
    interpreter = python(name, packages)
    with TemporaryDirectory() as folder:
        with served(interpreter, name, folder):
            first = [send(text, is_new=is_new) for text in ('one', 'two')]
            time.sleep(6)
            at_once = [state(task, is_new=is_new) for task in first]
            noted = (Path(folder) / 'steps').read_text().split('\n')
            time.sleep(4)
            canceled = send('canceled', is_new=is_new)
            time.sleep(1.5)
            call('CancelTask', {'id': canceled}, is_new=is_new)
            time.sleep(5)
            after_cancel = state(canceled, is_new=is_new)
            approve = send('approve', is_new=is_new)
            time.sleep(4.5)
            before_approval = state(approve, is_new=is_new)
            killed = send('killed', is_new=is_new)
            time.sleep(2.5)
        with served(interpreter, name, folder):
            time.sleep(12)
            after_kill = state(killed, is_new=is_new)
        lines = (Path(folder) / 'steps').read_text().splitlines()
    return {
        'packages': packages,
        'date': datetime.now(UTC).date().isoformat(),
        'two tasks': [*at_once, 'together' if noted.index('two 1') < noted.index('one 2') else 'one after the other'],
        'canceled': [after_cancel, *(line for line in lines if line in ('canceled stopped', 'canceled ended'))],
        'approve': before_approval,
        'killed': [after_kill, *(line for line in lines if line.startswith('killed'))],
    }


def main() -> None:
    """Run the servers that the command line names, or all."""
    results = json.loads(SEEN.read_text()) if SEEN.exists() else {}
    for name in sys.argv[1:] or PEERS:
        packages, is_new = PEERS[name]
        results[name] = seen(name, packages, is_new=is_new)
        SEEN.write_text(json.dumps({name: results[name] for name in PEERS if name in results}, indent=2) + '\n')


if __name__ == '__main__':
    main()
