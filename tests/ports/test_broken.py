"""The suites can fail: for each backend of `broken`, the test that is named here does, and over a sound one passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ..bounds import LIMIT

BROKEN = {
    'LosesAnEvent': 'test_subscriber_gets_stored_events_then_new_events',
    'ForgetsCheckpoints': 'test_next_holder_gets_checkpoint',
    'WritesByHalves': 'test_failing_write_is_rolled_back',
    'TellsTooEarly': 'test_events_reach_subscriber_only_after_commit',
    'ForgetsTheFence': 'test_stale_claim_writes_nothing',
    'ForgetsAttempts': 'test_expired_lease_lets_another_holder_claim_task',
    'CountsHandedBack': 'test_random_schedule_of_task_queue_matches_model',
    'NeverHandsBack': 'test_released_task_keeps_attempt_and_blocks_its_context',
    'ForgetsPauses': 'test_released_task_is_claimed_after_its_pause',
    'ForgetsTries': 'test_failed_tries_are_kept_until_run_ends',
    'ForgetsOwnersLimits': 'test_running_limit_leaves_slots_to_other_owners',
    'ForgetsPausedQueues': 'test_paused_queue_accepts_tasks_but_allows_no_claims',
    'ForgetsContexts': 'test_tasks_of_same_context_are_claimed_sequentially',
    'ReplaysFromNow': 'test_repeated_message_replays_events_since_first_send',
    'CancelsForAnyone': 'test_cancel_of_task_of_another_owner_is_not_found',
    'CancelsWhatHasEnded': 'test_run_completing_after_cancel_request_stays_completed',
    'DropsMetadata': 'test_task_metadata_stays_until_replaced',
    'LosesWhatIsUnread': 'test_message_taken_into_run_is_not_run_again',
    'ReadsTwice': 'test_task_ends_when_run_has_taken_all_messages',
    'TakesWhateverComes': 'test_message_requiring_interrupted_task_is_refused_by_live_task',
    'EndsWhateverPause': 'test_message_for_earlier_pause_is_refused',
    'ForgetsWhatEntered': 'test_next_holder_gets_only_messages_missing_from_checkpoint',
    'FindsWhatWasRead': 'test_running_task_reads_unread_messages_in_order',
    'TakesItsInputsApart': 'test_mutating_values_after_write_does_not_change_store',
    'ReadsForAnyone': 'test_task_of_another_owner_is_not_readable',
    'ListsForAnyone': 'test_context_filter_lists_only_tasks_of_owner',
    'ReadsWhatWas': 'test_artifacts_of_running_task_are_read_as_streamed',
    'StartsTooLate': 'test_subscriber_gets_stored_events_then_new_events',
    'HasEverything': 'test_event_log_resumes_only_from_existing_events',
    'SeesNobody': 'test_task_is_watched_while_subscribed',
    'ErasesForAnyone': 'test_erasing_by_another_owner_deletes_nothing',
    'RetriesAgain': 'test_concurrent_retries_of_dead_letter_create_single_task',
    'KeepsEverything': 'test_sweep_deletes_old_task_and_keeps_conversation',
    'OneConversationForAll': 'test_conversations_of_another_owner_are_invisible',
    'TellsElsewhere': 'test_hint_runs_in_thread_and_contextvars_of_request',
}
BROKEN_PUSH = {
    'ServesWhoComesFirst': 'test_owner_leases_only_its_share_of_deliveries',
    'GivesUpAtOnce': 'test_failed_delivery_is_retried_before_following_deliveries',
    'KeepsWhatItHas': 'test_released_delivery_can_be_leased_at_once',
    'TellsOfAllDead': 'test_dead_deliveries_are_listed_by_owner_and_page',
    'SweepsTheUntold': 'test_task_is_kept_until_its_webhooks_are_notified',
}
BROKEN_FILES = {
    'one_agent': 'test_agents_in_shared_store_are_isolated',
    'lets_everybody_go': 'test_releasing_waiters_spares_tasks_held_by_process',
    'shares_its_tasks': 'test_second_worker_of_agent_in_process_is_refused',
    'a_file_each': 'test_tasks_and_conversations_survive_process_restart',
}


def run(folder: Path, *tests: str) -> dict[str, str]:
    """Run tests of `broken` in a pytest of their own: how each ended."""
    report = folder / 'report.xml'
    here = [f'{Path(__file__).with_name("broken.py")}::{test}' for test in tests]
    options = ['-q', '-p', 'no:cacheprovider', '-p', 'no:xdist', f'--junitxml={report}']
    done = subprocess.run(
        [sys.executable, '-m', 'pytest', *options, *here], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert report.exists(), done.stdout + done.stderr
    cases = ElementTree.parse(report).iter('testcase')
    return {case.attrib['name']: _ending(case) for case in cases}


def _ending(case: ElementTree.Element) -> str:
    """`passed` or `failure`; the error if the backend could not even be made."""
    if not len(case):
        return 'passed'
    message = case[0].attrib.get('message', '')
    return message if message.startswith('TypeError') else case[0].tag


@pytest.mark.slow
def test_suites_catch_each_seeded_fault(tmp_path: Path) -> None:
    faults = [f'TestBroken::{test}[{fault}]' for fault, test in BROKEN.items()]
    faults += [f'TestBrokenPush::{test}[{fault}]' for fault, test in BROKEN_PUSH.items()]
    faults += [f'TestBrokenFile::{test}[{fault}]' for fault, test in BROKEN_FILES.items()]
    sound = [f'TestBroken::{test}[MemoryBackend]' for test in dict.fromkeys(BROKEN.values())]
    sound += [f'TestBrokenPush::{test}[MemoryBackend]' for test in BROKEN_PUSH.values()]
    sound += [f'TestBrokenFile::{test}[sound]' for test in BROKEN_FILES.values()]
    expected = {**dict.fromkeys(faults, 'failure'), **dict.fromkeys(sound, 'passed')}
    assert run(tmp_path, *expected) == {test.partition('::')[2]: ending for test, ending in expected.items()}
