"""Workers coming and going: no key is ever leased to two of them, and nothing is left behind."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.core.worker_changes.worker_lifecycle import EVICT_AFTER
from kafka_keyshared.core.workers.worker import Worker, WorkerState
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.notice_text import Level
from tests.support.core_harness import Harness
from tests.support.records import P0, FakeRecord, failure, record

KEYS = [b"key-%d" % number for number in range(40)]


def started(*, one_lease: bool = False, workers: int = 2) -> Harness:
    settings = SubscriptionSettings(workers=worker_names(workers), one_in_flight_per_key=one_lease)
    member = Harness(settings)
    member.assign()
    return member


def worker_of(member: Harness, name: str) -> Worker:
    return next(each for each in member.sub().workers.values() if each.name == name)


def one_of_each(start: int = 0) -> list[FakeRecord]:
    return [record(start + number, key) for number, key in enumerate(KEYS)]


def test_a_worker_that_joins_takes_its_part_of_the_keys_and_every_record_runs_once() -> None:
    member = started()
    member.fetch(*one_of_each())
    member.tell(ev.Join("default", "worker-2"))
    joined = worker_of(member, "worker-2")
    assert joined.state is WorkerState.ACTIVE
    assert sorted(member.work()) == list(range(40))
    member.fetch(*one_of_each(40))
    assert joined.leased > 0
    assert sorted(member.work()) == list(range(40, 80))
    assert member.committed() == (80, [])


@pytest.mark.parametrize("one_lease", [False, True])
def test_its_slots_drain_before_it_gets_anything_of_them(one_lease: bool) -> None:
    member = started(workers=1, one_lease=one_lease)
    member.fetch(*one_of_each())
    running = member.worker().start()
    assert running is not None
    # A name whose slots have the key that runs.
    for number in range(1, 200):
        probe = started(workers=1)
        probe.tell(ev.Join("default", f"worker-{number}"))
        if probe.sub().routing.owner(running).name != "worker-0":
            break
    member.tell(ev.Join("default", f"worker-{number}"))
    joined = worker_of(member, f"worker-{number}")
    member.fetch(*one_of_each(40))
    leased = {each.key() for leased in joined.slices.values() for each in leased.records()}
    assert leased, "of its other slots it has got something at once"
    assert running.key() not in leased
    waits = [each for each in member.sub().draining.waiting() if each.key() == running.key()]
    assert waits, "what is fetched of the slot that drains waits for it"
    member.worker().finish()
    order = [running.offset(), *member.work()]
    for key in KEYS:
        mine = [offset for offset in order if KEYS[offset % 40] == key]
        assert mine == sorted(mine), f"{key!r} ran in the order {mine}"
    assert member.committed() == (80, [])


def test_a_retry_that_waits_moves_with_its_key() -> None:
    member = started(workers=1)
    member.fetch(*one_of_each())
    order = member.work({offset: [failure()] for offset in range(40)})
    assert sorted(order) == list(range(40))  # each has failed once and waits
    member.tell(ev.Join("default", "worker-1"))
    joined = worker_of(member, "worker-1")
    member.later(5.0)
    assert len(joined.row.retries) + joined.leased > 0
    assert sorted(member.work()) == list(range(40))
    assert member.committed() == (40, [])


def test_a_name_that_is_taken_cannot_join() -> None:
    member = started()
    with pytest.raises(ConfigError, match="has a worker 'worker-1' already"):
        member.tell(ev.Join("default", "worker-1"))
    assert len(member.sub().workers) == 2


def test_a_worker_that_takes_the_name_of_one_that_is_gone_is_another_worker() -> None:
    member = started()
    member.worker(1).die()
    member.pool.replaceable = False
    member.beat(EVICT_AFTER)
    assert [each.name for each in member.sub().gone.values()] == ["worker-1"]
    member.tell(ev.Join("default", "worker-1"))
    assert worker_of(member, "worker-1").id == 2
    assert member.sub().gone == {}
    member.fetch(*one_of_each())
    assert sorted(member.work()) == list(range(40))


def test_joining_and_leaving_again_and_again_leaves_nothing_behind() -> None:
    member = started()
    places = len(member.sub().routing.places)
    for _ in range(20):
        for name in ("worker-2", "worker-3"):
            member.tell(ev.Join("default", name))
        leaving = [("default", worker_of(member, f"worker-{number}").id) for number in (2, 3)]
        member.tell(ev.Tick(member.pool.progress(), departed=leaving))
    assert [each.name for each in member.sub().workers.values()] == ["worker-0", "worker-1"]
    assert len(member.sub().routing.places) == places
    assert len(member.sub().gone) == 2
    member.fetch(*one_of_each())
    assert sorted(member.work()) == list(range(40))


def test_the_last_that_leaves_is_told_once_with_what_becomes_of_the_rest() -> None:
    member = started()
    member.fetch(*one_of_each())
    gone: list[tuple[str, int]] = []
    for index in (0, 1):
        gone.append(("default", index))
        for _ in range(3):
            member.tell(ev.Tick(member.pool.progress(), departed=gone))
            member.deliver()
    said = [each.text for each in member.notices if "left" in each.text]
    assert said == [
        "worker-0 has left; its keys go to the other workers, and its unsettled records run again",
        "worker-1 has left, and no other worker is present: no record runs, and unsettled "
        "records run again at the next start",
    ]
    assert member.notices[-1].level is Level.WARNING


def test_several_that_leave_at_once_and_are_the_last_are_told_in_one_line() -> None:
    member = started()
    gone = [("default", 0), ("default", 1)]
    for _ in range(2):
        member.tell(ev.Tick(member.pool.progress(), departed=gone))
    (said,) = [each.text for each in member.notices]
    assert said.startswith(
        "worker-0, worker-1 have left, and no other worker is present: no record"
    )


def test_one_that_leaves_while_it_joins_gives_its_slots_back() -> None:
    member = started(workers=1)
    member.fetch(*one_of_each())
    member.worker().start()
    member.pool.answers_later = lambda: True
    member.tell(ev.Join("default", "worker-1"))
    joined = worker_of(member, "worker-1")
    assert member.sub().draining.count, "the other has not answered its recall"
    member.tell(ev.Tick(member.pool.progress(), departed=[("default", joined.id)]))
    assert member.sub().gone["worker-1"].state is WorkerState.GONE
    member.worker().finish()
    assert sorted(member.work()) == list(range(1, 40))
    assert member.committed() == (40, [])
    assert member.sub().table.shares == {0: 1.0}
    assert P0 in member.core.partitions


def test_one_that_leaves_is_not_gone_before_it_has_answered_its_recall() -> None:
    """Its last lease may end before the answer is there, and then nobody waits for that."""
    member = started()
    member.pool.answers_later = member.pool.hesitates = lambda: True
    member.fetch(*one_of_each())
    worker = member.worker(1)
    member.tell(ev.Revoking([P0]))
    while worker.given:  # it goes on, and answers last
        if worker.step() is not None:
            worker.finish()
    member.tell(ev.Tick(member.pool.progress(), departed=[("default", 1)]))
    member.deliver()
    assert worker_of(member, "worker-1").state is WorkerState.LEAVING
    member.pool.hesitates = lambda: False
    while worker.asked:
        worker.step()
    member.deliver()
    assert member.sub().gone["worker-1"].state is WorkerState.GONE
    assert member.sub().table.shares == {0: 1.0}
