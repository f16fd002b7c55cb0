"""A LangGraph graph with four nodes of a second each, which writes each node into a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

FOLDER = Path(__file__).parent


def note(line: str) -> None:
    with (FOLDER / 'steps').open('a') as file:
        file.write(f'{line}\n')


def node(step: int) -> Any:
    async def run(state: MessagesState) -> dict[str, Any]:
        content: Any = state['messages'][0].content
        text = content if isinstance(content, str) else content[0]['text']
        if text == 'approve':
            interrupt('May I book?')
        note(f'{text} {step}')
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            note(f'{text} stopped')
            raise
        if step < 4:
            return {}
        note(f'{text} ended')
        return {'messages': [AIMessage('done')]}

    return run


builder = StateGraph(MessagesState)
for step in range(1, 5):
    builder.add_node(f'step {step}', node(step))
    builder.add_edge(START if step == 1 else f'step {step - 1}', f'step {step}')
builder.add_edge('step 4', END)
graph = builder.compile()
