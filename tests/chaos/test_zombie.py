"""A member that stands still past its session timeout and then goes on.

What the contract allows here, and what not. The group takes the member for dead, and nobody can
take back what is running in another process. So to everybody else it must look exactly like a
member that was killed at the moment when it stood still:

- nothing is lost, and each owner runs every key in order;
- what runs again with the new owner is what the member had settled but not got committed, and what
  it was running; each of these is a repeat of the kind that outlasts a deadline;
- nothing that it sends to the group after it has woken is stored: the broker's own list of commits
  never falls, and every commit of the lost assignment is refused;
- once its client has told it, it starts nothing more of the lost assignment.

Between waking and being told it cannot know. In this twilight it ends what it was running and may
start records that it held in hand; both can overlap with the new owner. That is the one overlap of
two processes there is, and it ends with the rebalance callback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_keyshared.observability.audit.ledger import (
    CommitAnswered,
    CommitSent,
    Ended,
    OwnershipChanged,
    Started,
    read_ledger,
)
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.chaos.processes import (
    PARTITIONS,
    WORKERS,
    Incarnation,
    Scene,
    assert_nothing_but_duplicates,
    stream,
)
from tests.chaos.repeats import repeats
from tests.chaos.zombie import Parts, take_apart
from tests.support.commits import falls, stored_commits

PAUSE = 0.02


@pytest.fixture
def scene(real_cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[Scene]:
    real_cluster.create_topic(topic, PARTITIONS)
    made = Scene(real_cluster, topic, tmp_path, {"session.timeout.ms": 3_000})
    yield made
    made.close()


def let_go_at(member: Incarnation) -> int:
    """When it had forgotten the partitions it lost, by its own word."""
    return int(re.findall(r"lost and forgotten (\d+)", member.log())[0])


def in_hand(member: Incarnation) -> int:
    """How many handler calls its ledger says are running."""
    events = read_ledger(member.ledger_path).events
    return sum(isinstance(e, Started) - isinstance(e, Ended) for e in events)


def freeze_in_a_record(scene: Scene, member: Incarnation) -> int:
    """Freeze it while something runs; on a busy machine it may have nothing between two fetches."""
    stood_still = member.freeze()
    while not in_hand(member):
        member.thaw()
        scene.keep_busy(1_000)
        scene.until(lambda: in_hand(member) > 0, member)
        stood_still = member.freeze()
    return stood_still


def stand_still(scene: Scene, **zombies: str) -> tuple[Incarnation, Incarnation, int, int]:
    """Freeze one of two members until the other has all and has got far; then wake it."""
    heir = scene.start("heir", pause=PAUSE)
    zombie = scene.start("zombie", pause=PAUSE, **zombies)

    def both_busy() -> bool:
        scene.keep_busy(1_000)
        return min(heir.ended(), zombie.ended()) >= 100 and zombie.owned() == PARTITIONS // 2

    scene.until(both_busy, heir, zombie)
    stood_still = freeze_in_a_record(scene, zombie)
    was = scene.committed()
    scene.until(lambda: heir.owned() == PARTITIONS, heir)

    def overtaken() -> bool:
        scene.keep_busy(200)
        return all(now > before for now, before in zip(scene.committed(), was, strict=True))

    scene.until(overtaken, heir)
    woke = zombie.thaw()
    scene.until(zombie.said("lost and forgotten"), heir, zombie)
    return heir, zombie, stood_still, woke


def test_a_member_that_stood_still_is_to_all_others_like_one_that_was_killed(scene: Scene) -> None:
    heir, zombie, stood_still, woke = stand_still(scene)
    # It joins again, and goes on with what it is given then.
    scene.until(lambda: zombie.owned() > 0, heir, zombie)
    scene.write(stream(400))
    scene.drain(heir, zombie)

    ledgers = {ledger.incarnation: ledger for ledger in scene.ledgers()}
    parts = take_apart(ledgers["zombie"], stood_still, woke, let_go_at(zombie))
    as_if_killed = [scene.written, ledgers["heir"], parts.before, parts.after]
    verdict = scene.judged(*as_if_killed)
    assert_nothing_but_duplicates(verdict)
    assert verdict.totals.unfinished_attempts <= WORKERS
    again = repeats(as_if_killed, {parts.before.incarnation})
    assert not again.unexcused, again.unexcused[:5]
    assert falls(stored_commits(scene.cluster, scene.group)) == []
    check_twilight(parts)
    check_afterwards(parts)
    for alone in (ledgers["heir"], ledgers["zombie"]):
        of_one = scene.judged(scene.written, alone)
        assert of_one.order_violations.count == of_one.overlaps.count == 0, of_one.lines()


def check_twilight(parts: Parts) -> None:
    """Nothing of the twilight reached the group, and it held nothing but what was in hand."""
    sent = {e.commit for e in parts.twilight if isinstance(e, CommitSent)}
    landed = [
        e
        for e in parts.twilight
        if isinstance(e, CommitAnswered) and e.accepted and e.commit in sent
    ]
    assert not landed, landed
    lost = [e for e in parts.twilight if isinstance(e, OwnershipChanged)]
    assert {e.change for e in lost} == {"lost"}
    assert len(lost) == PARTITIONS // 2
    told = min(e.at for e in lost)
    assert not [e for e in parts.twilight if isinstance(e, CommitSent) and e.at > told]
    cut = {e.attempt for e in parts.before.events if isinstance(e, Started)} - {
        e.attempt for e in parts.before.events if isinstance(e, Ended)
    }
    begun = {e.attempt for e in parts.twilight if isinstance(e, Started)}
    ended = {e.attempt for e in parts.twilight if isinstance(e, Ended)}
    assert 0 < len(cut) <= WORKERS, "something was running when it stood still"
    assert ended == cut | begun, "what ran then went on to its end"


def check_afterwards(parts: Parts) -> None:
    """It started nothing until it was given partitions anew."""
    anew = min(
        e.at
        for e in parts.after.events
        if isinstance(e, OwnershipChanged) and e.change == "assigned"
    )
    starts = [e for e in parts.after.events if isinstance(e, Started)]
    assert starts, "it did its share again"
    assert min(e.at for e in starts) > anew


def test_a_member_that_clings_to_what_it_lost_is_found(scene: Scene) -> None:
    """Planted: it commits in ``on_lost``. The judge says so, and the broker has not taken it."""
    stand_still(scene, fault="clinging")
    verdict = scene.verdict()
    assert verdict.commits_without_ownership.count > 0
