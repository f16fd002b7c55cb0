"""Answers of clients to calls of remote agents, as results of the local calls that wait."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import ToolCallPart

from pydantic_ai_a2a.conversion.pending import CallAnswer, Pending, PendingCall, still_shown
from pydantic_ai_a2a.conversion.remote_calls import ANSWER, WAITING, calls_for_clients, run_results, sign_in

LOCAL = ToolCallPart('ask', {'message': 'go'}, 'local')


def pending(*remote: dict[str, Any], **answers: CallAnswer) -> Pending:
    waiting = {'state': 'input-required', 'text': '', 'pending': [{'text': 'May I?', **call} for call in remote]}
    call = PendingCall(id='local', kind='approval', tool='ask', text='', metadata={WAITING: waiting})
    calls = calls_for_clients(LOCAL, call, ())
    return Pending(calls=calls, answers=answers, shown_calls=['local'])


def test_the_answers_to_the_calls_of_a_task_are_one_result_with_the_caller() -> None:
    several = pending(
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


def test_metadata_of_a_remote_call_names_no_other_task() -> None:
    foreign = {WAITING: {'task': 'another'}, 'cost': 3}
    [call] = pending({'id': 'a', 'kind': 'approval', 'tool': 'x', 'metadata': foreign}).calls
    assert call.metadata is not None
    assert call.metadata['cost'] == 3
    assert call.metadata[WAITING]['pending'][0]['id'] == 'a'
    details = {'id': 'a', 'kind': 'approval', 'tool': 'x', 'text': '', 'metadata': foreign}
    part = ToolCallPart('remote_approval', {}, 'a', provider_name='a2a', provider_details=details)
    [call] = calls_for_clients(part, PendingCall(id='a', kind='approval', tool='remote_approval', text=''), ())
    assert WAITING not in (call.metadata or {})


def test_a_sign_in_may_be_odd() -> None:
    assert sign_in({'authorization': {'schemes': ['sso', 3], 'url': 4}}) == {'schemes': ['sso']}
    assert sign_in({'authorization': {'schemes': 'sso', 'url': 'https://x.example'}}) == {'url': 'https://x.example'}
    assert sign_in({'pending': [{'id': 'a'}, {'metadata': {'url': 'https://y.example'}}]}) == {
        'url': 'https://y.example'
    }
    assert sign_in({}) == {}
