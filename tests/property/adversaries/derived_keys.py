"""The adversary where keys are derived: headers that mislead, are missing, broken, or come late.

The record's own key says nothing about its lane here. The key function must be called once for each
record received, and its answer hold from then on. Some records can be read only while nothing is
down, as with a schema registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.keys.extraction import NullKeys, UndecodablePolicy
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.model import Record, Retry, TopicPartition, Undecodable
from tests.property.adversaries.oracle import ALL_NULLS, Lane, Oracle, coordinates_of, partition_of
from tests.property.adversaries.protocol import Adversary
from tests.support.records import FakeRecord

NULLS: tuple[NullKeys, ...] = ("any", "one-lane", "reject")
POLICIES: tuple[UndecodablePolicy | None, ...] = (None, "block", "drop", "null_key", "dead_letter")


def meant(record: Record) -> tuple[str, bytes | None]:
    """What the headers say: the kind of the record, and the key when it has one."""
    found = dict(record.headers() or ())
    if "broken" in found:
        return "broken", None
    return ("late" if "late" in found else "plain"), found.get("key")


class KeyedOracle(Oracle):
    """The books, by the rules for keys and not by the code."""

    def refused(self, sub: str, record: FakeRecord) -> bool:
        """Whether no handler may ever see the record."""
        settings = self.subs[sub]
        kind, key = meant(record)
        if kind == "broken":
            return settings.when_undecodable() != "null_key"
        return key is None and settings.null_keys == "reject"

    def lane(self, sub: str, record: FakeRecord) -> Lane:
        settings = self.subs[sub]
        key = meant(record)[1]
        if key is None and (self.refused(sub, record) or settings.null_keys == "any"):
            return (*partition_of(record), b"", record.offset())
        scope = settings.order_scope
        return (
            "" if scope == "subscription" else partition_of(record).topic,
            record.partition() if scope == "partition" else -1,
            ALL_NULLS if key is None else key,
            -1,
        )

    def delivered(self, records: Sequence[FakeRecord]) -> None:
        super().delivered(records)
        for sub, settings in self.subs.items():
            for record in records:
                partition, offset = at = coordinates_of(record)
                if offset in self.covered[sub, partition] or not self.refused(sub, record):
                    continue
                match settings.when_undecodable():
                    case "dead_letter":
                        self.dead_lettering.add((sub, at))
                    case "block":
                        self.blocked.add((sub, at))
                    case _:
                        # From now on it may count as settled, whenever the member gets to it.
                        self.done[sub].add(at)

    def started(self, sub: str, record: FakeRecord, *, asked: bool = False) -> None:
        assert not self.refused(sub, record), f"{record} started and has no readable key"
        super().started(sub, record, asked=asked)


class KeyedAdversary(Adversary):
    """One seed of it."""

    def __init__(self, seed: int, *, records: int = 60, set_budget: int = SET_BUDGET) -> None:
        # A generator of its own, so that what else happens is as in the world without keys.
        self.chance = Random(f"keys-{seed}")
        self.down = False
        self.mended = False
        self.read: set[FakeRecord] = set()
        super().__init__(seed, records=records, set_budget=set_budget)

    def random_settings(self, name: str) -> SubscriptionSettings:
        settings = super().random_settings(name)
        nulls = self.chance.choice(NULLS)
        policies = [
            policy
            for policy in POLICIES
            if not (policy == "dead_letter" and not settings.dlq)
            and not (policy == "null_key" and nulls == "reject")
        ]
        asked: set[FakeRecord] = set()

        def key_of(record: Record) -> bytes | None:
            assert isinstance(record, FakeRecord)
            assert record not in asked, f"{record}: its key was asked for again"
            kind, key = meant(record)
            if kind == "late" and self.down:
                self.reached["a key cannot be read yet"] += 1
                raise Retry(self.chance.choice([None, 0.0, 0.5]))
            asked.add(record)
            if kind == "broken":
                self.reached["undecodable"] += 1
                raise Undecodable("broken on purpose")
            return key

        return replace(
            settings, key_of=key_of, null_keys=nulls, undecodable=self.chance.choice(policies)
        )

    def make_oracle(self) -> Oracle:
        return KeyedOracle(self.settings)

    def write(self, partition: TopicPartition, offset: int, key: bytes | None) -> FakeRecord:
        chance = self.chance
        headers: list[tuple[str, bytes | None]] = [("key", key)] if key is not None else []
        if chance.random() < 0.08:
            headers = [("broken", key)]
        elif chance.random() < 0.15:
            headers.append(("late", None))
        own = chance.choice([None, b"", b"own-%d" % chance.randrange(3)])
        return FakeRecord(partition, offset, own, headers=headers)

    def receive(self, written: FakeRecord, size: int) -> FakeRecord:
        headers = list(written.headers() or ())
        if self.mended and meant(written)[1] is None:
            headers = [("key", b"mended")]
        return FakeRecord(
            partition_of(written), written.offset(), written.key(), size=size, headers=headers
        )

    def _archive(self, publish: cmd.Publish, error: str | None) -> None:
        item = publish.record
        assert isinstance(item, FakeRecord)
        assert isinstance(self.oracle, KeyedOracle)
        refused = self.oracle.refused(publish.subscription, item)
        unrun = refused or publish.last.error_type == "Diverted"
        assert unrun == (publish.attempts == 0), f"{item}: {publish.attempts} attempts"
        assert refused == (publish.first.error_type == "Undecodable")
        self.reached["undecodable dead-lettered"] += refused and error is None
        super()._archive(publish, error)

    def revoke(self) -> None:
        for sub in self.member.core.subscriptions.values():
            self.reached["revoke while a key cannot be read"] += bool(sub.keys.unread)
        super().revoke()

    def act(self) -> None:
        if self.chance.random() < 0.05:
            self.down = not self.down
        super().act()

    def heal(self) -> None:
        self.down = False
        self.mended = True
        super().heal()
