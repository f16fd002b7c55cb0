"""The official client with extended cards, tenants, the run metadata and answers that are messages."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from a2a.client import ClientCallContext
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.types import GetExtendedAgentCardRequest, GetTaskRequest, ListTasksRequest, Role
from a2a.utils import errors
from google.protobuf.json_format import MessageToDict

from pydantic_ai_a2a.protocol.fields import RUN_METADATA_URI

from .auth_apps import TOKEN
from .official import BINDINGS, collect, official_client, over, say, serving, task_of


@pytest.fixture(params=BINDINGS, autouse=True)
def binding(request: pytest.FixtureRequest) -> Generator[str]:
    with over(request.param):
        yield request.param


async def test_the_client_fetches_the_extended_card() -> None:
    context = ClientCallContext(service_parameters={'authorization': f'Bearer {TOKEN}'})
    with serving('tests.e2e.auth_apps:extended') as server:
        async with official_client(server.url) as client:
            card = await client.get_extended_agent_card(GetExtendedAgentCardRequest(), context=context)
    assert card.description == 'More.'


async def test_the_client_reaches_the_tenant_that_a_card_names(binding: str) -> None:
    with serving('tests.e2e.auth_apps:tenants') as server:
        async with (
            official_client(f'{server.url}acme/', streaming=False) as acme,
            official_client(f'{server.url}umbrella/', streaming=False) as umbrella,
            official_client(server.url, streaming=False) as plain,
        ):
            task = await task_of(acme.send_message(say('hello')))
            assert await acme.get_task(GetTaskRequest(id=task.id)) == task
            assert (await acme.list_tasks(ListTasksRequest())).total_size == 1
            for other in (umbrella, plain):
                with pytest.raises(errors.TaskNotFoundError):
                    await other.get_task(GetTaskRequest(id=task.id))
                assert (await other.list_tasks(ListTasksRequest())).total_size == 0


@pytest.mark.parametrize('streaming', [False, True])
async def test_the_client_reads_an_answer_that_is_a_message(streaming: bool) -> None:
    with serving('tests.e2e.auth_apps:messages') as server:
        async with official_client(server.url, streaming=streaming) as client:
            [answer] = await collect(client.send_message(say('hello')))
            assert (await client.list_tasks(ListTasksRequest())).total_size == 0
    assert (answer.message.role, answer.message.parts[0].text) == (Role.ROLE_AGENT, 'success (no tool calls)')
    assert answer.message.context_id
    assert not answer.message.task_id


async def test_the_client_activates_the_run_metadata() -> None:
    with serving('tests.e2e.auth_apps:tenants') as server:
        async with official_client(server.url, streaming=False) as client:
            parameters = ServiceParametersFactory.create([with_a2a_extensions([RUN_METADATA_URI])])
            context = ClientCallContext(service_parameters=parameters)
            task = await task_of(client.send_message(say('hello'), context=context))
            seen = await client.get_task(GetTaskRequest(id=task.id))
    assert MessageToDict(seen.metadata)[RUN_METADATA_URI]['usage']['requests'] == 1.0
