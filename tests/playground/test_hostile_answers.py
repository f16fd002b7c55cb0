"""Nothing that an agent says keeps the page from showing it: very long, very deep, or slow to draw."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from playwright.async_api import expect
from pydantic_ai import Agent, BinaryContent, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, FunctionModel

from pydantic_ai_a2a import to_a2a

from ..cases import each_case
from .agents import agent_with_question, prompt, scripted, tool_call
from .conftest import Visit, send_message

END = '\n\nThe end.'
ANSWERS: Mapping[str, str] = {
    'quotes': '>' * 12_000,
    'lists': '- ' * 6_000 + 'a',
    'numbers': '1. ' * 4_000,
    'emphasis': '**a *b ' * 1_700,
    'open emphasis': '*a_ ' * 20_000,
    'struck out': '~a ~~b ' * 10_000,
    'links': '[a](' * 20_000,
    'exclamations': '!' * 80_000,
    'nested items': '- ' * 1_000_000 + 'a',
    'open tags': '<b>a\n\n' * 16_000,
    'cells': f'{"|a" * 16_000}|\n{"|-" * 16_000}|\n{"|" * 8_000}'.replace('||', '|\n|\n'),
    'lines': 'a\n' * 1_000_000,
    'one line': 'a' * 2_000_000,
    'accents': f'e{chr(0x301) * 80_000}',
    'code': f'```python\n{"f(" * 1_900}\n```',
    'code blocks': '```\na\n```\n' * 2_000,
}


def full_answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(ANSWERS[prompt(messages)] + END)])


async def streamed_answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    answer = ANSWERS[prompt(messages)] + END
    size = len(answer) // 8
    for start in range(0, len(answer), size):
        yield answer[start : start + size]


@each_case('name', [*ANSWERS])
async def test_extreme_answer_is_shown_completely(open_playground: Visit, name: str) -> None:
    page = await open_playground(to_a2a(Agent(FunctionModel(full_answer, stream_function=streamed_answer))))
    await send_message(page, name)
    log = page.get_by_role('log')
    await expect(log.get_by_text('The end.').last).to_be_attached()
    await expect(page.get_by_role('status').get_by_text('completed')).to_have_count(1)
    length = await log.evaluate('(log) => log.textContent.length')
    assert length > len(ANSWERS[name]) or name == 'code blocks'
    assert await page.evaluate('1 + 1') == 2


DEEP = 80
NESTED = f'{{"deep": {"[" * DEEP}738529527931269425{"]" * DEEP}, "toString": 1}}'


async def test_deep_and_large_data_is_shown(open_playground: Visit) -> None:
    wide = json.dumps({str(n): n for n in range(3_000)})
    script = {
        'Deep.': [tool_call('final_result', f'{{"response": {NESTED}}}')],
        'Wide.': [tool_call('final_result', f'{{"response": {wide}}}')],
        'Think.': [{0: DeltaThinkingPart(content='>' * 1_000_000)}, 'The end of thinking.'],
        'Call.': [tool_call('keep', NESTED)],
        'Approve.': [tool_call('approve', NESTED)],
    }
    keep = Tool[None].from_schema(repeat, 'keep', 'Keep it.', {'type': 'object'})
    approve = Tool[None].from_schema(repeat, 'approve', 'Keep it.', {'type': 'object'})
    approve.requires_approval = True
    agent = scripted(script, 'The end of the call.', output_type=[str, dict[str, Any]], tools=[keep, approve])
    page = await open_playground(to_a2a(agent, description='# ' * 50_000))
    log = page.get_by_role('log')
    await send_message(page, 'Deep.')
    await expect(log.get_by_text('738529527931269425').first).to_be_attached()
    await send_message(page, 'Wide.')
    await expect(log.get_by_text('"2999": 2999').first).to_be_attached()
    await send_message(page, 'Think.')
    await expect(log.get_by_text('The end of thinking.').first).to_be_attached()
    await send_message(page, 'Call.')
    await expect(log.get_by_text('The end of the call.').first).to_be_attached()
    await send_message(page, 'Approve.')
    form = page.get_by_role('form', name='Approval: approve')
    await expect(form.get_by_label('deep (JSON)')).to_have_value(re.compile('738529527931269425'))
    await form.get_by_role('button', name='Approve').click()
    await expect(log.get_by_text('The end of the call.')).to_have_count(2)


def repeat(**args: Any) -> dict[str, Any]:
    return args


MANY = {'type': 'object', 'properties': {f'm{n}': {'$ref': '#/$defs/many'} for n in range(40)}}
SELF = {'anyOf': [{'$ref': '#/$defs/self'}, {'type': 'null'}]}
SCHEMAS: Mapping[str, Any] = {
    'many': {'type': 'object', 'properties': {'one': {'$ref': '#/$defs/many'}}, '$defs': {'many': MANY}},
    'self': {'type': 'object', 'properties': {'one': SELF}, '$defs': {'self': SELF}},
    'list': {
        'type': 'object',
        'properties': {'one': {'$ref': '#/$defs/list'}},
        '$defs': {'list': {'type': 'array', 'items': {'$ref': '#/$defs/list'}}},
    },
    'odd': {'type': 'object', 'properties': {'one': {'type': 'array', 'items': True}, 'constructor': {}}},
}


@each_case('name', [*SCHEMAS])
async def test_recursive_schema_has_form(open_playground: Visit, name: str) -> None:
    page = await open_playground(to_a2a(agent_with_question(SCHEMAS[name], 'The end.')))
    await send_message(page, 'Ask.')
    form = page.get_by_role('form', name='Question: ask')
    await expect(form.locator('textarea, button.add').first).to_be_attached()
    assert await form.locator('input, textarea').count() < 500
    await form.get_by_role('button', name='Answer').click()
    await expect(page.get_by_text('The end.')).to_have_count(1)


async def test_files_with_long_names_are_shown(open_playground: Visit) -> None:
    def draw(count: int) -> list[BinaryContent]:
        """Draw files."""
        name = f'{chr(0x301) * 50_000}.bin'
        return [BinaryContent(b'a', media_type='application/octet-stream', identifier=f'{n}{name}') for n in range(3)]

    page = await open_playground(to_a2a(Agent('test', output_type=draw)))
    await send_message(page, 'Draw.')
    await expect(page.get_by_role('log').get_by_role('button', name='.bin')).to_have_count(3)
    await expect(page.get_by_role('status').get_by_text('completed')).to_have_count(1)
