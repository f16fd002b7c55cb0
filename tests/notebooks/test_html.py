"""The HTML forms of servers, tasks and agent cards show the values, and no element of another program."""

from __future__ import annotations

import json
import pickle
from copy import deepcopy
from html.parser import HTMLParser
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import A2AClient, BearerAuth, serve, to_a2a

from ..client.canned_agent import CARD, TASK, CannedAgent, agent_message, result_response

HOSTILE = '<script>alert("1")</script><img src=x onerror=\'alert(2)\'>&lt;'
ELEMENTS = {'a', 'code', 'h4', 'p', 'pre', 'strong', 'table', 'tbody', 'td', 'th', 'thead', 'tr'}


class HtmlReader(HTMLParser):
    """Reads the elements, attributes and texts of an HTML form as a browser does."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._open: list[str] = []
        self.feed(value._repr_html_())
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ELEMENTS
        self._open.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def html_texts(value: Any) -> list[str]:
    """The texts of an HTML form without links."""
    reader = HtmlReader(value)
    assert {*reader.attributes} <= {('style', 'white-space: pre-wrap')}
    return reader.texts


async def canned_task(*parts: Any, name: str = 'result', **status: Any) -> Any:
    """The task of a server that answers with an artifact of these parts."""
    artifacts = [{'artifactId': 'a', 'name': name, 'parts': parts}] if parts else []
    task = {**TASK, 'artifacts': artifacts, 'status': {'state': 'TASK_STATE_COMPLETED', **status}}
    async with A2AClient(CannedAgent(result_response(task)).app) as client:
        return (await client.get('t')).outcome


def test_server_html_shows_only_addresses() -> None:
    app = to_a2a(Agent('test'), docs_url='/try"><script>', auth=BearerAuth({'a-secret-token-of-ann': 'ann'}))
    with serve(app) as server:
        reader = HtmlReader(server)
    assert [value for name, value in reader.attributes if name == 'href'] == [server.url, server.docs_url]
    assert reader.texts == ['Server at ', server.url, ', ', 'playground']
    with serve(to_a2a(Agent('test'), docs_url=None)) as server:
        assert HtmlReader(server).texts == ['Server at ', server.url]


async def test_task_html_shows_state_and_text_from_each_method() -> None:
    app = to_a2a(Agent(TestModel(custom_output_text=HOSTILE)))
    async with A2AClient(app) as client:
        task: Any = (await client.send(HOSTILE)).outcome
        streamed = [update.task async for update in client.stream('Hello.')][-1]
        listed = [result.task async for result in client.list(include_artifacts=True)]
        others = [(await client.get(task['id'])).outcome, *listed, await app.get_task(task['id'])]
        results = [task, streamed, *others, await client.send(HOSTILE)]
        assert [html_texts(other)[3:] for other in results] == [['completed', 'result', HOSTILE]] * 7
    assert html_texts(task)[:3] == ['Task ', task['id'], ': ']


async def test_message_reply_html_shows_text() -> None:
    async with A2AClient(CannedAgent(result_response({'message': agent_message(HOSTILE)})).app) as client:
        assert html_texts(await client.send('Hello.', resend=True)) == [HOSTILE]


async def test_task_with_html_stays_dictionary() -> None:
    task = await canned_task({'text': 'Hello.'})
    assert repr(task) == repr(dict(task))
    assert task == dict(task) == json.loads(json.dumps(task))
    assert html_texts(deepcopy(task)) == html_texts(pickle.loads(pickle.dumps(task))) == html_texts(task)


async def test_waiting_task_html_shows_question_without_data() -> None:
    message = agent_message(HOSTILE, {'data': {'pending': 1}})
    task = await canned_task(state='TASK_STATE_INPUT_REQUIRED', message=message)
    assert html_texts(task) == ['Task ', 't', ': ', 'input-required', HOSTILE]


async def test_file_html_shows_name_and_type() -> None:
    task = await canned_task(
        {'raw': 'aGk=', 'filename': HOSTILE, 'mediaType': HOSTILE}, {'url': 'javascript:alert(1)'}, name=HOSTILE
    )
    assert html_texts(task)[4:] == [HOSTILE, f'{HOSTILE} ({HOSTILE})', 'file (unknown type)']


TABLES: list[tuple[Any, list[str]]] = [
    (
        {'result': [{'a': 1, HOSTILE: True}, {'a': HOSTILE, 'b': [1]}]},
        ['a', HOSTILE, 'b', '1', 'true', HOSTILE, '[1]'],
    ),
    ({HOSTILE: HOSTILE, 'b': None}, ['Field', 'Value', HOSTILE, HOSTILE, 'b', 'null']),
    ({'result': [1, HOSTILE]}, [json.dumps([1, HOSTILE], indent=2)]),
    ([], ['[]']),
    ({}, ['{}']),
    ([{}], ['[\n  {}\n]']),
]


@pytest.mark.parametrize(('data', 'cells'), TABLES)
async def test_data_html_is_table_for_objects(data: Any, cells: list[str]) -> None:
    assert html_texts(await canned_task({'data': data}, name=''))[4:] == cells


async def test_long_answer_html_is_cut() -> None:
    rows = [{'n': n} for n in range(102)]
    wide = [{str(n): n for n in range(21)}]
    shown = html_texts(await canned_task({'text': 'a' * 10_001}, {'data': rows}, {'data': wide}, name=''))
    assert shown[4:6] == ['a' * 10_000 + '…', 'n']
    assert shown[-3:] == ['99', '2 more rows', json.dumps(wide, indent=2)]


async def test_card_html_shows_skills_and_interfaces() -> None:
    skill: Any = {'id': 's', 'name': HOSTILE, 'description': HOSTILE, 'tags': []}
    interfaces = [*CARD['supportedInterfaces'], {'protocolBinding': HOSTILE, 'url': 'javascript:alert(1)'}]
    card = {**CARD, 'name': HOSTILE, 'version': HOSTILE, 'description': HOSTILE, 'iconUrl': HOSTILE}
    app = CannedAgent(card={**card, 'skills': [skill], 'supportedInterfaces': interfaces}).app
    async with A2AClient(app) as client:
        shown = html_texts(await client.card())
    assert shown == [
        *[HOSTILE, f' {HOSTILE}', HOSTILE, 'Skill', 'Description', HOSTILE, HOSTILE, 'Interface', 'Binding', 'Version'],
        *['http://agent.example/rpc', 'JSONRPC', '1.0', 'javascript:alert(1)', HOSTILE, '1.0'],
    ]


async def test_card_html_without_skills_shows_interfaces() -> None:
    async with A2AClient(CannedAgent().app) as client:
        assert html_texts(await client.card())[:3] == ['canned', ' ', 'Interface']
