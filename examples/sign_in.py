"""An agent that has its user sign in elsewhere, and goes on with what it was asked once that is done.

Run it from this directory with `uvicorn sign_in:app`. The task of `read ada` is `auth-required`, and the `url` in its
data part says where to sign in: open that below http://127.0.0.1:8000, and the task goes on. The mail of others is not
read: such a task is `rejected`. The model needs no API key.
"""

from __future__ import annotations

from contextlib import suppress

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_a2a import A2AError, AuthRequired, Rejected, to_a2a
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

MAIL = {'ada': 'Lunch?'}
tokens: dict[str, str] = {}


def obey(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands in for a model."""
    if returned := [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]:
        return ModelResponse(parts=[TextPart(str(returned[-1].content))])
    *_, prompt = [
        str(part.content) for message in messages for part in message.parts if isinstance(part, UserPromptPart)
    ]
    return ModelResponse(parts=[ToolCallPart('newest_mail', {'user': prompt.removeprefix('read ')})])


agent = Agent(FunctionModel(obey), name='Mailbox', description='Reads your newest mail, once you have signed in.')


@agent.tool
def newest_mail(ctx: RunContext, user: str) -> str:
    """Read the newest mail."""
    if user not in MAIL:
        raise Rejected(f'There is no mailbox of {user}.')
    if user not in tokens:
        task_id = (ctx.metadata or {})['a2a']['task_id']
        raise AuthRequired('Please sign in.', schemes=['sso'], url=f'/sso?user={user}&task={task_id}')
    return MAIL[user]


async def signed_in(request: Request) -> PlainTextResponse:
    """Stands in for the page to which a provider sends its users back, with a token."""
    tokens[request.query_params['user']] = 'a token'
    with suppress(A2AError):  # the task may be going on already, if the page is opened again
        await app.resume_task(request.query_params['task'])
    return PlainTextResponse('Thank you. You may close this window.')


app = to_a2a(agent, routes=[Route('/sso', signed_in)])
