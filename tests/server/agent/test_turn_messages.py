"""A turn of a conversation: what of its messages is stored at each step, and how the next one continues it."""

from __future__ import annotations

from dataclasses import replace

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage
from pydantic_ai.workspaces import WorkspaceRef

from pydantic_ai_a2a.server.agent.turn_messages import Turn
from pydantic_ai_a2a.server.store.conversation_turns import appended, closed_turn
from pydantic_ai_a2a.server.store.ports import Checkpoint
from pydantic_ai_a2a.types import Note

PROMPT = ModelRequest(parts=[UserPromptPart('hi')])
CALL = ModelResponse(parts=[ToolCallPart('work', {}, 'call')])
RETURN = ModelRequest(parts=[ToolReturnPart('work', 'done', 'call')])
ANSWER = ModelResponse(parts=[TextPart('all')])


class CheckpointLog(list[tuple[int, list[ModelMessage]]]):
    """The checkpoints of a run: from which message on, and which."""

    async def save(self, checkpoint: Checkpoint, _: Note | None) -> None:
        self.append((checkpoint.first, [*checkpoint.messages]))

    def turn(self, *before: ModelMessage) -> Turn:
        usage = RunUsage(requests=1)
        checkpoint = Checkpoint(run='t.1', messages=before, usage=usage) if before else None
        return Turn('t.1', checkpoint, self.save)


async def store_step(turn: Turn, *new: ModelMessage, unsent: ModelRequest | None = None) -> bool:
    return await turn.step(new, unsent, RunUsage(), None)


async def test_step_stores_new_messages_and_repeats_sent_request() -> None:
    stored = CheckpointLog()
    turn = stored.turn()
    assert await store_step(turn, PROMPT, CALL)
    assert await store_step(turn, PROMPT, CALL, unsent=RETURN)
    assert await store_step(turn, PROMPT, CALL, RETURN, ANSWER)
    assert stored == [(0, [PROMPT, CALL]), (2, [RETURN]), (2, [RETURN, ANSWER])]


async def test_answered_call_results_are_stored_before_model_request() -> None:
    stored = CheckpointLog()
    turn = Turn('t.2', None, stored.save, answers=True)
    assert not await store_step(turn)
    assert await store_step(turn, unsent=RETURN)
    assert await store_step(turn, RETURN, ANSWER, unsent=PROMPT)
    assert stored == [(0, [RETURN]), (0, [RETURN, ANSWER, PROMPT])]


async def test_answered_call_results_are_kept_apart_from_earlier_results() -> None:
    stored = CheckpointLog()
    turn = stored.turn(RETURN)
    earlier = ModelRequest(parts=[ToolReturnPart('look', 'seen', 'other call')])
    assert turn.after([PROMPT, CALL, earlier]) == [PROMPT, CALL, earlier, RETURN]
    turn.sent_again(ModelRequest(parts=[*earlier.parts, *RETURN.parts], instructions='Be brief.'))
    assert turn.all([ANSWER]) == [replace(RETURN, instructions='Be brief.'), ANSWER]


async def test_enqueued_messages_are_stored_beside_request_metadata() -> None:
    stored = CheckpointLog()
    returned = replace(RETURN, metadata={'cost': 3})
    assert await stored.turn().step([PROMPT, CALL], returned, RunUsage(), None, enqueued='[]')
    [(_, messages)] = stored
    assert messages[:2] == [PROMPT, CALL]
    again = stored.turn(*messages)
    assert (again.enqueued, again.before) == ('[]', [PROMPT, CALL, returned])


async def test_prompt_or_final_answer_alone_is_not_stored() -> None:
    stored = CheckpointLog()
    turn = stored.turn()
    for new in ([], [PROMPT], [PROMPT, ANSWER]):
        assert not await store_step(turn, *new)
    assert not await store_step(turn, PROMPT, unsent=RETURN)
    assert stored == []


async def test_rejected_answer_is_stored_with_its_retry_request() -> None:
    stored = CheckpointLog()
    assert await store_step(stored.turn(), PROMPT, ANSWER, unsent=RETURN)
    assert stored == [(0, [PROMPT, ANSWER, RETURN])]


async def test_messages_changed_by_history_processor_are_stored_again() -> None:
    stored = CheckpointLog()
    turn = stored.turn()
    await store_step(turn, PROMPT, CALL, RETURN, CALL)
    changed = replace(CALL)
    await store_step(turn, PROMPT, changed, RETURN, ANSWER)
    await store_step(turn, PROMPT, changed, unsent=RETURN)
    assert stored[1:] == [(1, [changed, RETURN, ANSWER]), (2, [RETURN])]


async def test_response_is_stored_again_with_its_new_workspace() -> None:
    stored = CheckpointLog()
    turn = stored.turn()
    response = replace(CALL)
    await store_step(turn, PROMPT, response)
    response.workspace_ref = WorkspaceRef(provider='folder', id='w')
    await store_step(turn, PROMPT, response, unsent=RETURN)
    assert stored[1:] == [(1, [response, RETURN])]


async def test_later_attempt_adds_to_the_stored_messages() -> None:
    stored = CheckpointLog()
    turn = stored.turn(PROMPT, CALL, RETURN)
    sent = replace(RETURN, instructions='Be brief.')
    turn.sent_again(sent)
    assert await store_step(turn, ANSWER)
    assert stored == [(2, [sent, ANSWER])]
    assert turn.all([ANSWER]) == [PROMPT, CALL, sent, ANSWER]


def test_cancelled_turn_marks_open_tool_calls_as_interrupted() -> None:
    assert closed_turn([]) == []
    assert closed_turn([PROMPT, CALL]) == [PROMPT, replace(CALL, state='interrupted')]
    assert closed_turn([PROMPT, CALL, RETURN, ANSWER]) == [PROMPT, CALL, RETURN, ANSWER]


def test_next_turn_is_appended_to_previous_turn() -> None:
    first, entries = appended(
        None, [PROMPT, ANSWER], conversation_id='c', owner='o', run_id='t.1', usage=RunUsage(requests=1), at=1000
    )
    assert entries == [('t.1.0', None, PROMPT), ('t.1.1', 't.1.0', ANSWER)]
    assert (first.conversation_id, first.scope, first.head_id, first.revision) == ('c', 'o', 't.1.1', 't.1')
    second, entries = appended(first, [PROMPT], conversation_id='c', owner='o', run_id='t.2', usage=None, at=2000)
    assert entries == [('t.2.0', 't.1.1', PROMPT)]
    assert (second.head_id, second.revision, second.usage) == ('t.2.0', 't.2', RunUsage(requests=1))
    assert second.updated_at.timestamp() == 2
