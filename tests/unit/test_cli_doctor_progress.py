"""Whether a group gets on: what is seen of positions twice, and what the doctor makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.cli import progress as looking
from kafka_keyshared.cli import progress_checks as judging
from kafka_keyshared.cli.checks import PartitionFacts
from kafka_keyshared.cli.findings import Status, page_of
from kafka_keyshared.cli.progress import Committed
from kafka_keyshared.cli.progress_checks import RecordFacts, Standing, Watched
from kafka_keyshared.core.metadata import encode
from kafka_keyshared.local.cluster import Cluster
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.outsider import outsider
from tests.support.looked_at import HELD, NOW, ORDERS, SILENT, progress


def settled(position: int, *runs: tuple[int, int]) -> str:
    """The metadata of a commit with these offsets settled beyond the position."""
    return encode(position, {"default": runs}).text


class Group:
    """What a group has committed at each look; the last stays. Time goes by while one waits."""

    def __init__(self, *looks: Committed | None) -> None:
        self.looks = list(looks)
        self.now = 0.0
        self.asked: list[list[TopicPartition]] = []

    def ask(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        self.asked.append(list(places))
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return {} if look is None else dict.fromkeys(places, look)

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def watched(self, facts: PartitionFacts, seconds: float = 6.0) -> tuple[Standing, float]:
        ((standing,), took) = looking.watch(
            [facts], self.ask, seconds, clock=lambda: self.now, pause=self.pause
        )
        return standing, took


def behind(metadata: str | None = None, position: int = 17, end: int = 40) -> PartitionFacts:
    return PartitionFacts(*ORDERS, 0, end, position, metadata=metadata)


def test_a_group_that_gets_on_is_not_watched_for_longer_than_it_takes() -> None:
    group = Group(Committed(17, None), Committed(21, None))
    standing, took = group.watched(behind())
    assert standing.moved
    assert took == 2 * looking.LOOK_EVERY


def test_a_position_that_stands_is_watched_for_all_the_time() -> None:
    standing, took = Group(Committed(17, None)).watched(behind(), seconds=6.0)
    assert (standing.moved, standing.position, standing.held) == (False, 17, ())
    assert took == 6.0


def test_a_coordinator_that_does_not_answer_moves_nothing() -> None:
    standing, _ = Group(None).watched(behind(settled(17, (18, 20))))
    assert not standing.moved
    assert standing.held == ((17, 18),)


def test_what_is_held_is_told_by_what_settled_beyond_it() -> None:
    before, after = settled(17, (18, 20), (21, 25)), settled(17, (18, 20), (21, 25), (30, 33))
    standing, _ = Group(Committed(17, after)).watched(behind(before))
    assert standing.goes_on
    assert standing.settled_end == 33
    # 25 to 29 may have been fetched only just now.
    assert standing.held == ((17, 18), (20, 21))
    assert standing.held_offsets(9) == [17, 20]


@pytest.mark.parametrize("metadata", ["text of another client", "KS9", None])
def test_metadata_that_is_not_ours_says_nothing_of_what_is_held(metadata: str | None) -> None:
    standing, _ = Group(Committed(17, metadata)).watched(behind(metadata))
    assert (standing.moved, standing.held, standing.settled_end) == (False, (), None)


def test_few_records_are_read_the_ones_at_positions_first() -> None:
    places = [TopicPartition("orders", number) for number in range(9)]
    held = tuple((offset, offset + 1) for offset in range(10, 400, 2))
    every = [Standing(place, 10, 500, moved=False, held=held) for place in places]
    wanted = looking.wanted([*every, Standing(ORDERS, 3, 9, moved=True)])
    assert wanted[:9] == [(place, 10) for place in places]
    assert len(wanted) == 9 + judging.NAMED * judging.NAMED


# --- the records, read for real ---


def test_records_are_read_without_a_group_and_without_a_commit(
    embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": embedded_cluster.bootstrap})
    for number in range(10):
        producer.produce(topic, b"v", b"k%d" % number, 0, timestamp=NOW + number)
    assert producer.flush(30) == 0
    conf = {"bootstrap.servers": embedded_cluster.bootstrap, "group.id": topic}
    consumer = outsider({**conf, **looking.ONE_RECORD}, [])
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    found = looking.read_records(consumer, [(zero, 3), (one, 0), (zero, 7)], 30.0)
    consumer.close()
    # Nothing is in the other partition, and that is known at once.
    assert found == {
        (zero, 3): RecordFacts(3, b"k3", NOW + 3),
        (zero, 7): RecordFacts(7, b"k7", NOW + 7),
    }
    asking = Consumer(conf)
    (committed,) = asking.committed([ClientPartition(*zero)], timeout=30)
    asking.close()
    assert committed.offset < 0


# --- the judgement ---


def test_a_group_that_gets_on_is_fine() -> None:
    check = progress(Standing(ORDERS, 21, 40, moved=True))
    assert (check.status, check.seen) == (Status.OK, "1 partition with lag, all moved within 6.0 s")


@pytest.mark.parametrize(
    ("standing", "age", "status", "page"),
    [
        (SILENT, 5.0, Status.WARN, "lag-not-moving"),
        (SILENT, 600.0, Status.FAIL, "lag-not-moving"),
        (SILENT, None, Status.WARN, "lag-not-moving"),
        (HELD, 5.0, Status.WARN, "offsets-held"),
        (HELD, 59.9, Status.WARN, "offsets-held"),
        (HELD, 60.0, Status.FAIL, "position-held"),
        (HELD, None, Status.WARN, "offsets-held"),
    ],
)
def test_a_position_that_stands_still(
    standing: Standing, age: float | None, status: Status, page: str
) -> None:
    check = progress(standing, age=age)
    assert (check.status, check.page) == (status, page_of(page))
    assert "--status-url" in check.cure
    assert "orders-1, which app-1 at /10.0.0.7 has, has stood at 17 for 6 s" in check.why
    assert "key b'customer-17'" in check.why


def test_what_is_held_is_named_with_its_keys() -> None:
    why = progress(HELD, age=720.0).why
    assert "written 12 min ago" in why
    assert "while what follows is, up to 33, but for 4 more records" in why
    assert "(20 key b'customer-20', 23 key b'customer-23', 24 key b'customer-24', …)" in why


def test_a_position_behind_which_there_is_no_record_is_not_stuck() -> None:
    """The marker of a transaction is an offset too, and a plain consumer never commits past it."""
    check = judging.progress(Watched(6.0, [SILENT], {}, {}, NOW), 60.0)
    assert check.status is Status.OK
    assert "from orders-1@17 on no record came" in check.seen


def test_many_partitions_that_stand_still_are_a_few_sentences() -> None:
    every = [HELD._replace(place=TopicPartition("orders", number)) for number in range(200)]
    check = progress(*every, age=600.0)
    assert len(check.findings) == judging.NAMED + 1
    assert "so do 197 more: orders-3, orders-4" in check.why
    assert len(check.why) < 1_500


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7_300, "2 h"), (900_000, "10 d")],
)
def test_times_in_words(seconds: float, said: str) -> None:
    assert judging.in_words(seconds) == said
