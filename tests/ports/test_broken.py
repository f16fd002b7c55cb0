"""The suites can fail: for each backend of `broken`, the test that is named here does, and over a sound one passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ..bounds import LIMIT

BROKEN = {
    'LosesAnEvent': 'test_a_reader_gets_what_is_stored_and_then_what_comes',
    'ForgetsCheckpoints': 'test_the_next_holder_is_given_the_checkpoint',
    'WritesByHalves': 'test_a_write_that_breaks_off_leaves_nothing_behind',
    'TellsTooEarly': 'test_readers_are_told_of_events_only_once_they_are_stored',
    'ForgetsTheFence': 'test_a_claim_that_was_taken_away_writes_nothing',
    'ForgetsAttempts': 'test_a_task_is_taken_over_once_its_lease_has_run_out',
    'CountsHandedBack': 'test_whatever_happens_the_queue_keeps_its_promises',
    'NeverHandsBack': 'test_a_task_that_was_handed_back_keeps_its_context_and_its_attempt',
    'ForgetsPauses': 'test_a_released_task_is_found_once_its_pause_is_over',
    'ForgetsTries': 'test_the_failed_tries_of_a_run_are_given_to_its_next_holder_and_not_to_the_next_run',
    'ForgetsOwnersLimits': 'test_an_owner_at_its_limit_leaves_the_other_slots_to_others',
    'ForgetsPausedQueues': 'test_a_paused_queue_accepts_tasks_and_lets_none_be_claimed',
    'ForgetsContexts': 'test_tasks_of_one_context_are_claimed_one_after_the_other',
    'ReplaysFromNow': 'test_a_message_to_a_task_is_replayed_from_where_the_task_was_then',
    'CancelsForAnyone': 'test_only_its_owner_or_one_who_acts_for_all_cancels_a_task',
    'CancelsWhatHasEnded': 'test_a_run_that_completes_although_it_was_asked_to_stop_has_won',
    'DropsMetadata': 'test_metadata_stays_until_it_is_replaced',
    'LosesWhatIsUnread': 'test_a_message_that_entered_a_run_is_read_when_the_run_ends',
    'ReadsTwice': 'test_a_task_whose_messages_have_all_entered_its_run_ends',
    'TakesWhateverComes': 'test_a_message_only_for_a_task_that_waits_is_refused_by_one_that_does_not',
    'EndsWhateverPause': 'test_a_message_for_one_pause_is_refused_by_a_task_that_has_gone_on',
    'ForgetsWhatEntered': 'test_a_message_in_a_checkpoint_is_not_given_to_the_next_holder',
    'FindsWhatWasRead': 'test_a_run_finds_the_messages_that_came_meanwhile_in_their_order',
    'TakesItsInputsApart': 'test_what_a_run_writes_stays_as_it_was_whoever_changes_it_later',
    'ReadsForAnyone': 'test_a_task_is_read_by_its_owner_or_one_who_may_read_all',
    'ListsForAnyone': 'test_the_tasks_of_a_context_are_those_of_its_owner',
    'ReadsWhatWas': 'test_artifacts_are_read_as_they_are_so_far_and_only_if_asked_for',
    'StartsTooLate': 'test_a_reader_gets_what_is_stored_and_then_what_comes',
    'HasEverything': 'test_a_log_can_be_resumed_from_each_of_its_events_and_no_other',
    'SeesNobody': 'test_a_task_is_watched_while_it_has_a_reader',
    'ErasesForAnyone': 'test_only_their_owner_erases_tasks_and_contexts',
    'RetriesAgain': 'test_a_dead_letter_is_not_retried_twice_by_accident',
    'KeepsEverything': 'test_a_finished_task_goes_after_its_time_and_its_conversation_stays',
    'OneConversationForAll': 'test_owners_do_not_see_each_others_conversations',
    'TellsElsewhere': 'test_listeners_hear_in_the_thread_and_context_of_who_acts',
}
BROKEN_PUSH = {
    'ServesWhoComesFirst': 'test_no_owner_gets_more_than_are_left_for_others',
    'GivesUpAtOnce': 'test_what_failed_is_tried_again_at_its_time_and_before_what_follows',
    'KeepsWhatItHas': 'test_what_is_handed_back_may_be_tried_at_once',
    'TellsOfAllDead': 'test_dead_ones_are_listed_by_owner_and_page',
    'SweepsTheUntold': 'test_it_stays_until_they_have_been_told_however_old_it_is',
}
BROKEN_FILES = {
    'one_agent': 'test_agents_that_share_a_store_have_nothing_to_do_with_each_other',
    'lets_everybody_go': 'test_who_waits_for_tasks_that_go_on_in_another_process_is_let_go',
    'shares_its_tasks': 'test_two_workers_of_one_process_do_not_share_the_tasks_of_an_agent',
    'a_file_each': 'test_what_one_process_leaves_the_next_one_finds',
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
def test_every_fault_is_caught_by_its_test_and_none_is_found_where_there_is_none(tmp_path: Path) -> None:
    faults = [f'TestBroken::{test}[{fault}]' for fault, test in BROKEN.items()]
    faults += [f'TestBrokenPush::{test}[{fault}]' for fault, test in BROKEN_PUSH.items()]
    faults += [f'TestBrokenFile::{test}[{fault}]' for fault, test in BROKEN_FILES.items()]
    sound = [f'TestBroken::{test}[MemoryBackend]' for test in dict.fromkeys(BROKEN.values())]
    sound += [f'TestBrokenPush::{test}[MemoryBackend]' for test in BROKEN_PUSH.values()]
    sound += [f'TestBrokenFile::{test}[sound]' for test in BROKEN_FILES.values()]
    expected = {**dict.fromkeys(faults, 'failure'), **dict.fromkeys(sound, 'passed')}
    assert run(tmp_path, *expected) == {test.partition('::')[2]: ending for test, ending in expected.items()}
