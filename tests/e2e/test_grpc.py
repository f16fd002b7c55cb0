"""gRPC of real servers: several processes, shutdown, TLS of `run`, and the command line."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import grpc
import httpx
import pytest
from a2a.types import GetTaskRequest, SubscribeToTaskRequest, TaskState

from ..reserved_ports import port_of, reserved_port
from ..server.grpc.certificates import LOCAL, Authority
from ..server.grpc.grpc_client import GrpcAgent as Peer
from ..server.grpc.grpc_client import event_id, text_of
from ..server.grpc.grpc_client import send_request as message
from .grpc_apps import TOKEN
from .server import LIMIT, ROOT, Gates, Process, process

SERVE = ('-m', 'pydantic_ai_a2a', 'serve', '--app-dir', str(ROOT))


def address_of(server: Process) -> str:
    return server.wait_for(r'gRPC running on (\S+)')[1]


@pytest.mark.skipif(not hasattr(socket, 'SO_REUSEPORT'), reason='the kernel does not share ports')
async def test_uvicorn_workers_share_grpc_port_and_store(tmp_path: Path) -> None:
    options = ('tests.e2e.grpc_workers_app:app', '--app-dir', str(ROOT), '--workers', '2', '--port', '0')
    with reserved_port(socket.SO_REUSEPORT) as reserved, ExitStack() as stack:
        port = port_of(reserved)
        env = {'GRPC_PORT': str(port)}
        server = stack.enter_context(process('-m', 'uvicorn', *options, cwd=tmp_path, env=env, fork=False))
        server.wait_for(r'(?s)(Application startup complete.*){2}')
        told: set[str] = set()
        async with asyncio.timeout(LIMIT):
            while len(told) < 2:  # the kernel shares out connections, not calls
                options = [('grpc.use_local_subchannel_pool', 1)]
                async with grpc.aio.insecure_channel(f'127.0.0.1:{port}', options=options) as channel:
                    task = (await Peer(channel).call('SendMessage', message())).task
                    assert await Peer(channel).call('GetTask', GetTaskRequest(id=task.id)) == task
                told.add(text_of(task))
    assert len(told) == 2


async def test_stream_of_stopped_process_resumes_in_next_process(tmp_path: Path) -> None:
    serve = (*SERVE, 'tests.e2e.grpc_apps:resumed', '--port', '0', '--grpc-port', '0')
    with process(*serve, cwd=tmp_path) as first, process(*serve, '--no-worker', cwd=tmp_path) as second:
        async with grpc.aio.insecure_channel(address_of(first)) as channel:
            stream = Peer(channel).stream('SendStreamingMessage', message('wait open'))
            task = (await stream.next()).task
            await Gates(first.url).reached('open')
            first.signal(signal.SIGTERM)
            events = await stream.rest()
            assert (await stream.call.code()).name == 'OK'
        assert await first.ended() == -signal.SIGTERM
        async with grpc.aio.insecure_channel(address_of(second)) as channel:
            after = [('last-event-id', str(event_id(events[-1])))]
            request = SubscribeToTaskRequest(id=task.id)
            resumed = Peer(channel).stream('SubscribeToTask', request, metadata=after)
            with process(*serve, cwd=tmp_path) as third:
                await Gates(third.url).open('open')
                rest = await resumed.rest()
    assert [event_id(event) for event in rest] == [*range(event_id(events[-1]) + 1, event_id(rest[-1]) + 1)]
    assert TaskState.Name(rest[-1].status_update.status.state) == 'TASK_STATE_COMPLETED'


async def test_run_uses_same_certificate_for_grpc(tmp_path: Path) -> None:
    authority = Authority(tmp_path, 'authority')
    authority.sign('server', *LOCAL)
    own = authority.sign('ann')
    env = {'PYTHONPATH': str(ROOT)}
    with process('-m', 'tests.e2e.grpc_apps', cwd=tmp_path, env=env, fork=False) as server:
        url = server.wait_for(r'Uvicorn running on (\S+)')[1].replace('http:', 'https:')
        context = ssl.create_default_context(cafile=str(authority.file))
        context.load_cert_chain(own.certificate, own.key)
        async with httpx.AsyncClient(verify=context, timeout=LIMIT) as http:
            card = (await http.get(f'{url}.well-known/agent-card.json')).json()
        pair = own.key.read_bytes(), own.certificate.read_bytes()
        credentials = grpc.ssl_channel_credentials(authority.file.read_bytes(), *pair)
        async with grpc.aio.secure_channel(address_of(server), credentials) as channel:
            task = (await Peer(channel).call('SendMessage', message('say hello'), metadata=BEARER)).task
            nobody = await Peer(channel).refused('GetTask', GetTaskRequest(id=task.id))
    assert [each['url'] for each in card['supportedInterfaces'] if each['protocolBinding'] == 'GRPC'] == [
        address_of(server)
    ]
    assert (text_of(task), nobody.code) == ('hello ', 'UNAUTHENTICATED')


BEARER = [('authorization', f'Bearer {TOKEN}')]


async def test_serve_command_refuses_several_agents_over_grpc(tmp_path: Path) -> None:
    with process(*SERVE, 'tests.e2e.grpc_apps:two', '--port', '0', '--grpc-port', '0', cwd=tmp_path) as server:
        assert await server.ended() == 2
        assert 'gRPC serves one agent on a port, and several apps of to_a2a() can be found' in server.output


async def test_serve_command_exits_if_port_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with process(*SERVE, 'tests.e2e.grpc_apps:resumed', '--port', '0', '--grpc-port', port, cwd=tmp_path) as server:
            assert await server.ended() == 1
            assert f'Error: Cannot listen on 127.0.0.1 port {port} for gRPC. Choose another port' in server.output
