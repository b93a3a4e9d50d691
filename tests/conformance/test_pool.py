"""What the core relies on in every pool, asked of all of them; ``executors/port.py`` says it in
words.

The rules (``tests/conformance/pool_rules.py``) listen throughout: that records start in the order
in which they were given, that a slice ends once and nothing of it is heard afterwards, that nothing
of a failed lane starts before its fence, and the like, hold in every test here.

Every test here is asked of every pool that ``opt_outs.py`` does not name for it, with the reason.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.events import FencePassed, SliceEnded
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.model import Drop
from tests.conformance.loop_sides import CallersTasks, Inline, OwnTasks
from tests.conformance.pool_rules import At, Fate, selecting
from tests.conformance.pool_sides import (
    WAIT,
    WORKER,
    Batches,
    CallTasks,
    Fake,
    FakeInstances,
    FakeLeases,
    FakeProcesses,
    FakeTasks,
    Heard,
    Instances,
    Later,
    Members,
    Side,
    Split,
    Tasks,
    Threads,
)
from tests.conformance.pool_walk import Walk
from tests.conformance.process_side import Processes
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, FakeRecord, record
from tests.support.seeds import seeds
from tests.support.slices import slice_of

SEEDS = seeds(30)
SEEDS_OF: dict[type[Side], Sequence[int]] = {
    Processes: (0, 3, 4, 7),
    OwnTasks: range(6),
    CallersTasks: range(6),
}
"""Of those whose steps take long: these meet all that there is to meet."""

DIES = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def fails(*offsets: int) -> Callable[[FakeRecord], Any]:
    """Let these fail, each time."""
    return lambda item: ERROR if item.offset() in offsets else None


# --- asked of all ---


def test_records_are_handed_over_in_order_and_each_slice_ends_once(side: Side) -> None:
    side.submit(record(1), record(2, None))
    first = side.start()
    side.submit(record(3, "other"))
    assert first.offset() == 1
    side.end()
    assert side.work() == [2, 3]
    assert [each for each in side.rules.said if "SliceEnded" in each] == [
        "SliceEnded 1",
        "SliceEnded 2",
        "SliceEnded 3",
    ]
    assert side.rules.all_over()


def test_progress_before_a_record_runs_while_it_does_and_after(side: Side) -> None:
    one, two = side.submit(record(1, "a"), record(2, "b"))
    side.start()
    progress = side.progress()
    assert [list(progress[each.id].running()) for each in (one, two)] == [[0], []]
    assert [list(progress[each.id].outstanding(1)) for each in (one, two)] == [[0], [0]]
    side.end()
    side.work()
    assert side.progress() == {}


def test_the_failure_is_posted_before_the_next_record_starts(side: Side) -> None:
    """Whoever reads progress first and the mailbox after it knows of every failure before it."""
    side.submit(record(1, "a"), record(2, "b"))
    side.work(fails(1))
    assert side.rules.said == ["start 1", "Failed 1", "SliceEnded 1", "start 2", "SliceEnded 2"]


def test_behind_a_failure_its_lane_comes_back_unrun_and_in_order_until_the_fence(
    side: Side,
) -> None:
    side.submit(record(1, "a"), record(2, "a"), record(3, "b"), record(4, "a"))
    assert side.work(fails(1)) == [1, 3]
    side.submit(record(5, "a"), record(6, "b"))
    assert side.work() == [6]
    side.fence(record(1, "a"))
    side.submit(record(7, "a"))
    assert side.work() == [7]
    mine = [each for each in side.rules.said if each[-1] not in "36"]
    ends = [each for each in mine if each.startswith("SliceEnded")]
    assert [each for each in mine if each not in ends] == [
        *("start 1", "Failed 1", "SetAside 2", "SetAside 4", "SetAside 5"),
        *("FencePassed", "start 7"),
    ]
    assert sorted(ends) == [
        "SliceEnded 1",
        "SliceEnded 2",
        "SliceEnded 4",
        "SliceEnded 5",
        "SliceEnded 7",
    ]
    for each in ("SliceEnded 2", "SliceEnded 4", "SliceEnded 5"):
        assert mine.index(each.replace("SliceEnded", "SetAside")) < mine.index(each)
    assert mine.index("Failed 1") < mine.index("SliceEnded 1")
    assert sorted(mine[mine.index("FencePassed") :]) == ["FencePassed", "SliceEnded 7", "start 7"]


def test_a_fence_comes_back_behind_what_was_given_of_its_lanes_and_clears_only_these(
    side: Side,
) -> None:
    side.submit(record(1, "a"), record(2, "b"), record(3, "a"), record(4, "b"))
    assert side.work(fails(1, 2)) == [1, 2]
    side.fence(record(1, "a"))
    side.submit(record(5, "b"), record(6, "a"))
    assert side.work() == [6]
    side.fence(record(2, "b"))
    side.submit(record(7, "b"))
    assert side.work() == [7]
    passed = [each.lanes for each in side.rules.reports if isinstance(each, FencePassed)]
    assert [lane[2] for (lane,) in passed] == [b"a", b"b"]
    assert side.rules.at(At.ASIDE) == [3, 4, 5]


def test_records_without_keys_never_set_each_other_aside(side: Side) -> None:
    side.submit(record(1, None), record(2, None))
    assert side.work(fails(1, 2)) == [1, 2]
    assert side.rules.at(At.FAILED) == [1, 2]


def test_what_was_written_into_a_record_that_failed_is_gone_when_it_is_reported(side: Side) -> None:
    failed = record(1, "a")
    side.submit(failed, record(2, "a"))

    def writes(item: Any) -> Any:
        item.set_key({"id": 1})
        item.set_value(7)
        item.set_topic("elsewhere")
        return ERROR

    assert side.work(writes) == [1]
    assert (failed.topic(), failed.key(), failed.value()) == ("orders", b"a", b"v" * 10)


def test_a_recall_gives_back_exactly_what_has_not_started(side: Side) -> None:
    side.submit(record(1, "a"))
    side.start()
    two, three = side.submit(record(2, "b"), record(3, "a"))
    assert side.recall() == {two.id: [0], three.id: [0]}
    assert side.recall() == {}, "and each asking has an answer of its own"
    side.end()
    assert side.work() == [], "what came back never runs"
    assert side.rules.all_over()


def test_a_recall_with_a_selector_leaves_the_slices_that_it_does_not_name(side: Side) -> None:
    (one,) = side.submit(record(1, "a"))
    side.start()
    _, three, _ = side.submit(record(2, "b"), record(3, "c"), record(4, "d"))
    assert side.recall(selecting([one, three, slice_of(record(9))])) == {three.id: [0]}
    side.end()
    assert side.work() == [2, 4]


def test_a_worker_that_has_nothing_answers_that(side: Side) -> None:
    assert side.recall() == {}
    side.submit(record(1))
    side.start()
    assert side.recall() == {}
    side.end()
    side.work()
    assert side.recall() == {}


@DIES
def test_of_whoever_is_gone_everything_is_reported_as_over_and_once(side: Side) -> None:
    side.submit(record(1, "a"))
    side.start()
    side.submit(record(2, "a"), record(3, "b"))
    assert side.lost() == []
    side.lose()
    assert side.lost() == [WORKER]
    side.hear()
    side.recall()
    side.pool.abandon(*WORKER)
    side.pool.abandon(*WORKER)
    side.hear()
    assert side.rules.all_over()
    assert side.rules.at(At.FAILED) == [1]
    assert side.progress() == {}


def test_where_a_worker_stands_is_said_in_words_and_nothing_of_one_that_runs_nothing(
    side: Side,
) -> None:
    """The text goes behind a line of the log; what a member does with a record nobody sees."""
    (given,) = side.submit(record(1))
    side.start()
    where = side.pool.where(*WORKER, given.id, 0)
    assert where.startswith("at ") if side.knows_where else where == ""
    side.end()
    side.work()


def test_a_stop_names_who_still_runs_and_nothing_starts_any_more(side: Side) -> None:
    side.submit(record(1, "a"))
    side.start()
    side.submit(record(2, "b"))
    assert side.stop() == ["worker-0"]
    if side.rules.running():  # else it was killed, as a process is
        side.end()
    assert side.start() is None
    assert side.stop(WAIT) == []


def test_a_stop_names_nobody_where_nothing_runs(side: Side) -> None:
    side.submit(record(1))
    side.work()
    assert side.stop(WAIT) == []


def test_a_lease_that_has_lapsed_is_reported_as_any_other(side: Side) -> None:
    """The owner waits for the end of everything that it has leased, whatever it counts for."""
    slices = side.submit(record(1, "a"), record(2, "a"), record(3, "b"))
    side.start()
    side.lapse(slices)
    side.end()
    assert sorted(side.work(fails(2))) == [2, 3]
    assert side.rules.at(At.FAILED) == [2]
    assert side.rules.all_over()


def test_what_ends_after_its_partition_has_gone_settles_nothing_and_is_counted(side: Side) -> None:
    core = Harness(SubscriptionSettings(individually=not side.serial))
    core.pool = Heard(side)  # type: ignore[assignment]
    core.assign()
    core.fetch(record(0, "a"), record(1, "b"))
    side.start()
    core.tell(ev.Revoking([P0]))
    side.answer()
    core.mailbox.extend(side.heard())
    core.deliver()
    core.tell(ev.Forget([P0]))
    side.end()
    assert side.start() is None
    core.mailbox.extend(side.heard())
    core.deliver()
    counts = core.sub().counts
    assert (counts.stale_results, counts.ok) == (1, 0)
    assert core.core.outstanding() == 0


@DIES
def test_a_worker_that_is_added_does_all_that_the_first_one_does(side: Side) -> None:
    side.add(7)
    Walk(side, random.Random(7)).go(100)
    assert side.rules.all_over()
    assert len(side.rules.said) > 30


# --- past the ack timeout: what it means, each kind of pool says for itself ---


FATES: dict[type[Side], Fate] = {
    **dict.fromkeys((Threads, Batches, Fake, Later), Fate.BESIDE),
    **dict.fromkeys((Instances, FakeInstances), Fate.WAITED_FOR),
    **dict.fromkeys((Tasks, OwnTasks, CallersTasks, CallTasks), Fate.ENDS),
    **dict.fromkeys((Processes, Members, Split), Fate.ENDS),
    **dict.fromkeys((FakeProcesses, FakeTasks, FakeLeases), Fate.ENDS),
}


@pytest.fixture
def past(side: Side) -> Side:
    """A pool with a record that runs past its time, and one of its key and another behind."""
    side.submit(record(1, "a"))
    side.start()
    side.submit(record(2, "a"), record(3, "b"))
    (running,) = side.rules.running()
    assert side.time_out(running) is FATES[type(side)]
    return side


def test_what_runs_past_its_time_is_ended_or_stuck_and_only_its_lane_waits(past: Side) -> None:
    fate = FATES[type(past)]
    if fate is Fate.ENDS:
        assert past.rules.at(At.FAILED) == [1]
        assert past.work() == [3]
        assert past.rules.at(At.ASIDE) == [2]
        return
    assert past.rules.at(At.BACK) == [2, 3], "who is given back may run elsewhere"
    assert past.rules.waits is (fate is Fate.WAITED_FOR)
    if not past.rules.waits:
        past.submit(record(4, "b"))
        assert past.work() == [4]


def test_it_may_be_asked_again_and_what_has_ended_meanwhile_is_not_stuck(past: Side) -> None:
    """As the core does until somebody is free: what it saw running may have ended since."""
    ended = record(9, "c")
    if past.rules.waits:
        (stuck,) = past.rules.running()
        assert past.time_out(stuck) is Fate.WAITED_FOR
        past.end(None, stuck)
        assert past.start() is None
    past.submit(ended)
    assert ended.offset() in past.work()
    said = list(past.rules.said)
    past.time_out(ended)
    assert past.rules.said == said


@pytest.mark.parametrize("ending", [None, ERROR, Drop()])
def test_a_late_result_is_reported_as_any_other_and_once(side: Any, ending: Any) -> None:
    side.together(record(1, "b"), record(2, "a"), record(3, "b"))
    side.start()
    side.end(Drop())
    stuck = side.start()
    side.time_out(stuck)
    if side.rules.waits:
        side.end(ending)
        assert side.start() is None
    else:
        side.end_beside(stuck, ending)
    failed = ["Failed 2"] if ending is ERROR else []
    assert side.rules.said[2:] == [*failed, "SliceEnded 1+2+3"]
    assert side.rules.all_over()


@DIES
@pytest.mark.parametrize("settle", [False, True])
def test_what_is_stuck_beside_a_worker_that_is_given_up_is_reported_when_it_ends(
    side: Any, settle: bool
) -> None:
    side.submit(record(1, "slow"))
    stuck = side.start()
    side.heeds = False
    side.time_out(stuck)
    if not side.rules.beside():
        side.time_out(stuck)
    side.together(record(2, "a"), record(3, "b"))
    side.start()
    side.lose()
    side.fail_to_replace()
    side.evict(settle=settle)
    assert side.rules.said[2:] == ["Failed 2", "SliceEnded 2+3"]
    assert side.rules.at(At.WRITTEN_OFF if settle else At.BACK) == [3]
    side.end_beside(stuck)
    assert side.rules.said[-1] == "SliceEnded 1"


# --- all at random ---


ALWAYS = {"set aside", "given back", "some given back, some not", "nothing given back"}

SERIAL = {
    *("replaced", "came back after a while", "timed out too late"),
    *("evicted, settled", "evicted, given back"),
}
BESIDE = {
    *(Fate.BESIDE.value, "ended beside", "ended beside, by death"),
    "evicted beside a stuck record",
}
ENDS = {Fate.ENDS.value}

MET: dict[type[Side], set[str]] = {
    Tasks: ENDS | {Fate.RUNS_ON.value, Fate.BESIDE.value, "ended beside"},
    OwnTasks: ENDS | {Fate.RUNS_ON.value, Fate.BESIDE.value, "ended beside"},
    CallersTasks: ENDS | {Fate.RUNS_ON.value, Fate.BESIDE.value, "ended beside"},
    CallTasks: ENDS | {Fate.RUNS_ON.value, Fate.BESIDE.value, "ended beside"},
    Batches: {Fate.BESIDE.value, "ended beside", "ended beside, by death"},
    Threads: SERIAL | BESIDE | {Fate.WAITED_FOR.value, "went on after a while"},
    Instances: SERIAL | {Fate.WAITED_FOR.value},
    Inline: set(),
    Processes: SERIAL | ENDS,
    Fake: SERIAL | BESIDE | {Fate.WAITED_FOR.value, "went on after a while"},
    FakeInstances: SERIAL | {Fate.WAITED_FOR.value},
    FakeProcesses: SERIAL | ENDS,
    FakeTasks: SERIAL | BESIDE | ENDS | {Fate.RUNS_ON.value},
    FakeLeases: SERIAL | ENDS,
    Later: SERIAL | BESIDE | {"asked before the last answer", "lost before the answer"},
    Members: ENDS | {"set aside in hand", "spoke of what was over"},
    Split: ENDS | {"set aside in hand", "kept waiting", "spoke of what was over"},
}


@DIES
def test_whatever_comes_in_whatever_order_the_rules_hold(kind: type[Side]) -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS_OF.get(kind, SEEDS):
        side = kind()
        try:
            walk = Walk(side, random.Random(seed))
            walk.go(60)
        except AssertionError as error:
            error.add_note(f"seed {seed}, after {side.rules.said[-20:]}")
            raise
        assert side.rules.all_over(), f"seed {seed}"
        assert side.progress() == {}
        met += side.rules.met
        side.close()
    assert met.keys() >= ALWAYS | MET[kind]


# --- asked of workers that run one record after the other: only they get several in a slice, and
# --- come to a fence in its turn


def test_slices_are_run_in_order_and_each_ends_once(side: Any) -> None:
    slices = [
        side.together(record(1), record(2, None)),
        side.together(),
        side.together(record(3, "other")),
    ]
    assert side.work() == [1, 2, 3]
    ended = [each.slice for each in side.rules.reports if isinstance(each, SliceEnded)]
    assert ended == [each.id for each in slices]


def test_a_failed_lane_is_set_aside_in_order_until_its_fence(side: Any) -> None:
    side.together(record(1), record(2), record(3, "b"), record(4), record(5, "c"))
    side.together(record(6, "b"), record(7))
    side.fence(record(2))
    side.together(record(8), record(9, "b"))
    side.fence(record(3, "b"))
    side.together(record(10, "b"))
    assert side.work(fails(2, 3)) == [1, 2, 3, 5, 8, 10]
    assert [each for each in side.rules.said if not each.startswith("start")] == [
        *("Failed 2", "Failed 3", "SetAside 4", "SliceEnded 1+2+3+4+5"),
        *("SetAside 6", "SetAside 7", "SliceEnded 6+7", "FencePassed"),
        *("SetAside 9", "SliceEnded 8+9", "FencePassed", "SliceEnded 10"),
    ]


def test_a_recall_takes_back_what_has_not_started_of_a_slice(side: Any) -> None:
    """What is behind what is asked for comes, too: it would overtake that."""
    first = side.together(record(1, "a"), record(2, "b"), record(3, "c"), record(4, "d"))
    assert side.start().offset() == 1
    second = side.together(record(5, "d"), record(6, "e"))
    back = side.recall({first.id: [2, 3]})
    assert {*back[first.id]} >= {2, 3}
    assert second.id not in back
    side.end()
    ran = side.work()
    assert ran[-2:] == [5, 6]
    assert side.rules.all_over()


@pytest.mark.parametrize("verdict", [Drop(), None])
def test_what_the_handler_dropped_is_named_at_the_end(side: Any, verdict: Any) -> None:
    """A member has no such verdict."""
    side.together(record(1), record(2))
    side.work(lambda item: verdict if item.offset() == 2 else None)
    (ended,) = side.rules.reports
    assert isinstance(ended, SliceEnded)
    assert list(ended.dropped) == ([1] if verdict else [])


@DIES
def test_a_successor_goes_on_in_the_slice_in_which_its_predecessor_ended(
    side: Any,
) -> None:
    """A member that has left has none."""
    side.together(record(1), record(2), record(3, "b"), record(4))
    side.together(record(5), record(6, "b"))
    side.start()
    side.end()
    assert side.start().offset() == 2
    side.lose()
    side.replaced()
    assert side.lost() == []
    assert side.work() == [3, 6]
    side.fence(record(2))
    assert side.work() == []
    assert [each for each in side.rules.said if not each.startswith("start")] == [
        *(
            "Failed 2",
            "SetAside 4",
            "SliceEnded 1+2+3+4",
            "SetAside 5",
            "SliceEnded 5+6",
            "FencePassed",
        ),
    ]


@DIES
def test_who_could_not_be_replaced_is_named_until_it_is_abandoned(side: Any) -> None:
    side.submit(record(1))
    side.start()
    side.fence(record(1))
    side.lose()
    for _ in range(2):
        assert side.lost() == [WORKER]
    side.recall()
    side.pool.abandon(*WORKER)
    side.hear()
    assert side.lost() == []
    assert side.rules.said == ["start 1", "Failed 1", "SliceEnded 1"], "its fences are forgotten"


# --- asked of members: only they settle in any order, and are told that they are late


def test_members_settle_in_any_order_and_all_that_they_have_runs(side: Any) -> None:
    slices = side.submit(record(1, "a"), record(2, "b"), record(3, "c"))
    one, two, _ = side.start(), side.start(), side.start()
    assert [list(side.progress()[each.id].running()) for each in slices] == [[0]] * 3
    side.end(None, two)
    side.end(None, one)
    ended = [each.slice for each in side.rules.reports if isinstance(each, SliceEnded)]
    assert ended == [slices[1].id, slices[0].id]


def test_a_record_that_a_member_has_goes_back_unrun_with_its_lane(side: Any) -> None:
    side.submit(record(1, "a"), record(2, "a"), record(3, "b"), record(4, "a"))
    one, two, three = side.start(), side.start(), side.start()
    side.end(ERROR, one)
    assert side.rules.at(At.ASIDE) == [2, 4]
    assert side.rules.running() == [three]
    assert side.cell.settle([side.rules.slice_of(two)]), "its lease is over"
    side.hear()


@pytest.mark.parametrize("ending", [None, ERROR])
def test_a_word_about_a_lease_that_has_lapsed_is_refused(side: Any, ending: Any) -> None:
    slices = side.submit(record(1, "a"), record(2, "b"))
    one, two = side.start(), side.start()
    side.lapse(slices[:1])
    side.end(ending, one)
    side.end(ending, two)
    assert side.refused == [one]


def test_a_word_after_the_end_is_refused_and_posts_nothing(side: Any) -> None:
    (slice_,) = side.submit(record(1))
    side.start()
    side.end()
    heard = len(side.rules.reports)
    assert side.cell.settle([slice_]) == [slice_]
    assert not side.cell.fail(slice_, ERROR)
    side.hear()
    assert len(side.rules.reports) == heard


@pytest.mark.parametrize("end", ["leave", "stop", "dismiss"])
def test_nothing_is_received_once_nothing_comes_any_more(side: Any, end: str) -> None:
    """What waits is to run elsewhere, or at the next start."""
    (waits,) = side.submit(record(1))
    ends: dict[str, Callable[[], object]] = {
        "leave": side.leave,
        "stop": side.stop,
        "dismiss": side.cell.dismiss,
    }
    ends[end]()
    assert side.cell.take(1, 0) == []
    if end != "stop":
        assert side.recall() == {waits.id: [0]}
    assert side.cell.held() == []


# --- asked of a pool that answers later: only of it a recall is open


def test_nothing_has_come_back_before_the_worker_gets_to_it(side: Any) -> None:
    (one,) = side.submit(record(1, "a"))
    side.start()
    two, three = side.submit(record(2, "b"), record(3, "c"))
    assert side.ask(selecting([two])) is None
    assert side.ask() is None
    assert side.rules.answers == []
    assert side.progress().keys() == {one.id, two.id, three.id}
    side.answer()
    side.hear()
    assert [dict(each.slices) for each in side.rules.answers] == [
        {two.id: range(1)},
        {one.id: range(0), two.id: range(0), three.id: range(1)},
    ]
    side.end()
    assert side.work() == []


def test_a_worker_that_goes_on_first_gives_back_what_is_left_then(side: Any) -> None:
    one, two = side.submit(record(1, "a"), record(2, "b"))
    side.pool.hesitates = lambda: True
    assert side.ask(selecting([one, two])) is None
    assert side.start().offset() == 1
    side.pool.hesitates = lambda: False
    side.answer()
    side.hear()
    (answer,) = side.rules.answers
    assert dict(answer.slices) == {one.id: range(0), two.id: range(1)}


@pytest.mark.parametrize("asked", [1, 2])
@pytest.mark.parametrize("replaceable", [True, False])
def test_a_pool_that_loses_a_worker_answers_in_its_place(
    side: Any, asked: int, replaceable: bool
) -> None:
    """Once for each asking: until then the worker is given nothing, and could never leave."""
    (one,) = side.submit(record(1, "a"))
    side.start()
    two, three = side.submit(record(2, "b"), record(3, "a"))
    for _ in range(asked):
        assert side.ask() is None
    side.lose()
    side.pool.replaceable = replaceable
    for _ in range(1 if replaceable else 3):
        side.pool.replace(*WORKER)
    side.hear()
    assert len(side.rules.answers) == asked
    first = dict(side.rules.answers[0].slices)
    assert first == {one.id: range(0), two.id: range(1), three.id: range(1)}
    assert side.rules.at(At.FAILED) == [1]
    if not replaceable:
        assert side.recall() == {}, "and what is asked of the dead one is answered, too"
        side.pool.abandon(*WORKER)
        side.hear()
    assert side.work() == []
    assert side.rules.all_over()
