"""Members over a live cluster: every record once, keys in order, nothing lost when one leaves."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Message

from kafka_keyshared import Consumer, KeyShared, KeySharedError, LeaseOverError, split
from kafka_keyshared.app.hooks import Hooks
from kafka_keyshared.app.members import PulledRecord, PullMember
from kafka_keyshared.app.split import Split, SplitMember
from kafka_keyshared.runtime.instance_view import InstanceView
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.live_cluster import (
    Written,
    client_conf,
    committed,
    group_name,
    numbered,
    read_all,
    write,
)

PARTITIONS = 4


stream = partial(numbered, keys=37)


def reading(cluster: Cluster, topic: str, group: str, records: Sequence[Written]) -> Consumer:
    """A consumer that has subscribed to a topic with these records."""
    cluster.create_topic(topic, PARTITIONS)
    write(cluster, topic, records)
    consumer = Consumer(client_conf(cluster, group))
    consumer.subscribe([topic])
    return consumer


class Seen:
    """What all members have seen, under a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.records: list[tuple[str, int, int, Any]] = []

    def add(self, member: str, record: Message | PulledRecord) -> int:
        place = (member, record.partition() or 0, record.offset() or 0, record.key())
        with self._lock:
            self.records.append(place)
            return len(self.records)

    def assert_each_once_in_order_at_one_member(self, count: int) -> None:
        places = [(partition, offset) for _, partition, offset, _ in self.records]
        assert len(places) == len(set(places)) == count
        offsets: dict[Any, list[int]] = defaultdict(list)
        members: dict[Any, set[str]] = defaultdict(set)
        for member, _, offset, key in self.records:
            offsets[key].append(offset)
            members[key].add(member)
        assert all(each == sorted(each) for each in offsets.values())
        assert all(len(each) == 1 for each in members.values())


def in_threads(*works: Callable[[], None]) -> None:
    """Run these side by side and wait for the end of all."""
    failed: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


def position(cluster: Cluster, group: str, topic: str) -> int:
    return sum(max(0, committed(cluster, group, topic, each)[0]) for each in range(PARTITIONS))


def test_a_loop_runs_once_per_member_and_each_key_stays_at_one(
    any_cluster: Cluster, topic: str
) -> None:
    group, count = group_name(), 3_000
    consumer = reading(any_cluster, topic, group, stream(count))
    seen, enough = Seen(), threading.Event()

    def loop(member: SplitMember) -> None:
        while not enough.is_set():
            record = member.poll(0.2)
            if record is not None:
                if seen.add(member.name, record) == count:
                    enough.set()
                member.commit(message=record)

    with split(consumer, 8) as members:
        assert len(members) == 8
        in_threads(*[lambda each=each: loop(each) for each in members])
    seen.assert_each_once_in_order_at_one_member(count)
    assert position(any_cluster, group, topic) == count
    consumer.close()


def test_with_auto_ack_whole_batches_settle_at_the_next_poll(
    any_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    group, count = group_name(), 500
    consumer = reading(any_cluster, topic, group, stream(count))
    with split(consumer, 1, auto_ack=True, commit_interval=0.1) as members:
        found: list[Message] = []
        while len(found) < count:
            found += members[0].consume(100, 10)
        eventually(lambda: 0 < position(any_cluster, group, topic) < count, 30.0)
        assert members[0].poll(0) is None, "and this settles the last batch"
        eventually(lambda: position(any_cluster, group, topic) == count, 30.0)
    consumer.close()


def test_what_a_member_has_not_settled_when_it_leaves_runs_again_at_another(
    any_cluster: Cluster, topic: str
) -> None:
    consumer = reading(any_cluster, topic, group_name(), stream(200, keys=20))
    with split(consumer, 2, retry={"backoff": 0.01}) as members:
        first, second = members
        had = first.consume(1_000, 20)
        assert had
        first.close()
        found: list[Message] = []
        while len(found) < 200:
            got = second.consume(100, 20)
            assert got, f"nothing more comes after {len(found)}"
            found += got
            second.commit()
    values = [each.value() for each in found]
    assert {each.value() for each in had} <= set(values)
    assert len(set(values)) == len(values) == 200
    offsets: dict[Any, list[int]] = defaultdict(list)
    for each in found:
        offsets[each.key()].append(each.offset() or 0)
    assert all(each == sorted(each) for each in offsets.values())
    consumer.close()


def test_a_stop_does_not_wait_for_what_members_hold_and_the_next_start_gets_it(
    any_cluster: Cluster, topic: str
) -> None:
    group = group_name()
    consumer = reading(any_cluster, topic, group, stream(50))
    with split(consumer, 1) as members:
        record = members[0].poll(30)
        assert record is not None
        members[0].commit(message=record)
        held = members[0].poll(30)
        assert held is not None
    assert members.status == 0
    consumer.close()
    again = Consumer(client_conf(any_cluster, group))
    again.subscribe([topic])
    found: list[Message] = []
    with split(again, 1) as members:
        while len(found) < 49:
            found += members[0].consume(100, 30)
            members[0].commit()
    places = [(each.partition(), each.offset()) for each in found]
    assert (held.partition(), held.offset()) in places
    assert (record.partition(), record.offset()) not in places
    again.close()


def test_a_stop_counts_as_no_attempt_for_what_members_hold(
    any_cluster: Cluster, topic: str
) -> None:
    """One attempt, then drop: a record that nobody has tried must not be dropped for a stop."""
    group = group_name()
    consumer = reading(any_cluster, topic, group, stream(20))
    with split(consumer, 1, retry={"attempts": 1}, on_exhausted="drop") as members:
        held: list[Message] = []
        while len(held) < 20:
            held += members[0].consume(20, 30)
    consumer.close()
    assert members.status == 0
    assert position(any_cluster, group, topic) == 0


def test_a_loop_that_commits_each_record_of_a_batch_settles_none_that_is_still_to_come(
    any_cluster: Cluster, topic: str
) -> None:
    """Records without a key take a way of their own, and came behind later ones of a partition."""
    group, count = group_name(), 200
    any_cluster.create_topic(topic, 1)
    write(
        any_cluster,
        topic,
        [(b"key-%d" % (each % 7) if each % 2 else None, b"") for each in range(count)],
    )
    done: list[int] = []
    for stop_after in (40, count):
        consumer = Consumer(client_conf(any_cluster, group))
        consumer.subscribe([topic])
        with split(consumer, 2) as members:
            idle = 0
            while len(done) < stop_after and idle < 100:
                idle += 1
                for member in members:
                    for record in member.consume(100, 0.1):
                        idle = 0
                        if len(done) < stop_after:
                            done.append(record.offset() or 0)
                            member.commit(message=record)
        consumer.close()
    assert sorted(done) == list(range(count))


def test_members_hear_of_an_instance_that_had_to_halt(any_cluster: Cluster, topic: str) -> None:
    consumer = reading(any_cluster, topic, group_name(), [])

    made: list[Split] = []

    def halt(_view: InstanceView) -> None:
        if made and made[0].app.instance is not None:
            made[0].app.instance.loop.halted = "the broker refuses commits"

    members = split(consumer, 1, hooks=Hooks(stepped=halt))  # type: ignore[call-arg]
    made.append(members)
    with pytest.raises(KeySharedError, match="the broker refuses commits"):
        members[0].poll(60)
    with pytest.raises(KeySharedError):
        members.close()
    consumer.close()


def test_members_hear_of_an_instance_that_has_failed(real_cluster: Cluster, topic: str) -> None:
    consumer = Consumer(client_conf(real_cluster, group_name()))
    consumer.subscribe([topic])  # which nobody has made
    members = split(consumer, 1)
    with pytest.raises(KeySharedError, match="the instance has failed"):
        members[0].poll(60)
    with pytest.raises(KeySharedError):
        members.close()
    consumer.close()


# --- members that ask for one record at a time ---


class Pulling:
    """An app with members, in a thread."""

    def __init__(self, cluster: Cluster, topic: str, members: list[str], **options: Any) -> None:
        options = {"workers": "pull", "retry": {"backoff": 0.01, "attempts": 3}, **options}
        self.app = KeyShared(client_conf(cluster, options.pop("group")), [topic], **options)
        self.members: list[PullMember] = [self.app.join(each) for each in members]
        self.status: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.status = self.app.run()

    def stop(self) -> None:
        self.app.stop()
        self._thread.join(60)
        assert self.status == 0


def pulling(
    cluster: Cluster, topic: str, records: Sequence[Written], *members: str, **options: Any
) -> Pulling:
    cluster.create_topic(topic, PARTITIONS)
    write(cluster, topic, records)
    return Pulling(cluster, topic, list(members), group=group_name(), **options)


def test_members_receive_each_record_once_and_keys_in_order(
    any_cluster: Cluster, topic: str
) -> None:
    count = 1_000
    pulled = pulling(any_cluster, topic, stream(count), "ann", "bob", "cem")
    seen, enough = Seen(), threading.Event()

    def work(member: PullMember) -> None:
        while not enough.is_set():
            record = member.receive(0.2)
            if record is not None:
                if seen.add(member.name, record) == count:
                    enough.set()
                record.ack()

    in_threads(*[lambda each=each: work(each) for each in pulled.members])
    pulled.stop()
    seen.assert_each_once_in_order_at_one_member(count)


def test_tasks_of_one_event_loop_receive_too(any_cluster: Cluster, topic: str) -> None:
    count = 300
    pulled = pulling(any_cluster, topic, stream(count), "only")
    seen = Seen()

    async def work() -> None:
        while len(seen.records) < count:
            record = await pulled.members[0].receive_async(0.5)
            if record is not None:
                seen.add("only", record)
                record.ack()

    async def many() -> None:
        await asyncio.wait_for(asyncio.gather(*[work() for _ in range(10)]), 90)

    asyncio.run(many())
    pulled.stop()
    seen.assert_each_once_in_order_at_one_member(count)


def test_a_nack_comes_again_before_anything_else_of_its_key(
    any_cluster: Cluster, topic: str
) -> None:
    pulled = pulling(any_cluster, topic, stream(10, keys=1), "only")
    (member,) = pulled.members
    offsets: list[int] = []
    while len(offsets) < 11:
        record = member.receive(30)
        assert record is not None
        offsets.append(record.offset())
        if len(offsets) == 4:
            record.nack(0.05)
        else:
            record.ack()
    pulled.stop()
    assert offsets == [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9]


def test_a_member_may_dead_letter_with_a_reason(any_cluster: Cluster, topic: str) -> None:
    any_cluster.create_topic(f"{topic}.dlq", 1)
    pulled = pulling(any_cluster, topic, stream(3, keys=1), "only", dlq=True)
    (member,) = pulled.members
    for number in range(3):
        record = member.receive(30)
        assert record is not None
        assert record.offset() == number
        if number == 1:
            record.dead_letter("no such customer")
        else:
            record.ack()
    (letter,) = read_all(any_cluster, f"{topic}.dlq", 1)
    headers = dict(letter.headers() or [])
    assert headers["keyshared.error.message"] == b"no such customer"
    assert letter.value() == b"1"
    pulled.stop()


def test_a_lease_that_lasts_too_long_is_over_and_its_late_ack_is_refused(
    any_cluster: Cluster, topic: str
) -> None:
    pulled = pulling(any_cluster, topic, stream(1), "only", ack_timeout=2.0)
    (member,) = pulled.members
    record = member.receive(30)
    assert record is not None
    again = member.receive(30)
    assert again is not None
    assert again.offset() == record.offset()
    with pytest.raises(LeaseOverError, match="it may run again elsewhere"):
        record.ack()
    again.ack()
    pulled.stop()
    assert pulled.app.report is not None
    assert pulled.app.report.undone == 0


def test_a_member_that_closes_gives_its_keys_to_the_others(
    any_cluster: Cluster, topic: str
) -> None:
    pulled = pulling(any_cluster, topic, stream(60, keys=12), "ann", "bob")
    ann, bob = pulled.members
    had = ann.receive(30)
    assert had is not None
    ann.close()
    offsets: dict[Any, list[int]] = defaultdict(list)
    for _ in range(60):
        record = bob.receive(30)
        assert record is not None
        offsets[record.key()].append(record.offset())
        record.ack()
    with pytest.raises(LeaseOverError):
        had.ack()
    pulled.stop()
    assert sum(len(each) for each in offsets.values()) == 60
    assert all(each == sorted(each) for each in offsets.values())
