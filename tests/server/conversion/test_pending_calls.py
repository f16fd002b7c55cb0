"""Calls that wait for clients: which answers they take, and what a run goes on with."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart

from pydantic_ai_a2a import Approvals, to_a2a
from pydantic_ai_a2a.errors import InvalidParamsError
from pydantic_ai_a2a.server.conversion.answers_in_words import verdict
from pydantic_ai_a2a.server.conversion.call_answers import answered
from pydantic_ai_a2a.server.conversion.deferred_results import run_results
from pydantic_ai_a2a.server.conversion.forwarded_questions import calls_for_clients
from pydantic_ai_a2a.server.conversion.pending_calls import CallAnswer, Kind, Pending, PendingCall, still_shown
from pydantic_ai_a2a.server.conversion.status_parts import shown
from pydantic_ai_a2a.types import Message, Part
from pydantic_ai_a2a.wire.extensions.remote_calls import ANSWER, WAITING, sign_in
from pydantic_ai_a2a.wire.schemas.value_validation import problem

from ...cases import each_case

APPROVALS = ('yes', 'Yes.', 'y', 'Ok.', '\tOKAY!!\n', 'APPROVED')
DENIALS = ('no', 'N', '  NO!\n', 'no:', 'deny')
UNCLEAR = (
    *('', '.', 'maybe', 'yes:', 'yes?', '"yes"', 'yes\u200b', 'not yes', 'yes no', 'yes\nno'),
    *('yes, please', 'yes: but another one', 'yes but no', 'no way, yes'),
)


@each_case(
    'text, decided',
    [
        *((text, ('approve', None)) for text in APPROVALS),
        *((text, ('deny', None)) for text in DENIALS),
        ('Denied : too risky!', ('deny', 'too risky!')),
        ('No: keep it', ('deny', 'keep it')),
        *((text, None) for text in UNCLEAR),
    ],
)
def test_plain_text_decision_must_be_whole_known_word(text: str, decided: Any) -> None:
    assert verdict(text) == decided


@pytest.mark.parametrize('kind', ['approval', 'question', 'external'])
@pytest.mark.parametrize('changeable', [True, False])
def test_answer_schema_allows_exactly_the_accepted_answers(kind: Kind, changeable: bool) -> None:
    rules = Approvals(change_arguments=changeable)
    call = PendingCall(id='c', kind=kind, tool='t', text='', args={}, schema={'type': 'object'})
    pending = Pending(calls=[call])
    data: Any = shown(pending, rules, 'task')[1].get('data')
    schema = data['pending'][0]['answerSchema']

    def is_taken(answer: dict[str, Any]) -> bool:
        message = Message(role='user', parts=[Part(data={'callAnswers': [answer]})], message_id='m')
        try:
            answered(pending, message, by='', rules=rules, late=False, limit=1, readable=pending)
        except InvalidParamsError:
            return False
        return True

    values: list[Any] = ['', 'x', {}]
    contents: list[dict[str, Any]] = [{name: value} for name in ('reason', 'args', 'result') for value in values]
    possible = [
        {'id': 'c', 'decision': decision, **content}
        for decision in ('approve', 'deny', 'result', 'retry')
        for content in [{}, *contents]
    ]
    fitting = [answer for answer in possible if problem(answer, schema, '') is None]
    assert fitting == [answer for answer in possible if is_taken(answer)]
    assert fitting


def look() -> None:
    """Look."""


def delete() -> None:
    """Delete."""


@pytest.mark.parametrize(
    ('options', 'error', 'match'),
    [
        ({'plain_text_answers': 'questions'}, ValueError, "takes 'none', 'deny', 'all' or a list or a set of strings"),
        ({'plain_text_answers': True}, TypeError, 'plain_text_answers takes'),
        ({'plain_text_answers': ['delete', 'lok']}, ValueError, "plain_text_answers has 'lok'.* Did you mean 'look'"),
        ({'change_arguments': 'delete'}, TypeError, 'change_arguments takes True or False or a list or a set'),
        ({'change_arguments': ['lok']}, ValueError, "change_arguments has 'lok'.* Did you mean 'look'"),
    ],
)
def test_invalid_approvals_option_is_refused(options: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        to_a2a(Agent('test', tools=[look, delete]), approvals=Approvals(**options))


LOCAL = ToolCallPart('ask', {'message': 'go'}, 'local')


def pending_remote_calls(*remote: dict[str, Any], **answers: CallAnswer) -> Pending:
    waiting = {'state': 'input-required', 'text': '', 'pending': [{'text': 'May I?', **call} for call in remote]}
    call = PendingCall(id='local', kind='approval', tool='ask', text='', metadata={WAITING: waiting})
    calls = calls_for_clients(LOCAL, call, ())
    return Pending(calls=calls, answers=answers, shown_calls=['local'])


def test_answers_to_remote_calls_form_single_tool_result() -> None:
    several = pending_remote_calls(
        {'id': 'a', 'kind': 'approval', 'tool': 'delete', 'args': {'path': 'a'}},
        {'id': 'b', 'kind': 'question', 'tool': 'count'},
        **{
            'local.a': CallAnswer(decision='approve', args={'path': 'b'}, by='ann'),
            'local.b': CallAnswer(decision='result', result=3, by='ann'),
        },
    )
    results = run_results(several)
    assert (list(results.approvals), list(results.calls), list(results.metadata)) == (['local'], [], ['local'])
    assert results.answered_by == {'local': 'ann'}
    [part] = results.metadata['local'][ANSWER]['parts']
    assert part['data']['callAnswers'] == [
        {'id': 'a', 'decision': 'approve', 'args': {'path': 'b'}},
        {'id': 'b', 'decision': 'result', 'result': 3},
    ]
    assert still_shown(several) == {'local'}


def test_remote_call_metadata_cannot_name_another_task() -> None:
    foreign = {WAITING: {'task': 'another'}, 'cost': 3}
    [call] = pending_remote_calls({'id': 'a', 'kind': 'approval', 'tool': 'x', 'metadata': foreign}).calls
    assert call.metadata is not None
    assert call.metadata['cost'] == 3
    assert call.metadata[WAITING]['pending'][0]['id'] == 'a'
    details = {'id': 'a', 'kind': 'approval', 'tool': 'x', 'text': '', 'metadata': foreign}
    part = ToolCallPart('remote_approval', {}, 'a', provider_name='a2a', provider_details=details)
    [call] = calls_for_clients(part, PendingCall(id='a', kind='approval', tool='remote_approval', text=''), ())
    assert WAITING not in (call.metadata or {})


def test_malformed_sign_in_fields_are_ignored() -> None:
    assert sign_in({'authorization': {'schemes': ['sso', 3], 'url': 4}}) == {'schemes': ['sso']}
    assert sign_in({'authorization': {'schemes': 'sso', 'url': 'https://x.example'}}) == {'url': 'https://x.example'}
    assert sign_in({'pending': [{'id': 'a'}, {'metadata': {'url': 'https://y.example'}}]}) == {
        'url': 'https://y.example'
    }
    assert sign_in({}) == {}


def test_unanswered_call_is_never_approved() -> None:
    call = PendingCall(id='c1', kind='approval', tool='delete', text='May I?')
    with pytest.raises(KeyError):
        run_results(Pending(calls=[call]))
