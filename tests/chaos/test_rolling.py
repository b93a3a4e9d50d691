"""Members come and stop at any moment, also in the middle of each other's rebalances."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from kafka_keyshared.lab.demo.ledgers import AuditedClient
from kafka_keyshared.observability.audit.ledger import MemoryLedger, OwnershipChanged
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.chaos.faults import SilentClient
from tests.conftest import Eventually
from tests.support.bare_client import group_conf
from tests.support.live_cluster import Member, assert_clean, group_name, judged, numbered, write

PARTITIONS = 6
KEYS = 60
MOST = 4
AHEAD = 600
PAUSE = 0.03
"""Seconds that a record takes, so that every worker is in the middle of one at every moment."""


class Rolling:
    """A group whose members come and go; nobody waits for one to have come before another goes."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        protocol: str,
        client: type[AuditedClient] = AuditedClient,
        commit_interval: float = 0.2,
    ) -> None:
        cluster.create_topic(topic, PARTITIONS)
        self.cluster = cluster
        self.topic = topic
        self.conf = group_conf(cluster, group_name(), protocol)
        self.options: dict[str, Any] = {"client": client, "commit_interval": commit_interval}
        self.written = MemoryLedger("producer")
        self.all: list[Member] = []
        self.there: list[Member] = []
        self._pause = threading.Event()

    def come(self) -> None:
        """Start one more member."""
        name = f"member-{len(self.all)}"
        member = Member(self.conf, [self.topic], self._handle, name=name, workers=4, **self.options)
        self.all.append(member.start())
        self.there.append(member)

    def go(self, member: Member) -> None:
        """Have it stop, and do not wait for that."""
        self.there.remove(member)
        member.app.stop()

    def done(self) -> int:
        """How many records have settled; as many again are written ahead of that."""
        done = sum(each.done() for each in self.all)
        if len(self.written.events) - done < AHEAD:
            write(self.cluster, self.topic, numbered(AHEAD, KEYS), self.written)
        return done

    def roll(self, turns: int, chance: random.Random, eventually: Eventually) -> None:
        """Have so many of them come or go, each after the group has done a few records or none."""
        self.come()
        for _ in range(turns):
            goal = self.done() + chance.choice((0, 1, 20, 60))
            eventually(lambda goal=goal: self.done() >= goal, 90.0)  # type: ignore[misc]
            if len(self.there) == 1 or (len(self.there) < MOST and chance.random() < 0.5):
                self.come()
            else:
                self.go(chance.choice(self.there))

    def end(self) -> list[int | None]:
        """Stop everybody and return with which status each has ended; once, or they would hurry."""
        for each in self.there:
            each.app.stop()
        for each in self.all:
            each.join(90.0)
        return [each.status for each in self.all]

    def ledgers(self) -> list[MemoryLedger]:
        """Return what everybody has noted, who writes included."""
        return [self.written, *(each.ledger for each in self.all)]

    def moved(self) -> int:
        """How often a partition has come to a member, but for the first time."""
        events = (event for each in self.all for event in each.ledger.events)
        came = (isinstance(each, OwnershipChanged) and each.change == "assigned" for each in events)
        return sum(came) - PARTITIONS

    def _handle(self, _record: Any) -> None:
        self._pause.wait(PAUSE)


# Under KIP-848 a change waits for the heartbeats of both, 5 s apart by the broker's default.
@pytest.mark.parametrize(
    ("protocol", "turns"), [("eager", 16), ("cooperative", 24), ("kip-848", 8)]
)
def test_members_that_come_and_go_at_any_time_repeat_nothing(
    real_cluster: Cluster, topic: str, eventually: Eventually, protocol: str, turns: int
) -> None:
    group = Rolling(real_cluster, topic, protocol)
    group.roll(turns, random.Random(protocol), eventually)
    eventually(lambda: sum(each.done() for each in group.all) == len(group.written.events), 120.0)
    assert group.end() == [0] * len(group.all)
    assert_clean(*group.ledgers())
    assert group.moved() >= turns / 4, "there was something to repeat"


def test_a_revoke_that_commits_nothing_is_found_among_them(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    group = Rolling(real_cluster, topic, "cooperative", SilentClient, commit_interval=3_600.0)
    group.come()
    eventually(lambda: group.done() >= AHEAD, 90.0)  # of each partition some
    group.come()
    # There is always more to do: one that idles commits, and nothing would run again.
    eventually(lambda: group.done() > 0 and group.moved() > 0, 90.0)
    goal = group.done() + AHEAD
    eventually(lambda: group.done() >= goal, 90.0)
    group.end()
    assert judged(*group.ledgers()).duplicates.count > 0
