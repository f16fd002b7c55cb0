"""People decide about the values that run: no form and no table of the playground changes a value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from playwright.async_api import Locator, Page, expect
from pydantic import AwareDatetime, BaseModel, Field
from pydantic_ai import Agent, RunContext
from typing_extensions import TypedDict

from pydantic_ai_a2a import Approvals, InputRequired, Messages, a2a, to_a2a

from ..cases import each_case
from .agents import agent_with_approval, scripted, tool_call
from .conftest import Visit, send_message

STRING = {'type': 'string'}
NUMBER = {'type': 'number'}
INTEGER = {'type': 'integer'}
NONE = {'type': 'null'}
DECIMAL = {'anyOf': [NUMBER, STRING]}
VALUES: Mapping[str, tuple[str, Any]] = {
    'large': ('738529527931269425', INTEGER),
    'huge': ('123456789012345678901234567890', INTEGER),
    'zero': ('-0.0', NUMBER),
    'whole': ('1.0', NUMBER),
    'tiny': ('5e-324', NUMBER),
    'most': ('1.7976931348623157e308', NUMBER),
    'round': ('100000000000000000000000.0', NUMBER),
    'price': ('"0.1000000000000000055"', DECIMAL),
    'cost': ('12.50', DECIMAL),
    'either': ('"5"', {'anyOf': [INTEGER, STRING]}),
    'other': ('5', {'anyOf': [INTEGER, STRING]}),
    'command': (r'"echo cleaning\nrm -rf build"', STRING),
    'windows': (r'"a\r\nb\rc\r\n"', STRING),
    'blanks': (r'"\t a  "', STRING),
    'empty': ('""', STRING),
    'essay': (f'"{"word " * 40}"', STRING),
    'hidden': (r'"a\u202eb\u0007\u200bc\u2028d"', STRING),
    'family': ('"👩‍👩‍👧 é"', STRING),
    'accents': (f'"e{chr(0x301) * 300}"', STRING),
    'quoted': (r'"\"\\\""', STRING),
    'moment': ('"2026-05-15T12:30:00.123456+02:00"', {'type': 'string', 'format': 'date-time'}),
    'local': ('"2026-05-15T12:30"', {'type': 'string', 'format': 'date-time'}),
    'day': ('"2026-05-15"', {'type': 'string', 'format': 'date'}),
    'clock': ('"12:30:00Z"', {'type': 'string', 'format': 'time'}),
    'mail': ('" ada@exämple.com "', {'type': 'string', 'format': 'email'}),
    'nothing': ('null', {'anyOf': [STRING, NONE], 'default': 'all'}),
    'unknown': ('null', {'anyOf': [INTEGER, NONE]}),
    'maybe': ('null', {'anyOf': [{'type': 'boolean'}, NONE], 'default': True}),
    'home': ('null', {'anyOf': [{'type': 'object', 'properties': {'street': STRING}, 'required': ['street']}, NONE]}),
    'flag': ('false', {'type': 'boolean', 'default': True}),
    'kind': ('2.0', {'enum': ['a', 2.0, None]}),
    'fixed': ('"x"', {'const': 'x'}),
    'gaps': ('[1,null,2]', {'type': 'array', 'items': {'anyOf': [INTEGER, NONE]}}),
    'names': (r'["a, b","","c\nd"]', {'type': 'array', 'items': STRING}),
    'pair': ('[1.0,"a"]', {'type': 'array', 'prefixItems': [NUMBER, STRING]}),
    'rows': ('[{"id":1.0,"b":null},{}]', {'type': 'array', 'items': {'type': 'object', 'properties': {'id': NUMBER}}}),
    'ordered': ('{"10":1,"b":2,"2":3,"__proto__":4,"constructor":5}', {'type': 'object'}),
    'scores': ('{"10":1.0,"2":2.0}', {'type': 'object', 'additionalProperties': NUMBER}),
    'nested': (
        '{"more":{"a":[{"b":{"c":[1.0,{"d":null}]}}]},"name":"a\\nb"}',
        {'type': 'object', 'properties': {'name': STRING, 'left_out': {**STRING, 'default': 'x'}, 'off': {}}},
    ),
    'anything': ('[[[[[{"a":[1e2]}]]]],true]', {}),
}
MEMBERS = {**{name: text for name, (text, _) in VALUES.items()}, 'note': '"old"'}
ARGS = f'{{{", ".join([f"{json.dumps(name)}: {text}" for name, text in MEMBERS.items()])}}}'
SCHEMAS: Mapping[str, Any] = {
    'typed': {
        'properties': {'note': STRING, **{name: schema for name, (_, schema) in VALUES.items()}},
        'required': [*VALUES],
        'additionalProperties': False,
    },
    'open': {'properties': {'note': STRING}, 'additionalProperties': True},
    'bare': {},
}


def approval_form(page: Page, tool: str) -> Locator:
    return page.get_by_role('form', name=f'Approval: {tool}')


@each_case('kind', ['typed', 'open', 'bare'])
async def test_approval_form_changes_no_untouched_value(open_playground: Visit, kind: str) -> None:
    got: list[dict[str, Any]] = []

    def keep(**args: Any) -> str:
        got.append(args)
        return 'It is kept.'

    app = to_a2a(agent_with_approval(ARGS, SCHEMAS[kind], keep))
    page = await open_playground(app)
    for note in ('old', 'new'):
        await send_message(page, 'Keep.')
        await expect(approval_form(page, 'keep')).to_be_visible()
        labels = await approval_form(page, 'keep').locator('label, legend').all_text_contents()
        named = {label.removesuffix(' optional').removesuffix(' (JSON)') for label in labels}
        assert named >= MEMBERS.keys()
        if note == 'new':
            await approval_form(page, 'keep').get_by_label('note').fill('"new"' if kind == 'bare' else 'new')
        await approval_form(page, 'keep').get_by_role('button', name='Approve').click()
        await expect(page.get_by_text("Results: ['It is kept.']")).to_have_count(1 if note == 'old' else 2)
        assert repr(got[-1]) == repr({**json.loads(ARGS), 'note': note})
    [edited, untouched] = await app.list_tasks()
    assert ['args' in sent_answer(task) for task in (untouched, edited)] == [False, True]


def sent_answer(task: Any) -> dict[str, Any]:
    parts = [part for message in task['history'] for part in message['parts'] if 'data' in part]
    [answers] = [part['data']['callAnswers'] for part in parts if 'callAnswers' in part['data']]
    return answers[0]


async def test_approval_form_shows_arguments_exactly(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(agent_with_approval(ARGS, SCHEMAS['typed'])))
    await send_message(page, 'Keep.')
    shown = {
        'large': '738529527931269425',
        'huge': '123456789012345678901234567890',
        'zero': '-0.0',
        'whole': '1.0',
        'price': '0.1000000000000000055',
        'command': 'echo cleaning\nrm -rf build',
        'windows (JSON)': r'"a\r\nb\rc\r\n"',
        'hidden (JSON)': r'"a\u202eb\u0007\u200bc\u2028d"',
        'moment': '2026-05-15T12:30:00.123456+02:00',
        'mail': ' ada@exämple.com ',
        'home (JSON)': 'null',
    }
    for label, value in shown.items():
        await expect(approval_form(page, 'keep').get_by_label(label).first).to_have_value(value)
    for name in ('nothing', 'unknown'):
        await expect(approval_form(page, 'keep').get_by_label(name)).to_have_attribute('placeholder', 'null')


async def test_edited_value_keeps_digits_and_members(open_playground: Visit) -> None:
    got: list[dict[str, Any]] = []

    def keep(**args: Any) -> None:
        got.append(args)

    page = await open_playground(to_a2a(agent_with_approval(ARGS, SCHEMAS['typed'], keep)))
    await send_message(page, 'Keep.')
    edits = {
        'large': '738529527931269427',
        'whole': '2.00',
        'price': '0.1000000000000000056',
        'cost': '0.1000000000000000057',
        'command': 'echo\nls',
        'nothing optional': 'some',
        'windows (JSON)': r'"a\r\n"',
        'name optional': 'b\nc',
    }
    for label, value in edits.items():
        await approval_form(page, 'keep').get_by_label(label, exact=True).first.fill(value)
    await approval_form(page, 'keep').get_by_role('textbox', name='gaps 2').fill('3')
    await approval_form(page, 'keep').get_by_role('group', name='gaps').get_by_role('button', name='Add').click()
    await approval_form(page, 'keep').get_by_role('button', name='Remove names 2').click()
    await approval_form(page, 'keep').get_by_role('textbox', name='10', exact=True).fill('1.50')
    await approval_form(page, 'keep').get_by_label('maybe').select_option('No')
    await approval_form(page, 'keep').get_by_role('button', name='Approve').click()
    await expect(page.get_by_text('Results: [None]')).to_have_count(1)
    args = json.loads(ARGS)
    changed = {
        'large': 738529527931269427,
        'whole': 2.0,
        'price': '0.1000000000000000056',
        'cost': '0.1000000000000000057',
        'command': 'echo\nls',
        'nothing': 'some',
        'windows': 'a\r\n',
        'nested': {**args['nested'], 'name': 'b\nc'},
        'gaps': [1, 3, 2, None],
        'names': ['a, b', 'c\nd'],
        'scores': {'10': 1.5, '2': 2.0},
        'maybe': False,
    }
    assert repr(got[-1]) == repr({**args, **changed})


class Payment(BaseModel):
    cents: int = Field(5, alias='amountCents')
    note: str = ''
    model_config = {'populate_by_name': True}


async def test_argument_by_field_name_instead_of_alias_is_shown(open_playground: Visit) -> None:
    """The field of the schema's name does not say that the default runs."""
    agent = scripted(
        {'Pay.': [tool_call('pay', '{"cents": 1000000}')], 'Pay less.': [tool_call('pay', '{"note": "less"}')]}
    )

    @agent.tool_plain(requires_approval=True)
    def pay(payment: Payment) -> str:
        return f'{payment.cents} are paid.'

    assert pay
    page = await open_playground(to_a2a(agent))
    await send_message(page, 'Pay.')
    await expect(approval_form(page, 'pay').get_by_label('cents (JSON)')).to_have_value('1000000')
    await expect(approval_form(page, 'pay').get_by_label('amountCents')).not_to_have_attribute(
        'placeholder', re.compile('5')
    )
    await approval_form(page, 'pay').get_by_role('button', name='Approve').click()
    await expect(page.get_by_text("Results: ['1000000 are paid.']")).to_have_count(1)
    await send_message(page, 'Pay less.')
    await expect(approval_form(page, 'pay').get_by_label('amountCents')).to_have_attribute(
        'placeholder', 'without a value: 5'
    )


async def test_read_only_arguments_are_shown_exactly(open_playground: Visit) -> None:
    args = r'{"result": {"id": 738529527931269425}, "ratio": 1.0, "lines": "a\nb", "hidden": "a\u202eb", "no": null}'
    app = to_a2a(agent_with_approval(args), approvals=Approvals(change_arguments=False))
    page = await open_playground(app)
    await send_message(page, 'Keep.')
    cells = approval_form(page, 'keep').get_by_role('cell')
    await expect(cells).to_have_text(['{ "id": 738529527931269425 }', '1.0', 'a\nb', r'"a\u202eb"', 'null'])
    assert await cells.nth(2).inner_text() == 'a\nb'


async def test_infinite_number_is_shown_and_kept(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(agent_with_approval('{"most": 1e400, "note": "a"}', SCHEMAS['open'])))
    await send_message(page, 'Keep.')
    await expect(approval_form(page, 'keep').get_by_role('cell')).to_have_text(['Infinity', 'a'])
    await approval_form(page, 'keep').get_by_role('button', name='Approve').click()
    await expect(page.get_by_text("'most': inf").last).to_be_attached()


class Order(BaseModel):
    at: AwareDatetime
    number: int
    price: Decimal
    count: Decimal
    tip: Decimal | None
    note: str | None


async def test_typed_input_keeps_time_zone_and_exact_numbers(open_playground: Visit) -> None:
    agent = Agent('test')
    got: list[Order] = []

    @agent.tool
    def keep(ctx: RunContext[object]) -> str:
        got.append(a2a(ctx).input(Order))
        return 'It is kept.'

    assert keep
    page = await open_playground(to_a2a(agent, messages=Messages(input_type=Order)), failures=1)
    data = page.get_by_role('form', name='Data')
    await data.get_by_label('At', exact=True).fill('2026-05-15T12:30')
    await data.get_by_label('Number').fill('738529527931269425')
    await data.get_by_label('Price').fill('0.1000000000000000055')
    await data.get_by_label('Count').fill('12.5')
    await data.get_by_role('button', name='Send').click()
    await expect(data.get_by_label('At', exact=True)).to_have_accessible_description('Input should have timezone info')
    await data.get_by_label('At: time zone').fill('noon')
    await data.get_by_role('button', name='Send').click()
    complaint = 'must have a time zone such as Z or +02:00, or none'
    await expect(data.get_by_label('At', exact=True)).to_have_accessible_description(complaint)
    await data.get_by_label('At: time zone').fill('+02:00')
    await data.get_by_role('button', name='Send').click()
    await expect(page.get_by_text('{"keep":"It is kept."}')).to_have_count(1)
    [order] = got
    assert order.at.isoformat() == '2026-05-15T12:30:00+02:00'
    assert (order.number, order.price, order.count) == (738529527931269425, Decimal('0.1000000000000000055'), 12.5)
    assert (order.tip, order.note) == (None, None)
    cells = page.get_by_role('log').get_by_role('cell').filter(has_text='738529527931269425')
    await expect(cells).to_have_count(1)


class Facts(TypedDict):
    id: int
    ratio: float
    none: list[int | None]


async def test_agent_data_shows_exact_numbers(open_playground: Visit) -> None:
    args = '{"id": 738529527931269425, "ratio": 1.0, "none": [1, null]}'
    script = {
        'Tell.': [tool_call('final_result', args)],
        'Look.': [tool_call('look', args)],
        'Ask.': [tool_call('ask')],
    }
    agent = scripted(script, output_type=[str, Facts])

    @agent.tool_plain
    def look(id: int, ratio: float, none: list[int | None]) -> dict[str, float]:
        return {'id': id, 'ratio': ratio}

    @agent.tool_plain
    def ask() -> str:
        choices = {'type': 'integer', 'enum': [738529527931269424, 738529527931269425]}
        raise InputRequired('Which?', schema={'type': 'object', 'properties': {'id': choices}, 'required': ['id']})

    assert {look, ask}
    page = await open_playground(to_a2a(agent))
    await send_message(page, 'Tell.')
    log = page.get_by_role('log')
    await expect(log.get_by_role('cell')).to_have_text(['738529527931269425', '1.0', '1, '])
    await send_message(page, 'Look.')
    await expect(log.locator('.tool .preview')).to_have_text(
        '{"id":738529527931269425,"ratio":1.0,"none":[1,null]} → {"id":738529527931269425,"ratio":1.0}'
    )
    await log.get_by_text('look', exact=True).click()
    await expect(log.locator('.tool').get_by_role('cell')).to_have_text(
        ['738529527931269425', '1.0', '1, null', '738529527931269425', '1.0']
    )
    await send_message(page, 'Ask.')
    question = page.get_by_role('form', name='Question: ask')
    await question.get_by_label('id').select_option('738529527931269425')
    await question.get_by_role('button', name='Answer').click()
    await expect(page.get_by_text("Results: [{'id': 738529527931269425}]")).to_have_count(1)
    await page.get_by_role('button', name='Events').click()
    await page.get_by_role('complementary', name='Requests').get_by_text('statusUpdate input_required').click()
    await expect(page.get_by_role('group', name='JSON').last).to_contain_text('738529527931269425')
