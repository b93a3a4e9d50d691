"""Brokers that take less commit metadata: what is held back for it, and what is said."""

from __future__ import annotations

import random

import pytest

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.commit_facts import CommitFailed
from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET, TEXT_LIMIT, decode
from kafka_keyshared.core.offsets.text_limit import TextLimit
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from tests.support.commit_texts import here
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, record

MANY = 4_000


def begun(limit: int | None, **settings: object) -> Harness:
    """A member of one partition that has been told the limit, if it is given."""
    made = Harness(SubscriptionSettings(window_records=MANY, **settings))  # type: ignore[arg-type]
    made.checks = False
    made.assign()
    if limit is not None:
        made.tell(ev.TextLimitTold(limit))
    return made


def broker(harness: Harness, limit: int) -> None:
    """Answer every commit as a broker does that takes so much, until nothing is sent again."""
    for _ in range(40):
        waiting = list(harness.core.commits.in_flight)
        for commit in waiting:
            too_large = any(len(e.metadata) + 1 > limit for e in commit.entries.values())
            harness.answer(commit, CommitResult.TOO_LARGE if too_large else CommitResult.ACCEPTED)
        if not waiting:
            return
        if harness.core.commits.retrying:
            harness.commit(final=True)


def left_to_run(entry: cmd.CommitEntry, settled: set[int]) -> set[int]:
    """Return what has settled and would run again at who begins with this commit."""
    runs = decode(entry.metadata, here(entry.position)).sections.get("default", ())
    covered = {*range(entry.position), *(o for low, high in runs for o in range(low, high))}
    return settled - covered


def run_a_while(harness: Harness, chance: random.Random, until: int) -> set[int]:
    """Fetch, and settle what runs in a random order; the record at the position is slow."""
    settled: set[int] = set()
    at = 0
    workers = [harness.worker(index) for index in range(8)]
    while at < until:
        harness.fetch(*[record(each, f"k{each % 97}") for each in range(at, at + 50)])
        at += 50
        for _ in range(60):
            worker = chance.choice(workers)
            if (item := worker.running or worker.start()) is not None and chance.random() < 0.8:
                settled.add(item.offset())
                worker.finish(None)
        harness.later(0.05)
    return settled


@pytest.mark.parametrize("limit", [100, 160, 400, 1_000])
def test_nothing_that_has_settled_is_left_out_where_the_limit_is_told(limit: int) -> None:
    harness = begun(limit, workers=worker_names(8))
    settled = run_a_while(harness, random.Random(limit), 1_500)
    (commit,) = harness.commit(final=True)
    assert len(commit.entries[P0].metadata) < limit
    assert left_to_run(commit.entries[P0], settled) == set()
    assert harness.core.commits.cut_sets.left_out == 0
    assert len(settled) > 20


def test_a_limit_that_is_not_told_is_learnt_from_refusals_for_all_partitions() -> None:
    harness = Harness(SubscriptionSettings(window_records=MANY, retry=RetryPolicy(attempts=1)))
    harness.checks = False
    harness.assign(P0, P1)
    harness.fetch(*[record(each, f"k{each}", at) for at in (P0, P1) for each in range(600)])
    harness.work({each: [ERROR, ERROR] for each in range(0, 600, 7)}, rounds=10_000)
    harness.commit(final=True)
    broker(harness, 150)
    limit = harness.core.text_limit
    assert 100 < limit.chars < 200
    entries = harness.core.commits.ours([P0, P1])
    assert all(len(each[-1].metadata) < 150 for each in entries.values())
    assert harness.core.commits.committed(P1) is not None
    said = [each.text for each in harness.notices if "the brokers refuse" in each.text]
    assert len(said) == 1, "not one line for each refusal"
    assert "offset.metadata.max.bytes=4096" in said[0]
    assert not harness.said("failed: ")


def test_what_arrives_behind_a_lower_limit_waits_until_the_set_fits() -> None:
    harness = begun(None, workers=worker_names(4))
    harness.fetch(*[record(each, f"k{each}") for each in range(400)])
    harness.tell(ev.TextLimitTold(100))
    harness.fetch(*[record(each, f"k{each}") for each in range(400, 800)])
    assert len(list(harness.sub().parking.waiting())) == 400, "what was received may be leased"
    while harness.work() or harness.sub().parking:
        harness.commit()
        broker(harness, 100)
    assert harness.committed() == (800, [])


@pytest.mark.parametrize("limit", [1, 24, 60, 80])
def test_with_too_little_for_a_set_the_partition_goes_on_without_one_and_says_so(
    limit: int,
) -> None:
    harness = begun(limit, workers=worker_names(4))
    harness.fetch(*[record(each, f"k{each}") for each in range(1_000)])
    slow = harness.owner_of(record(0, "k0"))
    assert slow.start() is not None
    for index in range(4):
        worker = harness.worker(index)
        while worker is not slow and worker.start() is not None:
            worker.finish(None)
    assert all(len(each.entries[P0].metadata) < limit for each in harness.commit(final=True))
    assert not list(harness.sub().parking.waiting()), "it would run record by record"
    assert harness.core.commits.cut_sets.left_out > 100, "and the stop says what runs again"
    (said,) = [each for each in harness.notices if "too few for a settled set" in each.text]
    assert "also a clean one" in said.text
    assert not harness.said("does not fit")


def test_a_limit_above_the_usual_one_changes_nothing() -> None:
    harness = begun(10_000_000)
    assert harness.core.text_limit.chars == TEXT_LIMIT
    assert harness.core.text_limit.set_budget == SET_BUDGET
    assert not harness.notices


def test_a_refusal_of_what_is_longer_than_the_limit_known_lowers_nothing() -> None:
    limit = TextLimit(["default"])
    assert limit.told(201)
    assert not limit.refused(4_000), "it was sent before the limit was known"
    assert not limit.told(4_096)
    assert limit.chars == 200
    assert limit.refused(200)
    assert limit.chars == 150


def test_refusals_come_to_an_end_whatever_is_refused() -> None:
    limit = TextLimit(["default"])
    times = 0
    while limit.refused(limit.chars):
        times += 1
    assert limit.chars == 0
    assert times < 40
    assert limit.without_sets


def test_a_commit_without_metadata_that_is_refused_for_its_size_is_sent_again_later() -> None:
    """No broker does that; a client that says so must not be asked in a loop."""
    harness = begun(None)
    harness.fetch(record(0))
    harness.work()
    (commit,) = harness.commit(final=True)
    said = harness.answer(commit, CommitResult.TOO_LARGE)
    failed = [each.fact for each in said if isinstance(each, cmd.Notice)]
    assert any(isinstance(each, CommitFailed) and not each.refused for each in failed)
    assert not harness.core.commit_wanted(harness.now + 0.1)
    assert harness.core.commit_wanted(harness.now + 2.0)


def test_lanes_that_may_be_diverted_are_bounded_by_what_is_left_for_them() -> None:
    harness = begun(2_000)
    most = harness.sub().diverted.most
    assert 0 < most < 32
    harness.tell(ev.TextLimitTold(100))
    assert harness.sub().diverted.most == 0
