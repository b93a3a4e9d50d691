"""Each rare state is counted when a history reaches it, and not before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.core.lanes.closed import LANE_TABLE, LaneEvent, LaneState
from kafka_keyshared.core.workers.worker import WORKER_TABLE, Worker, WorkerEvent
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.executors.notice_words import IS_AN_ERROR
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.coverage import RARE, Sometimes
from kafka_keyshared.lab.simulator.keys import DerivedKey
from kafka_keyshared.lab.simulator.member_events import KeysAway
from kafka_keyshared.lab.simulator.pause_history import PauseOrdered, PauseTaken
from kafka_keyshared.lab.simulator.range_history import RangeAssigned, SettledUnrun
from kafka_keyshared.lab.simulator.state_history import StateAdopted
from kafka_keyshared.lab.simulator.transition_coverage import TABLES, counted_edges
from tests.simulation.told import SUB, T0, Told
from tests.simulation.watched import begun, settings
from tests.support.core_harness import Harness
from tests.support.records import P0, failure, record

Story = Callable[[Told], object]


def reached(story: Story, **chosen: Any) -> dict[str, int]:
    """The rare states that a story reaches."""
    told = Told()
    sometimes = Sometimes(told.history, Books(told.history, [settings(**chosen)]))
    story(told)
    assert set(sometimes.counts) == set(RARE)
    return {name: count for name, count in sometimes.counts.items() if count}


def in_flight(told: Told) -> None:
    begun(told)
    told.deliver(1, 0, 1, 2)
    told.hand(1, 0)
    told.begin(1, 0)


def drained(told: Told) -> None:
    in_flight(told)
    told.later(1.0)
    told.end(1, 0)
    told.hand(1, 1, worker=1)


def moved_back(told: Told) -> None:
    drained(told)
    told.later(1.0)
    told.take_back(1, 1, worker=1)
    told.hand(1, 1)


def stale(told: Told) -> None:
    in_flight(told)
    told.released(1, lost=True)
    told.assign(1)
    told.end(1, 0, number=1)


def recovered(told: Told) -> None:
    begun(told)
    told.tell(happened.CommitTold(1, told.send(1, 0), CommitResult.RETRY.value))
    told.commit(1, 0)
    told.commit(1, 0)


def bare(told: Told) -> None:
    begun(told)
    told.deliver(1, 0, 1)
    number = told.send(1, 0, (1, 2))
    told.tell(happened.CommitTold(1, number, CommitResult.TOO_LARGE.value))
    told.send(1, 0)
    told.send(1, 0)


def gap(told: Told) -> None:
    begun(told)
    told.send(1, 3)
    told.send(1, 5)
    told.send(1, 5)


def overtaken(told: Told) -> None:
    in_flight(told)
    told.end(1, 0, "failed")
    told.revoking(1)


def died(told: Told) -> None:
    in_flight(told)
    told.end(1, 0, "died")
    told.tell(happened.WorkerDied(1, SUB, 0))


def revoked(told: Told) -> None:
    in_flight(told)
    told.revoking(1)
    told.later(5.0)
    told.released(1)


def asked(told: Told) -> None:
    begun(told)
    number = told.send(1, 0)
    told.tell(happened.Owned(2, [T0], {}))
    told.store(1, number, {T0: (0, "")})


def late(told: Told) -> None:
    begun(told)
    first, second = told.send(1, 0), told.send(1, 0)
    for number in (second, first):
        told.store(1, number, {T0: (0, "")})


def unheard(told: Told) -> None:
    in_flight(told)
    told.end(1, 0, "dead_letter")
    told.letter(1, 0)
    told.letter(1, 1, error=None)
    told.kill(1)


def paused(told: Told) -> None:
    """A rebalance while it is paused, and one when it was resumed; to resume twice is no more."""
    begun(told)
    told.tell(PauseOrdered(1, 1, ["t"], None, True), PauseTaken(1, 1))
    for number in (2, 3):
        told.revoke(1)
        told.assign(1)
        told.tell(PauseOrdered(1, number, None, None, False))


def nobodys(told: Told) -> None:
    """A range that is nobody's is given to a worker, and then once more; and one beside it is."""
    begun(told)
    told.tell(RangeAssigned(1, SUB, 5, 9, None))
    for first, last in ((0, 4), (7, 9), (7, 9)):
        told.tell(RangeAssigned(1, SUB, first, last, "worker-1"))


def skipped(told: Told) -> None:
    """Two are told of as dropped: one had run, and of the other nobody takes the slot any more."""
    begun(told, 2)
    told.deliver(1, 0, 1)
    told.run(1, 0)
    told.tell(RangeAssigned(1, SUB, 0, SLOTS - 1, None))
    told.tell(SettledUnrun(1, SUB, [(T0, 0, 1), (T0, 1, 1)]))


def ended_by_nobodys(told: Told) -> None:
    begun(told)
    told.tell(
        happened.Gone(1, "halted", clean=False, reason=f"this one {IS_AN_ERROR}; nothing of it")
    )


def handed_over(told: Told) -> None:
    begun(told)
    for state in ((), ((b"a", 1),)):
        told.tell(StateAdopted(1, SUB, 1, [7], state))


@pytest.mark.parametrize(
    ("story", "found"),
    [
        (begun, {}),
        (in_flight, {}),
        (drained, {"drain blocked, then released": 1}),
        (moved_back, {"drain blocked, then released": 2, "key moved and moved back": 1}),
        (stale, {"stale completion after reassign": 1, "partition lost": 1}),
        (recovered, {"commit failed, then recovered": 1}),
        (bare, {"metadata dropped for size": 1}),
        (gap, {"offset gap at the position": 1}),
        (overtaken, {"retry overtaken by a revoke": 1}),
        (died, {"worker death mid-record": 1}),
        (revoked, {"rebalance with work in flight": 1, "revoke past its deadline": 1}),
        (asked, {"answer stored while a member asks": 1}),
        (late, {"commit stored late": 1}),
        (
            paused,
            {
                "paused by hand, then resumed": 1,
                "partition that came while it is paused by hand": 1,
            },
        ),
        (nobodys, {"slots were nobody's for a while": 1}),
        (skipped, {"record skipped as nobody's by order": 1}),
        (ended_by_nobodys, {"process ended by what is nobody's": 1}),
        (handed_over, {"state handed over": 1}),
        (unheard, {"letter stored, never heard of": 1}),
    ],
)
def test_each_rare_state_is_counted_where_it_is_reached(
    story: Story, found: dict[str, int]
) -> None:
    assert reached(story) == found


def test_a_log_made_anew_counts_where_somebody_reads_it() -> None:
    remade = happened.Remade(T0)
    assert reached(lambda told: told.tell(remade)) == {}
    words = "log made anew while it is read"
    assert reached(lambda told: begun(told).tell(remade)) == {words: 1}


# --- the edges of state tables ---


def test_every_edge_is_there_before_any_is_taken() -> None:
    with counted_edges() as edges:
        assert not any(edges.values())
    for of, (module, name) in TABLES.items():
        count = sum(map(len, getattr(module, name).values()))
        assert sum(edge.startswith(of) for edge in edges) == count


def test_edges_that_the_core_takes_are_counted_and_no_others() -> None:
    with counted_edges() as edges:
        member = Harness()
        member.assign(P0)
        member.fetch(record(0, b"a"))
        member.work({0: [failure()]})
        member.deliver()
    taken = {edge: count for edge, count in edges.items() if count}
    assert taken.pop("partition ABSENT ASSIGNED") == 1
    assert taken.pop("partition OWNED RECEIVED") == 1
    assert taken == {"lane WAITING RETRY": 1}


def test_what_is_refused_is_no_edge() -> None:
    with counted_edges() as edges:
        worker = Worker("worker-0", 0, 10)
        with pytest.raises(InvariantError, match="cannot be"):
            worker.on(WorkerEvent.EMPTIED)
        worker.on(WorkerEvent.LEFT)
    assert {edge for edge, count in edges.items() if count} == {"worker ACTIVE LEFT"}


def test_the_tables_are_as_before_afterwards() -> None:
    with pytest.raises(KeyError, match="on purpose"), counted_edges():
        raise KeyError("on purpose")
    module, name = TABLES["lane"]
    assert getattr(module, name) is LANE_TABLE
    assert type(LANE_TABLE[LaneState.WAITING]) is dict
    assert LANE_TABLE[LaneState.WAITING][LaneEvent.LEASED] is LaneState.RUNNING
    assert TABLES["worker"][0].WORKER_TABLE is WORKER_TABLE


def keyless(told: Told) -> None:
    told.write("key-9", None, "key-1")
    told.join(1)
    told.assign(1)
    told.deliver(1, 0, 1, 2)
    for offset in (0, 1, 2):
        told.run(1, offset)


def schema_registered(told: Told) -> None:
    """The first record comes before the schema is unknown, the others while it is."""
    told.write("key-2", "key-1", "key-5")
    told.join(1)
    told.assign(1)
    told.deliver(1, 0)
    told.later(1.0)
    told.tell(KeysAway(away=True, unknown=True))
    told.later(1.0)
    told.deliver(1, 1, 2)
    told.later(1.0)
    told.tell(KeysAway(away=False))
    told.later(1.0)
    for offset in (0, 1, 2):
        told.run(1, offset)


@pytest.mark.parametrize(
    ("story", "name"),
    [
        (keyless, "record without a key under a key function"),
        (schema_registered, "record ran once its schema was known"),
    ],
)
def test_what_a_key_function_finds_is_counted_where_there_is_one(story: Story, name: str) -> None:
    function = DerivedKey(header=False, groups=50, lacks=True)
    assert reached(story, key_of=function) == {name: 1}
    assert reached(story, key_of=DerivedKey(header=True)) == {}
    assert reached(story) == {}
