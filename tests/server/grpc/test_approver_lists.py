"""Lists of approvers over gRPC."""

from __future__ import annotations

from a2a.types import GetTaskRequest, ListTasksRequest, TaskState
from google.protobuf.json_format import MessageToDict

from pydantic_ai_a2a import Approvals, BearerAuth, Caller, to_a2a

from ...behaviour.pending_calls import ApprovalAgent
from .grpc_client import send_request, serving

BOSS = Caller(id='boss', scopes=frozenset({'approve'}))
KEYS = {'the-long-key-of-ann': 'ann', 'the-long-key-of-boss': BOSS}
ANN_KEY, BOSS_KEY = ([('authorization', f'Bearer {key}')] for key in KEYS)


async def test_approver_lists_foreign_tasks_over_grpc() -> None:
    app = to_a2a(ApprovalAgent().agent, auth=BearerAuth(KEYS), approvals=Approvals(approvers='approve'))
    async with serving(app) as agent:
        tasks = [
            (await agent.call('SendMessage', send_request('delete', context_id='secret'), metadata=ANN_KEY)).task
            for _ in range(2)
        ]
        wanted = ListTasksRequest(status=TaskState.TASK_STATE_INPUT_REQUIRED, page_size=1)
        page = await agent.call('ListTasks', wanted, metadata=BOSS_KEY)
        wanted.page_token = page.next_page_token
        second = await agent.call('ListTasks', wanted, metadata=BOSS_KEY)
        views = [await agent.call('GetTask', GetTaskRequest(id=task.id), metadata=BOSS_KEY) for task in tasks]
        refused = await agent.refused('ListTasks', wanted, metadata=ANN_KEY)
    assert [*second.tasks, *page.tasks] == views
    assert (page.total_size, second.total_size, second.next_page_token) == (2, 2, '')
    assert [view.context_id for view in views] == [task.id for task in tasks]
    assert 'secret' not in str(MessageToDict(page))
    assert refused.code == 'INVALID_ARGUMENT'
