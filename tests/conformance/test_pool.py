"""What the core relies on in every pool, asked of all of them; ``pools/port.py`` says it in words.

The rules (``tests/support/pool_rules.py``) listen throughout: that records start in the order in
which they were given, that a slice ends once and nothing of it is heard afterwards, that nothing of
a failed lane starts before its fence, and the like, hold in every test here.

What only one kind of pool can be asked stands apart, with the reason.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

import pytest

from kafka_keyshared.clock import Clock
from kafka_keyshared.core import events as ev
from kafka_keyshared.core.commands import Recall
from kafka_keyshared.core.events import Ended, FencePassed
from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.model import Drop
from kafka_keyshared.pools.mailbox import Mailbox
from kafka_keyshared.pools.pull import PullPool
from tests.support.harness import Harness
from tests.support.pool_rules import At, Fate, selecting
from tests.support.pool_sides import (
    WAIT,
    WORKER,
    Batches,
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
from tests.support.pool_walk import Walk
from tests.support.process_side import Processes
from tests.support.records import ERROR, P0, FakeRecord, record
from tests.support.seeds import seeds
from tests.support.slices import slice_of

SEEDS = seeds(30)
SEEDS_OF: dict[type[Side], Sequence[int]] = {Processes: (0, 3, 4, 7)}
"""Of those that take long to start: these meet all that there is to meet."""

DIES = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

S = TypeVar("S", bound=Side)


def made(kind: type[S]) -> Iterator[S]:
    side = kind()
    yield side
    side.close()


@pytest.fixture(params=[Threads, Processes, Tasks, Batches, Fake, Later, Members, Split])
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    """Every pool there is; the fake also as one that answers recalls later."""
    yield from made(request.param)


@pytest.fixture(params=[Threads, Processes, Fake, Later])
def serial(request: pytest.FixtureRequest) -> Iterator[Threads | Fake]:
    """Those whose workers run one record after the other."""
    yield from made(request.param)


@pytest.fixture
def members() -> Iterator[Members]:
    """The one whose workers are members."""
    yield from made(Members)


@pytest.fixture
def later() -> Iterator[Later]:
    """The one that answers a recall later."""
    yield from made(Later)


def drained(queue: SimpleQueue[Any]) -> list[Any]:
    """Return what is in a queue that nobody puts into any more."""
    return [queue.get_nowait() for _ in range(queue.qsize())]


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
    assert [each for each in side.rules.said if "Ended" in each] == [
        "Ended 1",
        "Ended 2",
        "Ended 3",
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
    assert side.rules.said == ["start 1", "Failed 1", "Ended 1", "start 2", "Ended 2"]


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
    assert mine == [
        *("start 1", "Failed 1", "Ended 1"),
        *("SetAside 2", "Ended 2", "SetAside 4", "Ended 4", "SetAside 5", "Ended 5"),
        *("FencePassed", "start 7", "Ended 7"),
    ]


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
    where = side.pool.where(*WORKER, given.id)
    assert where.startswith("at ") if isinstance(side, Threads | Tasks) else where == ""
    side.end()
    side.work()


def test_a_stop_names_who_still_runs_and_nothing_starts_any_more(side: Side) -> None:
    side.submit(record(1, "a"))
    side.start()
    side.submit(record(2, "b"))
    assert side.stop() == ["worker-0"]
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
    assert (counts.stale, counts.ok) == (1, 0)
    assert core.core.outstanding() == 0


@DIES
def test_a_worker_that_is_added_does_all_that_the_first_one_does(side: Side) -> None:
    side.add(7)
    Walk(side, random.Random(7)).go(100)
    assert side.rules.all_over()
    assert len(side.rules.said) > 30


# --- past the ack timeout: what it means, each kind of pool says for itself ---


FATES = {
    Threads: Fate.BESIDE,
    Tasks: Fate.ENDS,
    Batches: Fate.BESIDE,
    Instances: Fate.WAITED_FOR,
    Fake: Fate.BESIDE,
    FakeInstances: Fate.WAITED_FOR,
    FakeProcesses: Fate.ENDS,
    FakeTasks: Fate.ENDS,
    FakeLeases: Fate.ENDS,
    Later: Fate.BESIDE,
    Members: Fate.ENDS,
    Split: Fate.ENDS,
}


@pytest.fixture(params=FATES)
def past(request: pytest.FixtureRequest) -> Iterator[Side]:
    """Every pool, with a record that runs past its time, and one of its key and another behind."""
    for side in made(request.param):
        side.submit(record(1, "a"))
        side.start()
        side.submit(record(2, "a"), record(3, "b"))
        (running,) = side.rules.running()
        assert side.time_out(running) is FATES[request.param]
        yield side


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


LATE = [each for each, fate in FATES.items() if fate is not Fate.ENDS and each is not Batches]
"""What may be stuck with others in its slice."""


@pytest.mark.parametrize("ending", [None, ERROR, Drop()])
@pytest.mark.parametrize("kind", LATE)
def test_a_late_result_is_reported_as_any_other_and_once(kind: type[Side], ending: Any) -> None:
    for side in made(kind):
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
        assert side.rules.said[2:] == [*failed, "Ended 1+2+3"]
        assert side.rules.all_over()


@DIES
@pytest.mark.parametrize("settle", [False, True])
@pytest.mark.parametrize("kind", [Threads, Fake, Later, FakeTasks])
def test_what_is_stuck_beside_a_worker_that_is_given_up_is_reported_when_it_ends(
    kind: type[Side], settle: bool
) -> None:
    for side in made(kind):
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
        assert side.rules.said[2:] == ["Failed 2", "Ended 2+3"]
        assert side.rules.at(At.WRITTEN_OFF if settle else At.BACK) == [3]
        side.end_beside(stuck)
        assert side.rules.said[-1] == "Ended 1"


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
    Batches: {Fate.BESIDE.value, "ended beside", "ended beside, by death"},
    Threads: SERIAL | BESIDE | {Fate.WAITED_FOR.value, "went on after a while"},
    Instances: SERIAL | {Fate.WAITED_FOR.value},
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
@pytest.mark.parametrize("kind", MET)
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


@DIES
@pytest.mark.parametrize(
    ("kinds", "seed"),
    [
        (kinds, seed)
        for kinds in ((Threads, Fake), (Instances, FakeInstances), (Processes, FakeProcesses))
        for seed in SEEDS_OF.get(kinds[0], SEEDS)
    ],
)
def test_the_fake_does_to_the_letter_what_a_thread_does(
    kinds: tuple[type[Side], ...], seed: int
) -> None:
    """Or all that the core's tests show with it would be shown of nothing."""
    said = []
    for kind in kinds:
        side = kind()
        Walk(side, random.Random(f"letter-{seed}")).go(60)
        said.append(side.rules.said)
        side.close()
    assert said[0] == said[1]


# --- asked of workers that run one record after the other: only they get several in a slice, and
# --- come to a fence in its turn


def test_slices_are_run_in_order_and_each_ends_once(serial: Threads | Fake) -> None:
    slices = [
        serial.together(record(1), record(2, None)),
        serial.together(),
        serial.together(record(3, "other")),
    ]
    assert serial.work() == [1, 2, 3]
    ended = [each.slice for each in serial.rules.reports if isinstance(each, Ended)]
    assert ended == [each.id for each in slices]


def test_a_failed_lane_is_set_aside_in_order_until_its_fence(serial: Threads | Fake) -> None:
    serial.together(record(1), record(2), record(3, "b"), record(4), record(5, "c"))
    serial.together(record(6, "b"), record(7))
    serial.fence(record(2))
    serial.together(record(8), record(9, "b"))
    serial.fence(record(3, "b"))
    serial.together(record(10, "b"))
    assert serial.work(fails(2, 3)) == [1, 2, 3, 5, 8, 10]
    assert [each for each in serial.rules.said if not each.startswith("start")] == [
        *("Failed 2", "Failed 3", "SetAside 4", "Ended 1+2+3+4+5"),
        *("SetAside 6", "SetAside 7", "Ended 6+7", "FencePassed"),
        *("SetAside 9", "Ended 8+9", "FencePassed", "Ended 10"),
    ]


def test_a_recall_takes_back_what_has_not_started_of_a_slice(serial: Threads | Fake) -> None:
    """What is behind what is asked for comes, too: it would overtake that."""
    first = serial.together(record(1, "a"), record(2, "b"), record(3, "c"), record(4, "d"))
    assert serial.start().offset() == 1
    second = serial.together(record(5, "d"), record(6, "e"))
    back = serial.recall({first.id: [2, 3]})
    assert {*back[first.id]} >= {2, 3}
    assert second.id not in back
    serial.end()
    ran = serial.work()
    assert ran[-2:] == [5, 6]
    assert serial.rules.all_over()


@pytest.mark.parametrize("verdict", [Drop(), None])
def test_what_the_handler_dropped_is_named_at_the_end(serial: Threads | Fake, verdict: Any) -> None:
    """A member has no such verdict."""
    serial.together(record(1), record(2))
    serial.work(lambda item: verdict if item.offset() == 2 else None)
    (ended,) = serial.rules.reports
    assert isinstance(ended, Ended)
    assert list(ended.dropped) == ([1] if verdict else [])


@DIES
def test_a_successor_goes_on_in_the_slice_in_which_its_predecessor_ended(
    serial: Threads | Fake,
) -> None:
    """A member that has left has none."""
    serial.together(record(1), record(2), record(3, "b"), record(4))
    serial.together(record(5), record(6, "b"))
    serial.start()
    serial.end()
    assert serial.start().offset() == 2
    serial.lose()
    serial.replaced()
    assert serial.lost() == []
    assert serial.work() == [3, 6]
    serial.fence(record(2))
    assert serial.work() == []
    assert [each for each in serial.rules.said if not each.startswith("start")] == [
        *("Failed 2", "SetAside 4", "Ended 1+2+3+4", "SetAside 5", "Ended 5+6", "FencePassed"),
    ]


@DIES
def test_who_could_not_be_replaced_is_named_until_it_is_abandoned(serial: Threads | Fake) -> None:
    serial.submit(record(1))
    serial.start()
    serial.fence(record(1))
    serial.lose()
    for _ in range(2):
        assert serial.lost() == [WORKER]
    serial.recall()
    serial.pool.abandon(*WORKER)
    serial.hear()
    assert serial.lost() == []
    assert serial.rules.said == ["start 1", "Failed 1", "Ended 1"], "its fences are forgotten"


# --- asked of members: only they settle in any order, and are told that they are late


def test_members_settle_in_any_order_and_all_that_they_have_runs(members: Members) -> None:
    slices = members.submit(record(1, "a"), record(2, "b"), record(3, "c"))
    one, two, _ = members.start(), members.start(), members.start()
    assert [list(members.progress()[each.id].running()) for each in slices] == [[0]] * 3
    members.end(None, two)
    members.end(None, one)
    ended = [each.slice for each in members.rules.reports if isinstance(each, Ended)]
    assert ended == [slices[1].id, slices[0].id]


def test_a_record_that_a_member_has_goes_back_unrun_with_its_lane(members: Members) -> None:
    members.submit(record(1, "a"), record(2, "a"), record(3, "b"), record(4, "a"))
    one, two, three = members.start(), members.start(), members.start()
    members.end(ERROR, one)
    assert members.rules.at(At.ASIDE) == [2, 4]
    assert members.rules.running() == [three]
    assert members.cell.settle([members.rules.slice_of(two)]), "its lease is over"
    members.hear()


def test_each_record_is_received_or_given_back_while_members_ask_from_threads_of_their_own() -> (
    None
):
    """What a handler's thread is asked by ``tests/unit/pools/test_handover.py``."""
    mailbox: Mailbox[Any] = Mailbox()
    pool = PullPool(mailbox, Clock())
    cell = pool.join("worker-0")
    pool.start()
    received: SimpleQueue[int] = SimpleQueue()
    switching = sys.getswitchinterval()

    def ask() -> None:
        while taken := cell.take(3, WAIT):
            for slice_ in taken:
                received.put(slice_.id)
            assert cell.settle(taken) == []

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
    given, back = [], []
    sys.setswitchinterval(1e-6)
    try:
        for each in threads:
            each.start()
        for number in range(2_000):
            slice_ = slice_of(record(number, None))
            given.append(slice_.id)
            pool.submit(slice_)
            if number % 3 == 0:
                back += [id_ for id_, those in pool.recall(Recall(*WORKER)).slices if those]
    finally:
        sys.setswitchinterval(switching)
    back += [id_ for id_, those in pool.recall(Recall(*WORKER)).slices if those]
    cell.dismiss()
    for each in threads:
        each.join(WAIT)
    assert sorted([*drained(received), *back]) == given
    assert sorted(each.slice for each in drained(mailbox)) == given, "and each ended once"


@pytest.mark.parametrize("ending", [None, ERROR])
def test_a_word_about_a_lease_that_has_lapsed_is_refused(members: Members, ending: Any) -> None:
    slices = members.submit(record(1, "a"), record(2, "b"))
    one, two = members.start(), members.start()
    members.lapse(slices[:1])
    members.end(ending, one)
    members.end(ending, two)
    assert members.refused == [one]


def test_a_word_after_the_end_is_refused_and_posts_nothing(members: Members) -> None:
    (slice_,) = members.submit(record(1))
    members.start()
    members.end()
    heard = len(members.rules.reports)
    assert members.cell.settle([slice_]) == [slice_]
    assert not members.cell.fail(slice_, ERROR)
    members.hear()
    assert len(members.rules.reports) == heard


@pytest.mark.parametrize("end", ["leave", "stop", "dismiss"])
def test_nothing_is_received_once_nothing_comes_any_more(members: Members, end: str) -> None:
    """What waits is to run elsewhere, or at the next start."""
    (waits,) = members.submit(record(1))
    ends: dict[str, Callable[[], object]] = {
        "leave": members.leave,
        "stop": members.stop,
        "dismiss": members.cell.dismiss,
    }
    ends[end]()
    assert members.cell.take(1, 0) == []
    if end != "stop":
        assert members.recall() == {waits.id: [0]}
    assert members.cell.held() == []


# --- asked of a pool that answers later: only of it a recall is open


def test_nothing_has_come_back_before_the_worker_gets_to_it(later: Later) -> None:
    (one,) = later.submit(record(1, "a"))
    later.start()
    two, three = later.submit(record(2, "b"), record(3, "c"))
    assert later.ask(selecting([two])) is None
    assert later.ask() is None
    assert later.rules.answers == []
    assert later.progress().keys() == {one.id, two.id, three.id}
    later.answer()
    later.hear()
    assert [dict(each.slices) for each in later.rules.answers] == [
        {two.id: range(1)},
        {one.id: range(0), two.id: range(0), three.id: range(1)},
    ]
    later.end()
    assert later.work() == []


def test_a_worker_that_goes_on_first_gives_back_what_is_left_then(later: Later) -> None:
    one, two = later.submit(record(1, "a"), record(2, "b"))
    later.pool.hesitates = lambda: True
    assert later.ask(selecting([one, two])) is None
    assert later.start().offset() == 1
    later.pool.hesitates = lambda: False
    later.answer()
    later.hear()
    (answer,) = later.rules.answers
    assert dict(answer.slices) == {one.id: range(0), two.id: range(1)}


@pytest.mark.parametrize("asked", [1, 2])
@pytest.mark.parametrize("replaceable", [True, False])
def test_a_pool_that_loses_a_worker_answers_in_its_place(
    later: Later, asked: int, replaceable: bool
) -> None:
    """Once for each asking: until then the worker is given nothing, and could never leave."""
    (one,) = later.submit(record(1, "a"))
    later.start()
    two, three = later.submit(record(2, "b"), record(3, "a"))
    for _ in range(asked):
        assert later.ask() is None
    later.lose()
    later.pool.replaceable = replaceable
    for _ in range(1 if replaceable else 3):
        later.pool.replace(*WORKER)
    later.hear()
    assert len(later.rules.answers) == asked
    first = dict(later.rules.answers[0].slices)
    assert first == {one.id: range(0), two.id: range(1), three.id: range(1)}
    assert later.rules.at(At.FAILED) == [1]
    if not replaceable:
        assert later.recall() == {}, "and what is asked of the dead one is answered, too"
        later.pool.abandon(*WORKER)
        later.hear()
    assert later.work() == []
    assert later.rules.all_over()


def test_the_keys_of_a_worker_that_dies_before_it_has_answered_run_elsewhere() -> None:
    core = Harness(SubscriptionSettings(workers=("worker-0", "worker-1")))
    core.pool.answers_later = core.pool.hesitates = lambda: True
    core.assign()
    core.fetch(*(record(offset, b"key-%d" % offset) for offset in range(20)))
    dead = core.worker(1)
    running = dead.start()
    assert running is not None
    core.tell(ev.Join("default", "worker-2"))
    assert dead.asked
    dead.die()
    core.pool.replaceable = False
    core.beat(8)
    core.pool.answers_later = core.pool.hesitates = lambda: False
    core.deliver()
    core.later(60.0)
    assert sorted(core.work()) == list(range(20))
    assert core.committed() == (20, [])
    assert "worker-1" in core.sub().gone
