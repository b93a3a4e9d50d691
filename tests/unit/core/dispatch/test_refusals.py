"""What cannot be is refused at the core's door, by name, and nothing has changed behind it.

A pool, the client or a broker says it: of a lease that there is not, or not any more, of a worker
that was not asked, of a partition that is not here. Only a fault of this package can make them, so
the instance ends on it without another commit; what a user's own code can say wrongly is refused
and counted where it is said (``tests/unit/executors/pull/test_pool.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError, InvariantError
from kafka_keyshared.model import TopicPartition
from tests.support.core_harness import Harness
from tests.support.object_state import frozen
from tests.support.records import ERROR, GIVE_UP, P0, P1, failure, record

GONE = TopicPartition("orders", 9)
OPEN = lane_of(record(1, "k"))
NEVER = 10**6
"""The id of a slice that there never was."""


class Busy:
    """A member in the middle of everything.

    ``worker-0`` runs the first record of its first slice and has another slice behind it; of its
    keys one waits for a retry, one for its dead letter. ``ended`` is a slice that has ended.
    ``worker-1`` idles; ``worker-2`` is asked for what it has, and has not answered.
    """

    def __init__(self) -> None:
        settings = SubscriptionSettings(
            workers=("worker-0", "worker-1", "worker-2"), dlq=True, retry=RetryPolicy(attempts=5)
        )
        self.harness = harness = Harness(settings)
        harness.assign(P0, P1)
        keys = self._keys()
        waits, letter, runs, behind, asked = *keys[0][:4], keys[2][0]
        harness.fetch(record(0, waits), record(1, letter))
        harness.work({0: [ERROR], 1: [GIVE_UP]})
        (self.publish,) = harness.publishes
        harness.sub().workers[0].slice_size = 2
        harness.sub().workers[2].slice_size = 2
        harness.fetch(*[record(2 + at, key) for at, key in enumerate([runs, behind] * 2)])
        harness.fetch(record(10, asked), record(11, asked), record(12, keys[2][1]))
        self.worker = harness.worker(0)
        self.worker.start()
        other = harness.worker(2)
        other.start()
        harness.pool.answers_later = lambda: True
        harness.recall(2)
        self.first, self.second, *_ = self.worker.given
        self.asked = next(iter(other.given))
        self.ended = self._ended()
        (self.commit,) = harness.commit()
        harness.fetch(record(20, waits))

    def _keys(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {0: [], 1: [], 2: []}
        for number in range(60):
            owner = self.harness.owner_of(record(0, f"key-{number}"))
            found[owner.index].append(f"key-{number}")
        return found

    def _ended(self) -> int:
        harness = self.harness
        harness.fetch(record(30, self._keys()[1][0]))
        worker = harness.worker(1)
        (id_,) = worker.given
        worker.start()
        worker.finish()
        worker.start()
        harness.deliver()
        return id_


def reported(*reports: ev.Report) -> ev.Reported:
    return ev.Reported(reports)


IMPOSSIBLE: dict[str, tuple[Callable[[Busy], ev.Event], str]] = {
    # Tokens that nobody has, and settles that come twice.
    "end of no slice": (
        lambda b: reported(ev.SliceEnded(NEVER, 0.1)),
        "is not leased or has ended",
    ),
    "end for the second time": (lambda b: reported(ev.SliceEnded(b.ended, 0.1)), "or has ended"),
    "end before an earlier one": (
        lambda b: reported(ev.SliceEnded(b.second, 0.1)),
        "not the oldest",
    ),
    "failure of no slice": (lambda b: reported(ev.Failed(NEVER, 0, failure())), "is not leased"),
    "failure after the end": (lambda b: reported(ev.Failed(b.ended, 0, failure())), "has ended"),
    "failure of no record": (lambda b: reported(ev.Failed(b.first, 7, failure())), "record 7"),
    "failure of a record below 0": (
        lambda b: reported(ev.Failed(b.first, -1, failure())),
        "record -1",
    ),
    "aside in an open lane": (lambda b: reported(ev.SetAside(b.first, 0)), "its lane is open"),
    "aside of no slice": (lambda b: reported(ev.SetAside(NEVER, 0)), "is not leased"),
    "drop of no record": (lambda b: reported(ev.SliceEnded(b.first, 0.1, [5])), "drops record 5"),
    # Answers that nobody has asked for.
    "recall that was not asked for": (lambda b: ev.Recalled("default", 0), "not asked for"),
    "recall of no worker": (lambda b: ev.Recalled("default", 77), "worker 77 answers a recall"),
    "recall of no slice": (lambda b: ev.Recalled("default", 2, [(NEVER, [0])]), "has ended"),
    "recall of another's slice": (lambda b: ev.Recalled("default", 2, [(b.first, [0])]), "ended"),
    "recall of no record": (lambda b: ev.Recalled("default", 2, [(b.asked, [9])]), "after their"),
    "recall of one twice": (lambda b: ev.Recalled("default", 2, [(b.asked, [1, 1])]), "twice"),
    "stuck in no slice": (
        lambda b: ev.Recalled("default", 2, (), [ev.Stuck(NEVER, 0, True)]),
        "is not leased",
    ),
    "stuck at another": (
        lambda b: ev.Recalled("default", 2, (), [ev.Stuck(b.first, 0, True)]),
        "does not have it",
    ),
    "stuck of no record": (
        lambda b: ev.Recalled("default", 2, (), [ev.Stuck(b.asked, 9, True)]),
        "does not have it",
    ),
    # Partitions that are not here, or are already.
    "assigned twice": (lambda b: ev.Assigned({P0: ev.StartPoint(0)}), "assigned twice"),
    "records of no partition": (lambda b: ev.Fetched([], {GONE: 3}), "without being assigned"),
    "revoke of no partition": (lambda b: ev.Revoking([P0, GONE]), "orders-9 about to be given up"),
    "end of no partition": (lambda b: ev.Forget([P1, GONE]), "orders-9 forgotten without"),
    # Subscriptions that there are not.
    "fence of no subscription": (
        lambda b: reported(ev.FencePassed("audit", 0, ())),
        "no subscription 'audit'",
    ),
    "state of no subscription": (lambda b: reported(ev.Released("audit", 0, 0)), "'audit'"),
    "recall of no subscription": (lambda b: ev.Recalled("audit", 0), "no subscription 'audit'"),
    "letter of no subscription": (
        lambda b: ev.DeadLetterAnswer(replace(b.publish, subscription="audit")),
        "no subscription 'audit'",
    ),
    "order for no subscription": (
        lambda b: ev.LaneOrder("audit", ev.LaneAction.DROP, b"a"),
        "no subscription 'audit'",
    ),
    "join of no subscription": (lambda b: ev.Join("audit", "one"), "no subscription 'audit'"),
    "resize of no subscription": (lambda b: ev.Resize("audit", ["one"]), "no subscription 'audit'"),
}


@pytest.fixture(scope="module")
def busy() -> Busy:
    """One for all: nothing of what they are told may change it."""
    return Busy()


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_be_is_refused_by_name_and_nothing_changes(busy: Busy, name: str) -> None:
    make, said = IMPOSSIBLE[name]
    core = busy.harness.core
    event = make(busy)
    before = frozen(core)
    with pytest.raises(InvariantError, match=said):
        core.handle(event, busy.harness.now)
    assert frozen(core) == before
    core.check()


LATE: dict[str, Callable[[Busy], ev.Event]] = {
    "letter that is not on its way": lambda b: ev.DeadLetterAnswer(
        replace(b.publish, record=record(1, "k"), lane=OPEN)
    ),
    "letter of another record": lambda b: ev.DeadLetterAnswer(
        replace(b.publish, record=b.harness.record(b.first, 0))
    ),
    "fence of no lane": lambda b: reported(
        ev.FencePassed("default", 0, (lane_of(record(1, "k")),))
    ),
    "fence of another worker": lambda b: reported(
        ev.FencePassed("default", 1, tuple(b.harness.sub().closed.lanes))
    ),
    "state that nobody asked for": lambda b: reported(ev.Released("default", 0, 7)),
}
"""Answers that may come behind what has made them pointless: nobody remembers the question."""


@pytest.mark.parametrize("name", LATE)
def test_an_answer_to_a_question_that_is_forgotten_changes_nothing(busy: Busy, name: str) -> None:
    core = busy.harness.core
    before = held(core)
    assert core.handle(LATE[name](busy), busy.harness.now) == []
    assert held(core) == before
    core.check()


def held(core: Any) -> Any:
    """What is held and counted; not that the next commit is to look once more."""
    return frozen([core.subscriptions, core.partitions, core.holds, core.commits])


REFUSED: dict[str, tuple[ev.Event, str]] = {
    "name that another has": (ev.Join("default", "worker-1"), "has a worker 'worker-1' already"),
    "no name": (ev.Join("default", ""), "none of them empty or twice"),
    "filters that are none": (ev.Join("default", "new", "x*"), "give a list of patterns, .'x"),
    "one name twice": (ev.Resize("default", ["a", "a"]), "none of them empty or twice"),
    "an empty name": (ev.Resize("default", ["a", ""]), "none of them empty or twice"),
    "nobody": (ev.Resize("default", []), "give at least one name"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_worker_that_cannot_be_is_refused_by_name_and_nothing_changes(
    busy: Busy, name: str
) -> None:
    event, said = REFUSED[name]
    core = busy.harness.core
    before = frozen(core)
    with pytest.raises(ConfigError, match=said):
        core.handle(event, busy.harness.now)
    assert frozen(core) == before


def test_an_answer_for_a_commit_that_is_answered_already_moves_nothing() -> None:
    busy = Busy()
    harness = busy.harness
    harness.answer(busy.commit)
    core = harness.core
    accepted = {each: core.commits.committed(each) for each in (P0, P1)}
    for result in ev.CommitResult:
        harness.tell(ev.CommitAnswer(busy.commit, result, "late"))
        assert {each: core.commits.committed(each) for each in (P0, P1)} == accepted


def test_an_answer_for_a_letter_settles_its_record_once() -> None:
    busy = Busy()
    harness = busy.harness
    harness.tell(ev.DeadLetterAnswer(busy.publish))
    before = held(harness.core)
    for error in (None, "no leader"):
        assert harness.core.handle(ev.DeadLetterAnswer(busy.publish, error), harness.now) == []
        assert held(harness.core) == before
    assert harness.sub().counts.dead_lettered == 1


SAID_LATE: dict[str, Callable[[Busy], list[ev.Report]]] = {
    "ended": lambda b: [ev.SliceEnded(b.first, 0.1)],
    "dropped": lambda b: [ev.SliceEnded(b.first, 0.1, [0])],
    "failed": lambda b: [ev.Failed(b.first, 0, failure()), ev.SliceEnded(b.first, 0.1)],
}


@pytest.mark.parametrize("how", SAID_LATE)
@pytest.mark.parametrize("back", [False, True])
def test_what_is_said_of_a_lease_of_an_old_epoch_settles_nothing_and_is_counted(
    how: str, back: bool
) -> None:
    """Also where the partition is here again, and its records are received anew."""
    busy = Busy()
    harness = busy.harness
    harness.recall(0)
    harness.pool.answers_later = lambda: False
    harness.deliver()
    harness.worker(0).answer()
    harness.worker(2).answer()
    harness.deliver()
    harness.revoke(P0, commit=False)
    if back:
        harness.assign(P0, position=2)
        harness.fetch(record(2, "key-x"))
    held_before, settled = harness.core.unsettled_count(), harness.sub().counts.ok
    harness.tell(reported(*SAID_LATE[how](busy)))
    counts = harness.sub().counts
    assert (counts.ok, counts.dropped, counts.failed) == (settled, 0, 2)
    assert counts.stale_results == 1
    assert harness.core.unsettled_count() == held_before - 1, "and the window has its room again"
