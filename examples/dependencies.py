"""An agent whose tools have a database session of their run, and see the orders of its caller only.

Run it from this directory with `uvicorn dependencies:app`; tokens are `ann-ann-ann-ann-ann` and `bob-bob-bob-bob-bob`.
The model needs no API key: it orders what the prompt says, or fails if that is `nothing`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_a2a import BearerAuth, CallContext, Messages, to_a2a

DATABASE = 'file:orders?mode=memory&cache=shared'
database = sqlite3.connect(DATABASE, uri=True)  # which is there as long as this is open
database.execute('CREATE TABLE purchase (customer TEXT, what TEXT, currency TEXT)')


@dataclass
class Shop:
    """What the tools of one run have."""

    session: sqlite3.Connection
    customer: str
    currency: str


def obey(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands in for a model."""
    parts = [part for message in messages for part in message.parts]
    if isinstance(last := parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart(str(last.content))])
    prompt = [str(part.content) for part in parts if isinstance(part, UserPromptPart)][-1]
    return ModelResponse(parts=[ToolCallPart('order', {'what': prompt})])


agent = Agent(FunctionModel(obey), name='Shop', description='Takes orders.', deps_type=Shop)


@agent.tool
async def order(ctx: RunContext[Shop], what: str) -> str:
    """Order something; all that was ordered."""
    shop = ctx.deps
    shop.session.execute('INSERT INTO purchase VALUES (?, ?, ?)', (shop.customer, what, shop.currency))
    if what == 'nothing':
        raise ValueError('There is nothing to be ordered.')
    rows = shop.session.execute('SELECT what, currency FROM purchase WHERE customer = ?', (shop.customer,))
    return ', '.join(f'{what} in {currency}' for what, currency in rows)


@asynccontextmanager
async def open_shop(call: CallContext) -> AsyncGenerator[Shop]:
    """A session for one run: what it has written stays only if the run ends well."""
    session = sqlite3.connect(DATABASE, uri=True)
    try:
        yield Shop(session, call.caller.id, call.headers.get('x-currency', 'EUR'))
        session.commit()
    finally:
        session.close()


app = to_a2a(
    agent,
    auth=BearerAuth({'ann-ann-ann-ann-ann': 'ann', 'bob-bob-bob-bob-bob': 'bob'}),
    deps_factory=open_shop,
    messages=Messages(deps_headers=['X-Currency']),
)
