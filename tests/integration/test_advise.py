"""`keyshared advise` on live topics: it counts right, and it leaves no trace."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from kafka_keyshared.cli.advice import sample
from kafka_keyshared.cli.advice.count import SampleCounts
from kafka_keyshared.cli.advice.logs import LogQueries, PartitionLog
from kafka_keyshared.cli.advice.sample import Sample, take
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.demo import data
from kafka_keyshared.lab.demo.load import load
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.support.cli import in_process
from tests.support.live_cluster import committed, group_name, write

READING = {
    "ApiVersions",
    "Metadata",
    "FindCoordinator",
    "ListOffsets",
    "Fetch",
    "OffsetFetch",
    "OffsetForLeaderEpoch",
    "71",  # whether the cluster wants to know how the client does (KIP-714); 72 would tell it
}
"""What a client asks that reads a log."""

LONG_ENOUGH = 250.0
"""Seconds for whatever is to be read to its end: no machine is as slow as that."""


def advised(
    capsys: pytest.CaptureFixture[str], cluster: Cluster, *topics: str, more: Sequence[object] = ()
) -> Any:
    named = [word for topic in topics for word in ("-t", topic)]
    long = ("--seconds", LONG_ENOUGH)
    ended = in_process(capsys, "advise", "-b", cluster.bootstrap, *named, "--json", *long, *more)
    assert ended.status == 0, ended.err
    assert len(ended.out.splitlines()) == 1
    return json.loads(ended.out)


def taken(
    cluster: Cluster, topic: str, tally: SampleCounts, seconds: float = LONG_ENOUGH, **more: Any
) -> Sample:
    conf = {"bootstrap.servers": cluster.bootstrap}
    return take(conf, [topic], None, seconds, tally, progress=lambda _: None, **more)


def ends(cluster: Cluster, topic: str, partitions: int) -> list[tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "ends"})
    try:
        return [
            consumer.get_watermark_offsets(ClientPartition(topic, number), timeout=10)
            for number in range(partitions)
        ]
    finally:
        consumer.close()


def groups(cluster: Cluster) -> set[str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    return {group.group_id for group in admin.list_consumer_groups().result(30).valid}


def commit(cluster: Cluster, group: str, *positions: ClientPartition) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=list(positions), asynchronous=False)
    finally:
        consumer.close()


def test_the_year_of_flights(
    any_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    any_cluster.create_topic(topic, 16)
    load({"bootstrap.servers": any_cluster.bootstrap}, topic, 16, lambda _: None)
    group = group_name()
    before = ends(any_cluster, topic, 16)
    commit(any_cluster, group, ClientPartition(topic, 3, before[3][1] - 100, metadata="mine"))
    known = groups(any_cluster) if any_cluster.kind == "real" else set()

    found = advised(capsys, any_cluster, topic, more=["-g", group])

    assert found["complete"] is True
    assert found["records"] == data.RECORDS
    assert found["null_keys"] == data.KEYLESS
    assert found["keys"] == data.AIRCRAFT == found["order_scope"]["topic"]["lanes"]
    assert found["keys_exact"] is True
    assert found["hottest_keys"][0] == {"key": "N725MQ", "records": 575, "share": 0.001584}
    assert found["hottest_share"] == pytest.approx(575 / data.RECORDS, rel=1e-3)
    # What the ring gives is the same on every machine.
    assert found["speedup"] == {"4": 3.77, "16": 12.92, "64": 47.36}
    # This follows from how much of a partition comes at a time.
    assert 15 < found["speedup_in_window"]["64"] <= found["speedup"]["64"]
    assert found["today"]["partitions"] == 16
    assert found["verdict"] == "helps"
    gone = before[3][1] - 100 - before[3][0]
    assert found["lag"]["offsets"] == data.RECORDS - gone
    assert found["lag"]["uncommitted_partitions"] == 15
    assert group in found["code"]

    assert ends(any_cluster, topic, 16) == before
    assert committed(any_cluster, group, topic, 3) == (before[3][1] - 100, "mine")
    assert committed(any_cluster, group, topic, 4)[0] < 0
    if any_cluster.kind == "real":
        assert groups(any_cluster) == known


def test_it_only_asks(capsys: pytest.CaptureFixture[str], topic: str) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 4)
        write(cluster, topic, [(b"key-%d" % (number % 50), b"") for number in range(2_000)])
        cluster.watch_requests()
        assert advised(capsys, cluster, topic, more=["-g", group_name()])["records"] == 2_000
        asked = set(cluster.requests())
    assert {"Fetch", "OffsetFetch"} <= asked <= READING


def test_records_that_come_meanwhile_are_not_counted(embedded_cluster: Cluster, topic: str) -> None:
    embedded_cluster.create_topic(topic, 2)
    write(embedded_cluster, topic, [(b"%d" % number, b"") for number in range(1_000)])

    class Busy(SampleCounts):
        def add(self, partition: TopicPartition, keys: Sequence[bytes | None]) -> None:
            super().add(partition, keys)
            write(embedded_cluster, topic, [(b"new", b"")] * 20)

    tally = Busy()
    found = taken(embedded_cluster, topic, tally)
    assert found.complete
    assert tally.records == 1_000 == found.offsets
    assert tally.lanes("topic").lanes == 1_000


class MadeUp:
    """A clock that stands still, however long anything takes; a test says how much has passed."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_when_the_time_is_over_it_has_read_the_newest_of_every_partition(
    embedded_cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [4_000, 2_000, 40, 0]
    embedded_cluster.create_topic(topic, len(sizes))
    for number, size in enumerate(sizes):
        keys = [b"%d/%d" % (number, offset) for offset in range(size)]
        write(embedded_cluster, topic, [(key, b"") for key in keys], partition=number)
    seen: dict[int, list[int]] = {number: [] for number in range(len(sizes))}

    clock = MadeUp()

    class Noting(SampleCounts):
        def add(self, partition: TopicPartition, keys: Sequence[bytes | None]) -> None:
            super().add(partition, keys)
            if self.records >= 1_300:
                clock.now += 1e6
            for key in keys:
                place, offset = map(int, (key or b"").split(b"/"))
                assert place == partition.partition
                seen[place].append(offset)

    # Rounds of 604 of the 6,040 offsets, a tenth; the third round ends it.
    for name, value in (("FIRST_ROUND", 604), ("GROWTH", 1)):
        monkeypatch.setattr(sample, name, value)
    tally = Noting()
    found = taken(embedded_cluster, topic, tally, clock=clock)
    assert not found.complete
    assert 1_300 <= tally.records == found.offsets <= 1_812
    for number, size in enumerate(sizes):
        # Each offset once; two whole tenths, and of the third one what was in time.
        assert len(set(seen[number])) == len(seen[number])
        assert set(range(size - round(size * 0.2), size)) <= set(seen[number])
        assert min(seen[number], default=0) >= size - round(size * 0.3)


def test_a_topic_without_records_is_told_plainly(
    any_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    any_cluster.create_topic(topic, 3)
    found = advised(capsys, any_cluster, topic)
    assert (found["verdict"], found["records"], found["complete"]) == ("no-records", 0, True)
    ended = in_process(capsys, "advise", "-b", any_cluster.bootstrap, "-t", topic)
    assert ended.status == 0
    assert ended.out.startswith("There are no records")


def test_a_topic_without_keys_is_told_plainly(
    embedded_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded_cluster.create_topic(topic, 3)
    write(embedded_cluster, topic, [(None, b"x")] * 300)
    ended = in_process(capsys, "advise", "-b", embedded_cluster.bootstrap, "-t", topic)
    assert ended.status == 0
    assert ended.out.startswith("No record has a key")
    assert "KeyShared" not in ended.out


def test_keys_of_several_topics_are_counted_together_and_apart(
    embedded_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [topic, f"{topic}-b"]
    for name, keys in zip(names, (range(100), range(50, 200)), strict=True):
        embedded_cluster.create_topic(name, 3)
        write(embedded_cluster, name, [(b"key-%d" % number, b"") for number in keys])
    found = advised(capsys, embedded_cluster, *names, more=["-t", topic])
    assert found["topics"] == names
    assert found["records"] == 250
    assert found["keys"] == 200
    lanes = {name: scope["lanes"] for name, scope in found["order_scope"].items()}
    assert lanes == {"partition": 250, "topic": 250, "subscription": 200}


def test_topics_group_and_cluster_may_stand_in_the_file_that_the_run_has(
    embedded_cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = group_name()
    for name in (topic, f"{topic}-b"):
        embedded_cluster.create_topic(name, 1)
        write(embedded_cluster, name, [(b"a", b""), (b"b", b"")])
    commit(embedded_cluster, group, ClientPartition(topic, 0, 1))
    file = tmp_path / "keyshared.toml"
    file.write_text(
        f'bootstrap = "{embedded_cluster.bootstrap}"\ngroup = "{group}"\n'
        f'topics = ["^{topic}.*"]\nworkers = 8\n',
        "utf-8",
    )
    ended = in_process(capsys, "advise", "--config", file, "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert found["topics"] == [topic, f"{topic}-b"]
    assert found["lag"]["group"] == group
    assert found["lag"]["offsets"] == 3
    ended = in_process(capsys, "advise", "--config", file, "-t", f"^{topic}-none")
    assert ended.status == 2
    assert "no topic that this user may see" in ended.err


def test_a_topic_that_is_not_there_is_refused_and_not_made(
    embedded_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded_cluster.create_topic(topic, 1)
    ended = in_process(capsys, "advise", "-b", embedded_cluster.bootstrap, "-t", f"{topic}s")
    assert ended.status == 2
    assert f"did you mean '{topic}'" in ended.err
    assert "DESCRIBE" in ended.err
    admin = AdminClient({"bootstrap.servers": embedded_cluster.bootstrap})
    assert f"{topic}s" not in admin.list_topics(timeout=10).topics


def test_a_topic_that_may_not_be_read_names_the_right_that_is_missing(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 1)
        write(cluster, topic, [(b"a", b"")] * 10)
        cluster.fail_next("Fetch", "TOPIC_AUTHORIZATION_FAILED", times=50)
        ended = in_process(capsys, "advise", "-b", cluster.bootstrap, "-t", topic)
    assert ended.status == 2
    assert f"allow READ and DESCRIBE on topic {topic}" in ended.err
    assert ended.out == ""


def test_a_group_that_may_not_be_asked_about_is_told_with_a_way_out(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 1)
        cluster.fail_next("OffsetFetch", "GROUP_AUTHORIZATION_FAILED", times=50)
        ended = in_process(capsys, "advise", "-b", cluster.bootstrap, "-t", topic, "-g", "theirs")
    assert ended.status == 2
    assert "leave -g out" in ended.err


def test_a_cluster_that_sends_nothing_is_told_as_that(topic: str) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 1)
        write(cluster, topic, [(b"a", b"")] * 10)
        cluster.fail_next("Fetch", "KAFKA_STORAGE_ERROR", times=1_000)
        with pytest.raises(KeySharedError, match="nothing could be read within 1 s"):
            taken(cluster, topic, SampleCounts(), seconds=1.0)


def test_markers_of_transactions_stall_nothing(
    any_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    any_cluster.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": any_cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(2):
            producer.produce(topic, b"v", b"key-%d" % number, 0)
        if number == 4:
            assert producer.flush(30) == 0
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    found = advised(capsys, any_cluster, topic, more=["--seconds", 100])
    assert found["complete"] is True, "it has waited for what never comes"
    if any_cluster.kind == "real":
        # 12 records, 6 markers; 2 records are of the transaction that was taken back.
        assert (found["records"], found["keys"]) == (10, 5)
        assert (found["lag"]["offsets"], found["lag"]["records"]) == (18, 10)
        assert any("56% of the offsets hold a record" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("asking", "rate"), [(0.0, 50.0), (15.0, 20.0)], ids=["at once", "answers are late"]
)
def test_arrivals_are_told_from_the_ends_when_it_watched_for_long(
    embedded_cluster: Cluster,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    asking: float,
    rate: float,
) -> None:
    """By all the time between the two answers, of which reading may be the smaller part."""
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"a", b"")] * 100)
    clock, look = MadeUp(), LogQueries.look

    def then_late(
        logs: LogQueries, topics: Iterable[str], *, with_group: bool
    ) -> list[PartitionLog]:
        found = look(logs, topics, with_group=with_group)
        clock.now += asking  # as until it is told what a group has committed
        return found

    class Growing(SampleCounts):
        def close(self) -> None:
            super().close()
            write(embedded_cluster, topic, [(b"new", b"")] * 500)
            clock.now += 10.0

    monkeypatch.setattr(LogQueries, "look", then_late)
    found = taken(embedded_cluster, topic, Growing(), clock=clock)
    assert found.arrivals_from == "ends"
    assert found.arrivals == {TopicPartition(topic, 0): rate}


def await_silence(cluster: Cluster) -> None:
    """A broker that was told to go goes in a thread of its own, and may answer once more before."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    deadline, silent = time.monotonic() + 60.0, 0
    while time.monotonic() < deadline:
        try:
            admin.list_topics(timeout=1.0)
            silent = 0
        except KafkaException:
            silent += 1  # on a busy machine a broker that is there may be late, too
            if silent == 3:
                return
    raise AssertionError("the broker still answers")


def test_what_was_read_is_reported_although_the_brokers_have_gone_since(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    clock = MadeUp()
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 1)
        write(cluster, topic, [(b"a", b"")] * 100)

        class Last(SampleCounts):
            def close(self) -> None:
                super().close()
                # From now on: a broker that is there may need longer on a busy machine.
                monkeypatch.setattr("kafka_keyshared.cli.advice.logs.ANSWER_TIMEOUT", 2.0)
                cluster.broker_down()
                await_silence(cluster)
                clock.now += 10.0

        tally = Last()
        found = take(
            {"bootstrap.servers": cluster.bootstrap},
            [topic],
            None,
            60.0,
            tally,
            progress=said.append,
            clock=clock,
        )
    assert tally.records == 100
    assert (found.arrivals, found.arrivals_from) == (None, None)
    assert any("the arrival rate is unknown" in each for each in said)


def test_brokers_that_go_away_while_it_reads_are_told_and_waited_for(
    topic: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kafka_keyshared.client.silence_log.SAY_AFTER", 0.5)
    look = LogQueries.look
    said: list[str] = []
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 1)
        write(cluster, topic, [(b"a", b"")] * 100)

        def then_gone(
            logs: LogQueries, topics: Iterable[str], *, with_group: bool
        ) -> list[PartitionLog]:
            found = look(logs, topics, with_group=with_group)
            cluster.broker_down()
            await_silence(cluster)
            return found

        def tell(text: str) -> None:
            said.append(text)
            cluster.broker_up()

        monkeypatch.setattr(LogQueries, "look", then_gone)
        conf = {"bootstrap.servers": cluster.bootstrap}
        tally = SampleCounts()
        found = take(conf, [topic], None, LONG_ENOUGH, tally, progress=tell)
        assert f"nothing has come from {cluster.bootstrap} for " in said[0]
    assert found.complete
    assert tally.records == 100
    assert said[-1].startswith("records come again, after ")
    assert capfd.readouterr().err == "", "the client's own lines"


def test_arrivals_are_told_from_timestamps_that_go_back_far_enough(
    embedded_cluster: Cluster,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Where reading takes long, arrivals are told from the ends.
    monkeypatch.setattr(sample, "LIVE_SECONDS", math.inf)
    embedded_cluster.create_topic(topic, 1)
    now = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": embedded_cluster.bootstrap})
    for number in range(600):
        producer.produce(topic, b"", b"%d" % number, timestamp=now - 600_000 + number * 1_000)
    assert producer.flush(30) == 0
    found = advised(capsys, embedded_cluster, topic)
    assert found["arrivals_from"] == "timestamps"
    assert found["arrivals_per_s"] == pytest.approx(1.0, abs=0.2)


def test_keys_are_read_by_the_setting_and_a_mixture_is_named(
    capsys: pytest.CaptureFixture[str], embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    rows: list[tuple[bytes | None, bytes | None]] = []
    for number in range(20):
        after = json.dumps({"after": {"id": number % 5}}).encode()
        rows += [(b"k", after), (b"k", b'{"after": null}'), (b"k", None)]
    write(embedded_cluster, topic, [*rows, (b"k", b"no JSON")])
    found = advised(capsys, embedded_cluster, topic, more=["--key", "json:/after/id"])
    assert (found["key"], found["keys"]) == ("json:/after/id", 5)
    assert (found["null_keys"], found["unreadable_keys"]) == (40, 1)
    assert any("beside 20 that have one" in note for note in found["notes"])
    own = advised(capsys, embedded_cluster, topic)
    assert (own["keys"], own["null_keys"], own["unreadable_keys"]) == (1, 0, 0)
