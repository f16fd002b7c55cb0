"""Apps that several processes serve over gRPC. This module runs in the servers' processes."""

from __future__ import annotations

from starlette.applications import Starlette

from pydantic_ai_a2a import BearerAuth, Progress, Results, Retention, Workers, mount, run, to_a2a

from ..bounds import LOGS
from .apps import puppet
from .gates import ROUTES

TOKEN = 'the-token-of-ann-1234'
FILE = 'sqlite:///agent.db'


resumed = to_a2a(
    puppet,
    routes=ROUTES,
    backend=FILE,
    results=Results(stream='mark', interval=0, progress=Progress(notes=True)),
    retention=Retention(events=LOGS),
    workers=Workers(drain_grace=0.2),
)

two = Starlette()
mount(two, '/a', to_a2a(puppet, name='a'))
mount(two, '/b', to_a2a(puppet, name='b'))

if __name__ == '__main__':
    run(
        to_a2a(puppet, auth=BearerAuth({TOKEN: 'ann'})),
        port=0,
        grpc_port=0,
        ssl_certfile='server.crt',
        ssl_keyfile='server.key',
        ssl_ca_certs='authority.pem',
        ssl_cert_reqs=2,
    )
