"""The commands that call an agent, against a server: what they write, their exit codes, and Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.models.test import TestModel
from starlette.responses import Response, StreamingResponse

from pydantic_ai_a2a import A2AClient, Access, Approvals, BearerAuth, serve, to_a2a
from pydantic_ai_a2a.client.agents import remote_tasks
from pydantic_ai_a2a.client.updates import Update
from pydantic_ai_a2a.commands import client_thread, remote_conversation
from pydantic_ai_a2a.commands.plain_screen import Screen
from pydantic_ai_a2a.wire.extensions.own_extensions import REPLAY

from ..bounds import LIMIT
from ..cases import each_case
from ..client.agents.canned_tasks import (
    CONFIRMATION_TEXT,
    adk_confirmation,
    adk_response,
    pending_call,
    task_waiting_with,
    task_with,
    task_with_confirmations,
)
from ..client.agents.test_answers_of_other_servers import QUESTIONS
from ..client.canned_agent import (
    CARD,
    TASK,
    WORKING,
    CannedAgent,
    agent_message,
    artifact_update,
    card_with_interface,
    error_response,
    result_response,
    serve_canned,
    status_update,
    stream_response,
    task_in_state,
)
from ..wire.signing.signing_keys import private_pem
from .agents import PNG, shop_app
from .command import Outcome, Terminal, in_terminal, process_in_terminal, run_at_terminal, run_command

Capture = pytest.CaptureFixture[str]
IDS = re.compile(r'\b[0-9a-f]{32}\b')


@pytest.fixture(scope='module')
def url() -> Iterator[str]:
    with serve(shop_app()) as server:
        yield server.url.removesuffix('/')


@pytest.fixture(autouse=True)
def fast_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands look often for a Ctrl-C that came just before they began to wait."""
    monkeypatch.setattr(client_thread, 'WAKE', 0.001)


def without_ids(text: str) -> str:
    """The text, with a word in the place of each id."""
    return IDS.sub('ID', text)


def task_and_context(outcome: Outcome) -> tuple[str, str]:
    """The task and the conversation that standard error names."""
    task, context = IDS.findall(outcome.err.splitlines()[-1])
    return task, context


def test_card_is_shown_as_text_and_json(url: str, capsys: Capture) -> None:
    shown = run_command(capsys, 'card', url)
    assert shown.code == 0
    assert shown.out.splitlines()[:6] == [
        'Name        shop 1.0.0',
        'Description Sells pizza.',
        f'Interface   {url}/ (JSONRPC 1.0)',
        f'Interface   {url}/ (HTTP+JSON 1.0)',
        f'Interface   {url}/ (JSONRPC 0.3)',
        'Streaming   yes',
    ]
    [card] = run_command(capsys, 'card', url, '--json').lines
    assert (card['name'], card['supportedInterfaces'][0]['protocolBinding']) == ('shop', 'JSONRPC')


def test_descriptions_of_card_are_single_lines(capsys: Capture) -> None:
    skill: Any = {'id': 's', 'name': 'Sell', 'description': 'Sells.\nSign-in     none', 'tags': []}
    card: Any = {**CARD, 'description': 'A shop.\nSign-in     none', 'skills': [skill]}
    with serve(CannedAgent(card=card).app, anonymous=True) as server:
        lines = run_command(capsys, 'card', server.url).out.splitlines()
    assert 'Description A shop. Sign-in none' in lines
    assert 'Skill       Sell: Sells. Sign-in none' in lines


def test_number_of_card_signatures_is_shown(capsys: Capture) -> None:
    keys = [private_pem(), private_pem('Ed25519')]
    with serve(to_a2a(Agent('test'), url='https://agent.example.com/', access=Access(signing=keys))) as server:
        card = run_command(capsys, 'card', server.url)
    assert 'Signatures  2, not verified' in card.out.splitlines()


def test_answer_goes_to_stdout_and_ids_to_stderr(url: str, capsys: Capture) -> None:
    sent = run_command(capsys, 'send', url, 'hello')
    assert (sent.code, sent.out) == (0, 'You said **hello** with 0 files.\n')
    assert without_ids(sent.err) == 'pydantic-ai-a2a: the task ID is completed; go on with --context ID\n'
    task, context = task_and_context(sent)
    again = run_command(capsys, 'send', url, 'again', '--context', context)
    assert task_and_context(again)[1] == context
    assert task_and_context(again)[0] != task


@pytest.mark.parametrize(
    ('prompt', 'code', 'out', 'err'),
    [
        ('Rejected', 1, '', 'pydantic-ai-a2a: No \\u001b[2J\\u009b2J\\u202ethanks.'),
        ('price', 0, '{\n  "euros": 3\n}\n', ''),
        ('picture', 0, '[pizza.png: image/png, 8 bytes]\n', ''),
        ('attack', 0, 'You said **attack**\\u001b[2J\\u009b2J\\u202e with 0 files.\n', ''),
        ('break', 1, 'You said **break**\n', 'pydantic-ai-a2a: The agent failed with an internal error.'),
        ('InputRequired', 3, 'Which pizza?\n', 'pydantic-ai-a2a: the task waits; answer with --task '),
        ('size', 3, 'Which size?\nWrite one of these: small, large.\n', '  calls size'),
    ],
)
def test_send_output_and_exit_code_match_answer(
    url: str, prompt: str, code: int, out: str, err: str, *, capsys: Capture
) -> None:
    sent = run_command(capsys, 'send', url, prompt)
    assert (sent.code, sent.out) == (code, out)
    assert err in sent.err
    assert 'secret' not in sent.err


def test_waiting_task_is_answered_by_second_command(url: str, capsys: Capture) -> None:
    asked = run_command(capsys, 'send', url, 'InputRequired')
    task, context = task_and_context(asked)
    answered = run_command(capsys, 'send', url, 'salami', '--task', task, '--context', context)
    assert (answered.code, answered.out) == (0, 'You said **salami** with 0 files.\n')


@each_case(
    ('decision', 'out'),
    [
        (('--approve',), 'The tool says: deleted a.txt\n'),
        (('--approve', '--data', '{"path": "b.txt"}'), 'The tool says: deleted b.txt\n'),
        (('--deny', 'Too risky.'), 'The tool says: Too risky.\n'),
        (('--deny', ''), 'The tool says: The tool call was denied.\n'),
    ],
)
def test_approval_is_answered_by_command_options(
    url: str, decision: tuple[str, ...], out: str, capsys: Capture
) -> None:
    asked = run_command(capsys, 'send', url, 'delete')
    assert asked.err.endswith('; approve with --approve, deny with --deny REASON\n')
    words = run_command(capsys, 'send', url, 'yes', '--task', task_and_context(asked)[0])
    assert (words.code, words.err.endswith(' Use --approve, --deny or --data.\n')) == (1, True)
    decided = run_command(capsys, 'send', url, '--task', task_and_context(asked)[0], *decision)
    assert (decided.code, decided.out) == (0, out)
    again = run_command(capsys, 'send', url, '--task', task_and_context(asked)[0], *decision)
    assert again.why == (1, f'No call of the task {task_and_context(asked)[0]} waits for an approval.')


def test_approve_option_answers_all_pending_approvals(capsys: Capture) -> None:
    calls = [pending_call(kind[:-1], id=kind) for kind in ('approval1', 'approval2', 'question3')]
    waits = result_response(task_waiting_with(pending=calls))
    confirmation = result_response(task_with_confirmations(adk_confirmation()))
    canned = CannedAgent(waits, stream_response({'task': TASK}), waits, confirmation)
    with serve_canned(canned) as server:
        arguments = ('send', server.url, '--task', 't', '--approve')
        assert run_command(capsys, *arguments).code == 0
        sent = canned.messages[-1]
        two, adk = (run_command(capsys, *arguments, '--data', '{}').why for _ in range(2))
    assert (sent['taskId'], sent['contextId']) == ('t', 'c')
    [part] = sent['parts']
    assert part['data'] == {'callAnswers': [{'id': f'approval{n}', 'decision': 'approve'} for n in (1, 2)]}
    assert two == (1, '--data changes the arguments of one call, but 2 calls wait.')
    assert adk[0] == 1
    assert 'takes no other arguments' in adk[1]


def test_files_data_and_standard_input_are_sent(
    url: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / 'a.png').write_bytes(PNG)
    (tmp_path / 'b.unknown').write_bytes(b'\x00')
    (tmp_path / 'text').write_text('from a file')
    with (tmp_path / 'text').open() as stdin, monkeypatch.context() as patch:
        patch.setattr('sys.stdin', stdin)
        sent = run_command(capsys, 'send', url, '-', '--file', str(tmp_path / 'a.png'), '--json')
    [task] = sent.lines
    assert task['artifacts'][0]['parts'][0]['text'] == 'You said **from a file** with 1 files.'
    assert task['history'][0]['parts'][1]['filename'] == 'a.png'
    [task] = run_command(capsys, 'send', url, '--data', '{"a": [1]}', '--json').lines
    assert task['history'][0]['parts'] == [{'data': {'a': [1]}, 'mediaType': 'application/json'}]
    refused = run_command(capsys, 'send', url, '--file', str(tmp_path / 'b.unknown'))
    assert refused.code == 1
    assert 'message.parts[0].raw: needs a mediaType.' in refused.err


def test_jsonl_option_writes_line_per_event(url: str, capsys: Capture) -> None:
    events = run_command(capsys, 'send', url, 'hello', '--jsonl').lines
    kinds = [key for event in events for key in event]
    assert kinds[0] == 'task'
    assert kinds[-1] == 'statusUpdate'
    assert {*kinds} == {'task', 'statusUpdate', 'artifactUpdate'}
    assert events[-1]['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'
    assert 'artifact' in events[-2]['artifactUpdate']


def test_tasks_are_listed_watched_and_canceled(url: str, capsys: Capture) -> None:
    task, context = task_and_context(run_command(capsys, 'send', url, 'InputRequired'))
    listed = run_command(capsys, 'tasks', url, '--context', context)
    assert without_ids(listed.out).splitlines()[0].split() == ['TASK', 'CONTEXT', 'STATE', 'STATUS', 'SINCE']
    assert listed.out.splitlines()[1].split()[:3] == [task, context, 'input-required']
    assert len(run_command(capsys, 'tasks', url, '--json', '--limit', '1').lines) == 1
    assert run_command(capsys, 'tasks', url, '--context', 'c' * 32) == (0, '', 'pydantic-ai-a2a: no tasks\n')
    assert run_command(capsys, 'tasks', url, '--context', 'c' * 32, '--json') == (0, '', '')
    watched = run_command(capsys, 'watch', url, task)
    assert (watched.code, watched.out) == (3, 'Which pizza?\n')
    canceled = run_command(capsys, 'cancel', url, task)
    assert (canceled.code, without_ids(canceled.err)) == (0, 'pydantic-ai-a2a: the task ID is canceled\n')
    [listed_task] = run_command(capsys, 'tasks', url, '--context', context, '--state', 'canceled', '--json').lines
    assert listed_task['id'] == task
    again = run_command(capsys, 'cancel', url, task)
    assert again.code == 1
    assert 'The agent has refused the request: Task cannot be canceled' in again.err


def test_message_reply_is_printed_without_task(capsys: Capture) -> None:
    message = agent_message('Hi.', {'data': 1})
    with serve_canned(CannedAgent(*(stream_response({'message': message}) for _ in range(3)))) as server:
        assert run_command(capsys, 'send', server.url, 'hello') == (0, 'Hi.\n1\n', '')
        assert run_command(capsys, 'send', server.url, 'hello', '--json').lines == [message]
        assert run_command(capsys, 'send', server.url, 'hello', '--jsonl').lines == [{'message': message}]


def test_task_without_timestamp_is_accepted(capsys: Capture) -> None:
    with serve_canned(CannedAgent(stream_response({'task': TASK}))) as server:
        assert run_command(capsys, 'send', server.url, 'hello', '--json').lines == [TASK]


def test_answer_in_history_is_printed_beside_files(capsys: Capture) -> None:
    message = agent_message('Hi.')
    tasks = [
        task_with([{'url': 'http://x/a'}], history=[message]),
        task_with(status=message, history=[message]),
        task_with(*([{'url': f'http://x/{name}'}, {'text': name}] for name in 'ab'), status=message, history=[message]),
    ]
    canned = CannedAgent(*(stream_response({'task': task}) for task in tasks))
    shown = [f'[a file: unknown type, http://x/{name}]\n' for name in 'ab']
    with serve_canned(canned) as server:
        assert run_command(capsys, 'send', server.url, 'hello').out == f'Hi.\n{shown[0]}'
        assert run_command(capsys, 'send', server.url, 'hello').out == 'Hi.\n'
        assert run_command(capsys, 'send', server.url, 'hello').out == f'a\nb\n{shown[0]}{shown[1]}Hi.\n'


def test_interface_at_another_origin_needs_trusted_origin(capsys: Capture) -> None:
    with (
        serve(CannedAgent(result_response(TASK)).app, anonymous=True) as api,
        serve(CannedAgent(card=card_with_interface(url=api.url)).app, anonymous=True) as server,
    ):
        refused = run_command(capsys, 'watch', server.url, 't')
        assert refused.code == 1
        assert 'names an interface at another origin' in refused.err
        trusted = ('--trusted-origin', api.url.rstrip('/'))
        assert run_command(capsys, 'watch', server.url, 't', *trusted).code == 0
        assert 'another origin' in run_command(capsys, 'doctor', server.url).out
        assert 'another origin' not in run_command(capsys, 'doctor', server.url, *trusted).out
    wrong = run_command(capsys, 'card', 'http://x', '--trusted-origin', 'example.com')
    assert '--trusted-origin takes an origin such as https://api.example.com' in wrong.err


def test_doctor_report_fits_screen_unless_verbose(capsys: Capture) -> None:
    with serve(to_a2a(shop_agent())) as server:
        brief, whole = run_command(capsys, 'doctor', server.url), run_command(capsys, 'doctor', server.url, '-v')
    assert (brief.code, whole.code) == (0, 0)
    lines = brief.out.splitlines()
    assert len(lines) <= 24
    assert 'ok          unknown task, bad params, unknown method, message, ended task,' in lines
    assert [brief.out.count(text) for text in ('Everybody may call the agent', ' is served. (§8.3)')] == [1, 3]
    assert whole.out.count('Everybody may call the agent') == 3
    assert whole.out.count('unknown task: An unknown task is ') == 3


@each_case(
    ('name', 'out'),
    [
        ('status message', 'Which city?\n'),
        ('draft in an artifact', 'Dear Ann,\n{\n  "total": 3\n}\nApprove it?\n'),
        ('file in an artifact', '[a.png: image/png, 5 bytes]\nApprove it?\n'),
        ('artifact only', 'Dear Ann, ... Approve it?\n'),
        ('data', 'Which one?\n["a","b"]\n'),
        ('history', 'Which city?\n'),
        ('streamed question', 'Which\nWhich city?\n'),
        ('confirmation', f'{CONFIRMATION_TEXT}\n'),
    ],
)
def test_question_is_printed_from_every_part_of_task(name: str, out: str, capsys: Capture) -> None:
    canned = CannedAgent(
        stream_response(
            {'task': QUESTIONS[name][0] if name in QUESTIONS else task_with_confirmations(adk_confirmation())}
        )
    )
    with serve_canned(canned) as server:
        sent = run_command(capsys, 'send', server.url, 'hello')
    assert (sent.code, sent.out) == (3, out)


def test_task_waiting_in_queue_is_reported(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    say, screen_for, reported, shown = remote_conversation.say, remote_conversation.screen_for, Event(), Event()

    def saying(text: str) -> None:
        say(text)
        if 'queued' in text:
            reported.set()

    def screen_that_tells(form: Any, before: str) -> Screen:
        screen = screen_for(form, before)
        show = screen.show

        def show_and_tell(update: Update) -> None:
            show(update)
            asyncio.get_running_loop().call_later(0.0, shown.set)  # after the report, which is due before

        screen.show = show_and_tell
        return screen

    def events(*states: str) -> Iterator[str]:
        for state in states:
            yield f'data: {json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"task": task_in_state(state)}})}\n\n'
            assert (reported if state == 'SUBMITTED' else shown).wait(LIMIT)

    def sent(*states: str) -> Outcome:
        shown.clear()
        with serve_canned(CannedAgent(StreamingResponse(events(*states), media_type='text/event-stream'))) as server:
            return run_command(capsys, 'send', server.url, 'hello')

    monkeypatch.setattr(remote_conversation, 'QUEUED', 0.0)
    monkeypatch.setattr(remote_conversation, 'say', saying)
    monkeypatch.setattr(remote_conversation, 'screen_for', screen_that_tells)
    queued, begun = sent('SUBMITTED', 'COMPLETED'), sent('WORKING', 'WORKING', 'COMPLETED')
    assert (queued.code, begun.code) == (0, 0)
    assert queued.err.startswith('pydantic-ai-a2a: the task t has been queued for 0 seconds: is a worker running?\n')
    assert 'queued' not in begun.err


def test_replaced_artifact_text_is_printed_anew(capsys: Capture) -> None:
    page = {'url': 'http://x/y', 'mediaType': 'text/html'}
    events = [
        {'task': WORKING},
        status_update('WORKING', agent_message('Hm.\nWell.')),
        artifact_update('One.', page),
        artifact_update('Two.\n', page),
        status_update('COMPLETED', agent_message({'data': 1})),
    ]
    with serve_canned(CannedAgent(stream_response(*events))) as server:
        sent = run_command(capsys, 'send', server.url, 'hello')
    assert sent.out == 'One.\nTwo.\n[a file: text/html, http://x/y]\n'
    assert sent.err.startswith('  Hm.\n  Well.\n')


@each_case(
    ('arguments', 'text'),
    [
        (('send', 'URL'), 'There is nothing to send: give TEXT, --file or --data.'),
        (('send', 'URL', '--data', '{'), '--data is not JSON'),
        (('send', 'URL', '--approve'), 'Give --task with either --approve, and --data if you like, or --deny alone.'),
        (('send', 'URL', 'x', '--task', 't', '--deny', ''), 'Give --task with either --approve,'),
        (('send', 'URL', '--task', 't', '--deny', '', '--approve'), 'Give --task with either --approve,'),
        (('send', 'URL', '--task', 't', '--approve', '--data', '[]'), '--data takes a JSON object'),
        (('send', 'URL', 'x', '--json', '--jsonl'), '--json and --jsonl cannot be combined: give one of them.'),
        (('send', 'localhost:1', 'x'), "'localhost:1' is not a URL of HTTP. Write http://localhost:1."),
        (('send', 'Tell me a joke.', 'URL'), 'The URL of the agent comes first.'),
        (('send', 'URL', 'Tell', 'me'), 'TEXT is one argument: write it in quotes.'),
        (('watch', 'task', 'URL'), 'The URL of the agent comes first.'),
        (('cancel', 'task', 'URL'), 'The URL of the agent comes first.'),
        (('doctor', 'ftp://agent.example'), "'ftp://agent.example' is not a URL of HTTP."),
        (('send', 'URL', 'x', '--header', 'nothing'), '--header takes a name and a value with a colon between them'),
        (('send', 'URL', 'x', '--header', 'x: \x00'), 'has characters that HTTP does not allow'),
        (('doctor', 'URL', '--header', 'x: \x00'), 'has characters that HTTP does not allow'),
        (('card', 'URL', '--token-env', 'NOT_SET'), 'The environment variable NOT_SET of --token-env is not set.'),
        (('card', 'URL', '--token-env', 'EMPTY'), 'The environment variable EMPTY of --token-env is not set.'),
        (('card', 'URL', '--token-env', 'WITH_BEARER'), '`auth` is the token alone: leave out the word Bearer'),
        (('card', 'URL', '--timeout', '0'), '--timeout takes a number of seconds above zero.'),
        (('send', 'URL', 'hi', '--timeout', 'nan'), '--timeout takes a number of seconds above zero.'),
        (('tasks', 'URL', '--state', 'odd'), "'odd' is not one of"),
    ],
)
def test_invalid_options_exit_with_code_2(
    url: str, arguments: tuple[str, ...], text: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('EMPTY', '')
    monkeypatch.setenv('WITH_BEARER', 'Bearer secret')
    refused = run_command(capsys, *(url if part == 'URL' else part for part in arguments))
    assert refused.code == 2
    assert text in refused.err


def test_unreachable_agent_is_reported_in_single_sentence(url: str, capsys: Capture) -> None:
    for place, text in (
        ('http://127.0.0.1:9', 'cannot be reached: no connection could be opened. Is the server running?'),
        (f'{url}/nothing', 'has no agent card: HTTP 404.'),
        (f'{url}/docs', 'has no agent card: HTTP 404. If this is the URL of the playground, leave out /docs.'),
        (url.replace('http:', 'https:'), 'it does not speak TLS. If the server has no certificate, write http://'),
    ):
        refused = run_command(capsys, 'send', place, 'hello')
        assert refused.code == 1
        assert text in refused.err.splitlines()[-1]
    assert 'Traceback' in run_command(capsys, 'send', 'http://127.0.0.1:9', 'x', '--debug').err


def test_lost_message_is_sent_again_to_agent_with_replay(capsys: Capture) -> None:
    canned = CannedAgent(Response('', 502), stream_response({'task': TASK}))
    with serve_canned(canned) as server:
        canned.card['capabilities'] = {'streaming': True, 'extensions': [REPLAY]}
        assert run_command(capsys, 'send', server.url, 'hello').code == 0
    first, second = (body['params']['message'] for _, _, _, body in canned.requests if body)
    assert first == second


@each_case(('slow', 'error'), [(True, 'too slowly|silent'), (False, 'HTTP 503')])
def test_task_is_not_canceled_if_agent_stops_answering(
    slow: bool, error: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless_answer() -> AsyncIterator[str]:
        while True:
            pieces.append(' ')
            yield ' '
            await asyncio.sleep(0.01)

    pieces: list[str] = []
    answer = StreamingResponse(endless_answer(), media_type='application/json') if slow else Response(status_code=503)
    canned = CannedAgent(stream_response({'task': WORKING}), answer)
    time = asyncio.BaseEventLoop.time

    def time_of_command(loop: asyncio.BaseEventLoop) -> float:
        """Let much time pass for the command with each question for the task, and each piece of an answer."""
        passed = 0 if current_thread().name == 'pydantic-ai-a2a' else max(0, len(canned.methods) - 1) + len(pieces)
        return time(loop) + passed * LIMIT / 4

    monkeypatch.setattr(asyncio.BaseEventLoop, 'time', time_of_command)
    with serve_canned(canned) as server:
        sent = run_command(capsys, 'send', server.url, 'hello', '--timeout', f'{LIMIT / 4}')
        told = f'pydantic-ai-a2a: the task t may go on; follow it with `pydantic-ai-a2a watch {server.url} t`\n'
    assert (sent.code, 'CancelTask' in canned.methods) == (1, False)
    assert sent.err.startswith(told)
    assert re.search(error, sent.err)


def test_credentials_come_from_header_or_environment(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('SHOP_TOKEN', 'a-token-of-ann-1234')
    app = to_a2a(shop_agent(), auth=BearerAuth({'a-token-of-ann-1234': 'ann'}))
    with serve(app) as server:
        refused = run_command(capsys, 'send', server.url, 'hello')
        assert refused.code == 1
        assert 'Give credentials with --token-env or --header.' in refused.err
        assert run_command(capsys, 'send', server.url, 'hello', '--token-env', 'SHOP_TOKEN').code == 0
        header = 'Authorization: Bearer a-token-of-ann-1234'
        assert run_command(capsys, 'send', server.url, 'hello', '--header', header).code == 0


def shop_agent() -> Any:
    return Agent('test', name='shop')


# --- at a terminal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ('prompt', 'typed', 'answer'),
    [
        ('delete', 'y\n', 'The tool says: deleted a.txt'),
        ('delete', 'maybe\ne\n{\n[]\n{"path": "b.txt"}\n', 'The tool says: deleted b.txt'),
        ('delete', 'n\nToo risky.\n', 'The tool says: Too risky.'),
        ('delete', 'n\n\n', 'The tool says: The tool call was denied.'),
        ('order', 'three\n3\n', 'The tool says: 3'),
        ('size', 'huge\nlarge\n', 'The tool says: large'),
        ('InputRequired', 'salami\n', 'You said salami with 0 files.'),
        ('pay', '\ny\n', 'The tool says: paid'),
        ('ring', 'in words\n', 'The tool says: in words'),
    ],
)
def test_pending_calls_are_answered_at_prompt(
    url: str, prompt: str, typed: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, terminal = run_at_terminal(monkeypatch, 'send', url, prompt, typed=typed)
    assert code == 0, terminal.text
    assert answer in terminal.text
    assert 'messageSchema' not in terminal.text


def test_hidden_arguments_cannot_be_edited(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(TestModel(), name='keeper')
    agent.tool_plain(name='delete', requires_approval=True)(lambda: 'deleted')
    hidden = Approvals(hide_arguments=['delete'], change_arguments=['delete'])
    with serve(to_a2a(agent, approvals=hidden)) as server:
        code, terminal = run_at_terminal(monkeypatch, 'send', server.url, 'Go.', typed='y\n')
    assert (code, 'deleted' in terminal.text) == (0, True)
    assert 'Approve? [y]es, [n]o' in terminal.text
    assert '[e]dit' not in terminal.text


@each_case(('name', 'words', 'typed'), [('send', ['hello'], '{}'), ('chat', [], 'hello\n{}/exit\n')])
def test_adk_confirmation_is_answered_at_prompt(
    name: str, words: list[str], typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, 'prompt_toolkit', None)
    canned = CannedAgent(
        stream_response({'task': task_with_confirmations(adk_confirmation())}), stream_response({'task': TASK})
    )
    with serve_canned(canned) as server:
        code, terminal = run_at_terminal(monkeypatch, name, server.url, *words, typed=typed.format('n\nNever.\n'))
    assert code == 0, terminal.text
    assert f'{CONFIRMATION_TEXT}\ndelete_file {{\n  "path": "a.txt"\n}}\nApprove? [y]es, [n]o' in terminal.text
    assert '[e]dit' not in terminal.text
    answer = adk_response(confirmed=False, payload={'rejection_reason': 'Never.'})
    assert canned.messages[-1]['parts'] == [answer]


def test_text_before_tool_calls_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def model(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        called = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
        yield ('Looking it up.', 'Deleting it.', 'All done.')[called]
        if called < 2:
            yield {1: DeltaToolCall(('look', 'delete')[called], '{}', tool_call_id=f'call-{called}')}

    agent = Agent(FunctionModel(stream_function=model), name='talker')
    agent.tool_plain(name='look')(lambda: 'x')
    agent.tool_plain(name='delete', requires_approval=True)(lambda: 'gone')
    for module in ('rich.console', 'pydantic_ai_a2a.commands.rich_screen'):
        monkeypatch.setitem(sys.modules, module, None)
    with serve(agent) as server:
        code, terminal = run_at_terminal(monkeypatch, 'send', server.url, 'go', typed='y\n')
    assert code == 0, terminal.text
    assert [terminal.text.count(words) for words in ('Looking it up.', 'Deleting it.', 'All done.')] == [1, 1, 1]


def test_denied_sign_in_cancels_task(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, terminal = run_at_terminal(monkeypatch, 'send', url, 'pay', typed='n\n')
    assert code == 1
    assert 'Sign in at https://bank.example/sign-in' in terminal.text
    assert 'is canceled' in terminal.text


def test_end_of_input_at_prompt_cancels_task(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, terminal = run_at_terminal(monkeypatch, 'send', url, 'delete', typed='\x04')
    assert code == 130
    assert 'is canceled' in terminal.text


@pytest.mark.parametrize(
    'schema', [5, {'oneOf': 5}, {'oneOf': [True, {'properties': {'decision': True, 'result': True}}]}, {'type': 5}]
)
@pytest.mark.parametrize(('kind', 'typed'), [('question', 'red'), ('approval', 'y')])
def test_question_with_invalid_schema_can_be_answered(
    schema: Any, kind: str, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = task_waiting_with(pending=[pending_call(kind, answerSchema=schema)])
    canned = CannedAgent(stream_response({'task': waits}), stream_response({'task': TASK}))
    with serve_canned(canned) as server:
        code, terminal = run_at_terminal(monkeypatch, 'send', server.url, 'hello', typed=f'{typed}\n')
    assert code == 0, terminal.text
    [answer] = canned.messages[-1]['parts'][0]['data']['callAnswers']
    assert answer in (
        {'id': 'q', 'decision': 'result', 'result': 'red'},
        {'id': 'q', 'decision': 'approve'},
    )


def test_ctrl_c_cancels_sent_task(url: str, capsys: Capture) -> None:
    with process_in_terminal('send', url, 'wait') as (terminal, process):
        terminal.until('You said wait')
        terminal.type('\x03')
        assert process.wait(LIMIT) == 130
    assert 'is canceled' in terminal.close()
    listed = run_command(capsys, 'tasks', url, '--state', 'working')
    assert listed.out == ''


class InterruptingServer:
    """A server that answers like a canned one. A message is never answered: the command gets Ctrl-C instead."""

    def __init__(self, canned: CannedAgent, *, messages: int) -> None:
        self._canned = canned
        self._left = messages
        """Number of requests that are answered before."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope['type'] == 'http' and scope['method'] == 'POST':
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGINT)
                while (await receive())['type'] != 'http.disconnect':
                    pass
                return
        await self._canned.app(scope, receive, send)


def test_ctrl_c_ends_watch_but_not_task(monkeypatch: pytest.MonkeyPatch) -> None:
    canned = CannedAgent(result_response(WORKING))
    with serve_canned(canned, InterruptingServer(canned, messages=1)) as server:
        code, terminal = run_at_terminal(monkeypatch, 'watch', server.url, 't')
    assert (code, 'the task t goes on' in terminal.text) == (130, True)


def test_ctrl_c_before_first_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_tasks, 'FIRST_LIMIT', 0.0)
    canned = CannedAgent()
    with serve_canned(canned, InterruptingServer(canned, messages=0)) as server:
        code, terminal = run_at_terminal(monkeypatch, 'send', server.url, 'hello')
    assert (code, 'interrupted before the agent has named its task' in terminal.text) == (130, True)


def test_ctrl_c_cancels_running_call(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended, released = Event(), Event(), asyncio.Event()

    async def call() -> None:
        begun.set()
        try:
            await released.wait()
        finally:
            ended.set()

    async def release() -> None:
        released.set()

    def press() -> None:
        begun.wait(LIMIT)
        os.kill(os.getpid(), signal.SIGINT)

    client = A2AClient(CannedAgent().app)
    with in_terminal(monkeypatch), client_thread.ClientThread(client) as thread:
        Thread(target=press, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            thread.run(call)
        is_canceled = ended.is_set()
        thread.run(release)  # else the thread would wait for a call that goes on
    assert is_canceled


@pytest.mark.parametrize('started', [True, False], ids=['after start', 'before start'])
def test_ctrl_c_at_start_of_call_cancels_it(monkeypatch: pytest.MonkeyPatch, started: bool) -> None:
    begun, ended = Event(), Event()

    async def call() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    client = A2AClient(CannedAgent().app)
    with in_terminal(monkeypatch), client_thread.ClientThread(client) as thread:
        start = thread.start

        def interrupted(function: Any) -> Any:
            if started:
                start(function)
                begun.wait(LIMIT)
            raise KeyboardInterrupt

        monkeypatch.setattr(thread, 'start', interrupted)
        with pytest.raises(KeyboardInterrupt):
            thread.run(call)
        assert ended.is_set() == started


def test_failed_cancel_at_end_of_input_names_task(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = task_in_state('INPUT_REQUIRED')
    canned = CannedAgent(
        stream_response({'task': waiting}), result_response(waiting), error_response(-32002, 'Too late.')
    )
    with serve_canned(canned) as server:
        code, terminal = run_at_terminal(monkeypatch, 'send', server.url, 'hello', typed='\x04')
    assert (code, 'the task t could not be canceled: Too late.' in terminal.text) == (130, True)


PLAIN = ('rich.console', 'pydantic_ai_a2a.commands.rich_screen', 'prompt_toolkit')
"""Modules of the extra `cli`."""


def test_chat_without_cli_extra_prints_plain_text(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in PLAIN:
        monkeypatch.setitem(sys.modules, module, None)

    steps = [('> ', ''), ('> ', '\x04')]
    code, terminal = run_at_terminal(monkeypatch, 'chat', url, typed='hello\n', steps=steps)
    assert code == 0
    assert 'You said **hello** with 0 files.' in terminal.text


def test_ctrl_c_at_plain_prompt_ends_chat(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in PLAIN:
        monkeypatch.setitem(sys.modules, module, None)

    def interrupted(prompt: str) -> str:
        # A signal of the test could come just before the read, which the signal would not interrupt.
        raise KeyboardInterrupt

    monkeypatch.setattr('builtins.input', interrupted)
    code, terminal = run_at_terminal(monkeypatch, 'chat', url)
    assert code == 130
    assert '/exit ends' in terminal.text
    assert terminal.text.rstrip().endswith('interrupted')


def test_chat_in_terminal_answers_approves_and_cancels(url: str) -> None:
    with process_in_terminal('chat', url) as (terminal, process):
        terminal.until('/exit ends')
        terminal.until_prompt()
        type_line(terminal, 'hello', 'You said hello with 0 files.')
        terminal.until_prompt(2)
        type_line(terminal, 'delete', 'Approve?')
        type_line(terminal, 'y', 'The tool says: deleted a.txt')
        terminal.until_prompt(3)
        type_line(terminal, 'wait', 'You said wait')
        terminal.type('\x03')
        terminal.until('is canceled')
        terminal.until_prompt(4)
        terminal.type('/new\r')
        terminal.until_prompt(5)
        terminal.type('/exit\r')
        assert process.wait(LIMIT) == 0
    terminal.close()


def type_line(terminal: Terminal, text: str, answer: str) -> None:
    terminal.type(f'{text}\r')
    terminal.until(answer)


def test_chat_without_terminal_reads_lines(
    url: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chat(lines: str) -> Outcome:
        (tmp_path / 'lines').write_text(lines)
        with (tmp_path / 'lines').open() as stdin, monkeypatch.context() as patch:
            patch.setattr('sys.stdin', stdin)
            return run_command(capsys, 'chat', url)

    said = chat('one\n\n/new\n/help\ntwo')
    assert (said.code, said.out) == (0, 'You said **one** with 0 files.\nYou said **two** with 0 files.\n')
    assert without_ids(said.err) == 2 * (
        'pydantic-ai-a2a: /new begins a new conversation, /help shows this, /exit ends, and Ctrl-C cancels the running'
        ' task\n'
    )
    assert chat('/exit\nthree\n').out == ''
    waiting = chat('InputRequired\nthree\n')
    assert (waiting.code, waiting.out) == (3, 'Which pizza?\n')
