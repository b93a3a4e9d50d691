"""Every kind of pool, and the one table of what a pool is not asked.

Each test of the modules ``test_pool*.py`` is run with every pool (``conftest.py`` sees to that),
but for those that a line here leaves out, with the reason. ``test_opt_outs.py`` sees that there is
no other way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.conformance.loop_sides import CallersTasks, Inline, OwnTasks
from tests.conformance.pool_sides import (
    Batches,
    CallTasks,
    Fake,
    FakeInstances,
    FakeLeases,
    FakeProcesses,
    FakeTasks,
    Instances,
    Later,
    Members,
    Side,
    Split,
    Tasks,
    Threads,
)
from tests.conformance.process_side import Processes

REAL: tuple[type[Side], ...] = (
    *(Threads, Instances, Inline, Processes, Batches),
    *(Tasks, OwnTasks, CallersTasks, CallTasks, Members, Split),
)
"""``Tasks`` are coroutines on a loop that the test turns, the next two those on a real one."""

FAKES: tuple[type[Side], ...] = (
    *(Fake, Later, FakeInstances, FakeProcesses, FakeTasks, FakeLeases),
)
"""What the tests of the core and the simulation have instead, each playing one of the others."""

POOLS: Mapping[str, type[Side]] = {each.__name__: each for each in (*REAL, *FAKES)}


class OptOut(NamedTuple):
    """These tests, by their names, are not asked of these pools."""

    pools: str
    tests: str
    why: str


ONE_BY_ONE = "Batches Tasks OwnTasks CallersTasks CallTasks Members Split"
COROUTINES = "Tasks OwnTasks CallersTasks CallTasks"
MEMBERS = "Members Split"
SERIAL = "Threads Instances Inline Processes"
PLAYED = " ".join(each.__name__ for each in FAKES)

TABLE: tuple[OptOut, ...] = (
    OptOut(
        ONE_BY_ONE,
        """
        test_slices_are_run_in_order_and_each_ends_once
        test_a_failed_lane_is_set_aside_in_order_until_its_fence
        test_a_recall_takes_back_what_has_not_started_of_a_slice
        test_what_the_handler_dropped_is_named_at_the_end
        test_a_successor_goes_on_in_the_slice_in_which_its_predecessor_ended
        test_who_could_not_be_replaced_is_named_until_it_is_abandoned
        """,
        "it settles its records one by one, so each of its slices has one",
    ),
    OptOut(
        f"{SERIAL} Batches {COROUTINES} {PLAYED}",
        """
        test_members_settle_in_any_order_and_all_that_they_have_runs
        test_a_record_that_a_member_has_goes_back_unrun_with_its_lane
        test_a_word_about_a_lease_that_has_lapsed_is_refused
        test_a_word_after_the_end_is_refused_and_posts_nothing
        test_nothing_is_received_once_nothing_comes_any_more
        """,
        "a handler says nothing of a record but how it ends",
    ),
    OptOut(
        f"{SERIAL} {ONE_BY_ONE} Fake FakeInstances FakeProcesses FakeTasks FakeLeases",
        """
        test_nothing_has_come_back_before_the_worker_gets_to_it
        test_a_worker_that_goes_on_first_gives_back_what_is_left_then
        test_a_pool_that_loses_a_worker_answers_in_its_place
        """,
        "when it answers a recall is its own: the fake answers when the test says so",
    ),
    OptOut(
        f"{ONE_BY_ONE} Processes FakeProcesses FakeTasks FakeLeases",
        "test_a_late_result_is_reported_as_any_other_and_once",
        "nothing of it is stuck within a slice of several",
    ),
    OptOut(
        "Inline",
        "test_what_runs_past_its_time_is_ended_or_stuck_and_only_its_lane_waits "
        "test_it_may_be_asked_again_and_what_has_ended_meanwhile_is_not_stuck "
        "test_a_late_result_is_reported_as_any_other_and_once",
        "its owner is in the handler, and sees that time is over when it is out of it",
    ),
    OptOut(
        "Inline",
        """
        test_a_stop_names_who_still_runs_and_nothing_starts_any_more
        test_of_whoever_is_gone_everything_is_reported_as_over_and_once
        test_a_successor_goes_on_in_the_slice_in_which_its_predecessor_ended
        test_who_could_not_be_replaced_is_named_until_it_is_abandoned
        """,
        "its thread is its owner's: who ends it, or stops it in a record, has ended the owner",
    ),
    OptOut(
        "OwnTasks",
        "test_of_whoever_is_gone_everything_is_reported_as_over_and_once",
        "nothing that a handler does ends its thread (test_what_stops_the_loop_stops_nothing)",
    ),
    OptOut(
        f"Instances FakeInstances Processes FakeProcesses FakeLeases Inline {ONE_BY_ONE}",
        "test_what_is_stuck_beside_a_worker_that_is_given_up_is_reported_when_it_ends",
        "nothing runs on beside its worker, or no such worker is given up",
    ),
    OptOut(
        f"Inline Tasks {PLAYED}",
        """
        test_under_failures_revokes_and_resizes_each_record_settles_once_in_order
        test_records_that_hang_cost_their_own_lanes_and_settle_once_in_order
        test_threads_that_die_cost_an_attempt_and_nothing_else
        test_a_worker_that_comes_back_within_six_heartbeats_keeps_its_keys
        """,
        "there is no instance around it, or the test turns it",
    ),
    OptOut(
        f"OwnTasks CallersTasks CallTasks Processes Instances {MEMBERS}",
        "test_records_that_hang_cost_their_own_lanes_and_settle_once_in_order",
        "what hangs is ended there, or nobody goes on beside it",
    ),
    OptOut(
        f"OwnTasks CallersTasks CallTasks Processes Batches {MEMBERS}",
        """
        test_threads_that_die_cost_an_attempt_and_nothing_else
        test_a_worker_that_comes_back_within_six_heartbeats_keeps_its_keys
        """,
        "the thread of such a worker does not report, or dies otherwise",
    ),
    OptOut(
        f"{MEMBERS} {PLAYED}",
        """
        test_whatever_a_handler_raises_is_a_failed_attempt_and_its_worker_goes_on
        test_what_a_handler_has_raised_is_freed_at_once
        test_what_a_handler_leaves_behind_no_other_record_sees
        """,
        "it has no handler: whoever works there says how a record has ended",
    ),
    OptOut(
        MEMBERS,
        "test_of_a_key_a_record_starts_when_the_one_before_it_has_ended",
        "what a member has received is its own; that it gets one of a key is the core's to see to",
    ),
    OptOut(
        MEMBERS,
        """
        test_state_is_given_up_behind_what_a_worker_has_and_there_before_what_it_gets
        test_state_that_comes_does_not_wait_for_what_is_to_be_given_up
        test_state_that_cannot_be_given_up_is_answered_with_the_reason
        """,
        "what a member remembers of its keys is its own code's, and goes nowhere",
    ),
    OptOut(
        f"Tasks CallTasks {MEMBERS} {PLAYED}",
        "test_a_pool_that_has_nothing_to_do_does_nothing",
        "it has no thread",
    ),
    OptOut(
        f"{MEMBERS} {PLAYED}",
        "test_a_thousand_resizes_leave_nothing_behind",
        "members are there from the start; a fake keeps its workers for the test to look at",
    ),
)


CASES: Mapping[str, str] = {
    "serial per key": """
        test_of_a_key_a_record_starts_when_the_one_before_it_has_ended
        test_whatever_comes_in_whatever_order_the_rules_hold
    """,
    "offset order": """
        test_records_are_handed_over_in_order_and_each_slice_ends_once
        test_slices_are_run_in_order_and_each_ends_once
        test_members_settle_in_any_order_and_all_that_they_have_runs
    """,
    "fences": """
        test_a_fence_comes_back_behind_what_was_given_of_its_lanes_and_clears_only_these
        test_a_failed_lane_is_set_aside_in_order_until_its_fence
    """,
    "hand-back": """
        test_behind_a_failure_its_lane_comes_back_unrun_and_in_order_until_the_fence
        test_records_without_keys_never_set_each_other_aside
        test_a_record_that_a_member_has_goes_back_unrun_with_its_lane
    """,
    "recall": """
        test_a_recall_gives_back_exactly_what_has_not_started
        test_a_recall_with_a_selector_leaves_the_slices_that_it_does_not_name
        test_a_recall_takes_back_what_has_not_started_of_a_slice
        test_a_worker_that_has_nothing_answers_that
        test_nothing_has_come_back_before_the_worker_gets_to_it
        test_a_worker_that_goes_on_first_gives_back_what_is_left_then
    """,
    "late and double results": """
        test_what_ends_after_its_partition_has_gone_settles_nothing_and_is_counted
        test_a_lease_that_has_lapsed_is_reported_as_any_other
        test_a_late_result_is_reported_as_any_other_and_once
        test_a_word_about_a_lease_that_has_lapsed_is_refused
        test_a_word_after_the_end_is_refused_and_posts_nothing
    """,
    "cancel": """
        test_what_runs_past_its_time_is_ended_or_stuck_and_only_its_lane_waits
        test_it_may_be_asked_again_and_what_has_ended_meanwhile_is_not_stuck
    """,
    "drain": """
        test_who_is_to_go_gives_back_what_waits_ends_what_runs_and_others_go_on
        test_under_failures_revokes_and_resizes_each_record_settles_once_in_order
    """,
    "death": """
        test_of_whoever_is_gone_everything_is_reported_as_over_and_once
        test_a_successor_goes_on_in_the_slice_in_which_its_predecessor_ended
        test_a_pool_that_loses_a_worker_answers_in_its_place
    """,
    "unpicklable or huge exceptions, BaseException": """
        test_whatever_a_handler_raises_is_a_failed_attempt_and_its_worker_goes_on
    """,
    "state of one record in the next": "test_what_a_handler_leaves_behind_no_other_record_sees",
    "no cycles": "test_what_a_handler_has_raised_is_freed_at_once",
    "back-pressure": """
        test_a_worker_has_no_more_in_hand_than_it_is_leased_and_the_rest_waits_in_the_window
    """,
    "state hand-over": """
        test_state_is_given_up_behind_what_a_worker_has_and_there_before_what_it_gets
        test_state_that_comes_does_not_wait_for_what_is_to_be_given_up
        test_state_that_cannot_be_given_up_is_answered_with_the_reason
        test_who_is_asked_for_state_answers_once
    """,
    "idle cost": "test_a_pool_that_has_nothing_to_do_does_nothing",
    "no leak over 1,000 resizes": "test_a_thousand_resizes_leave_nothing_behind",
}
"""What the contract asks of a pool, and the tests that ask it."""

RESIZES: Mapping[str, int] = {"Processes": 10}
"""How many resizes leave nothing behind, where a thousand take too long: a process takes a fifth of
a second to start."""


def pools_of(test: str) -> dict[str, type[Side]]:
    """Return the pools that a test is asked of."""
    out = {name for line in TABLE if test in line.tests.split() for name in line.pools.split()}
    return {name: kind for name, kind in POOLS.items() if name not in out}
