"""The table of operations."""

from __future__ import annotations

import re
from typing import Any, get_type_hints

from a2a.types import a2a_pb2
from google.api import annotations_pb2
from inline_snapshot import snapshot

from pydantic_ai_a2a.server.service.service import Service
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS


def test_operations_match_the_a2a_proto() -> None:
    service = a2a_pb2.DESCRIPTOR.services_by_name['A2AService']

    assert set(OPERATIONS) == {method.name for method in service.methods}
    assert {name for name, operation in OPERATIONS.items() if operation.name != name} == set()


def test_streaming_operations_match_the_a2a_proto() -> None:
    service = a2a_pb2.DESCRIPTOR.services_by_name['A2AService']

    assert {name for name, operation in OPERATIONS.items() if operation.stream} == {
        method.name for method in service.methods if method.server_streaming
    }


def _path(template: str) -> str:
    """`/tasks/{id=*}:cancel` as `/tasks/{}:cancel`."""
    return re.sub(r'{[^}]*}', '{}', template)


def test_every_proto_http_route_is_served() -> None:
    for method in a2a_pb2.DESCRIPTOR.services_by_name['A2AService'].methods:
        options: Any = method.GetOptions()
        rule: Any = options.Extensions[annotations_pb2.http]
        verb: str = rule.WhichOneof('pattern')
        expected = (verb.upper(), _path(getattr(rule, verb)))
        assert expected in [(verb, _path(path)) for verb, path in OPERATIONS[method.name].http]


def test_http_routes_are_unique() -> None:
    routes = [(verb, _path(path)) for operation in OPERATIONS.values() for verb, path in operation.http]
    assert len(set(routes)) == len(routes) == 12


def test_each_task_operation_has_its_own_service_method() -> None:
    assert [operation.service for operation in OPERATIONS.values()] == snapshot(
        [
            'send_message',
            'stream_message',
            'get_task',
            'list_tasks',
            'cancel_task',
            'subscribe_to_task',
            'create_push_config',
            'get_push_config',
            'list_push_configs',
            'delete_push_config',
            '',
        ]
    )


def test_service_methods_take_params_of_their_operation() -> None:
    rows = {operation.service: operation.params for operation in OPERATIONS.values() if operation.service}

    assert {name: get_type_hints(getattr(Service, name))['params'] for name in rows} == rows


def test_all_operations_but_streams_and_card_encode_result() -> None:
    assert {name for name, operation in OPERATIONS.items() if operation.write is None} == {
        'SendStreamingMessage',
        'SubscribeToTask',
        'GetExtendedAgentCard',
    }
