"""Whether a group gets on: what is seen of positions twice, and what the doctor makes of it."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.standalone import outsider
from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.offsets.commit_metadata import encode
from kafka_keyshared.core.offsets.metadata_sections import STARTED, WAITING, LaneNotes, RunningNote
from kafka_keyshared.model import Coordinates, TopicPartition, in_words
from kafka_keyshared.observability.doctor import checks, instance_checks
from kafka_keyshared.observability.doctor import progress as looking
from kafka_keyshared.observability.doctor import progress_checks as judging
from kafka_keyshared.observability.doctor.checks import PartitionFacts
from kafka_keyshared.observability.doctor.findings import Check, CheckStatus, page_of
from kafka_keyshared.observability.doctor.progress import Committed
from kafka_keyshared.observability.doctor.progress_checks import (
    InstanceAnswer,
    Nothing,
    Read,
    RecordFacts,
    Standing,
    UnreadPosition,
)
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.commit_texts import here
from tests.support.doctor_survey import (
    HELD,
    NOW,
    ORDERS,
    SILENT,
    URL,
    blocked,
    instance,
    partition,
    progress,
    worker,
)
from tests.support.records import P1


def settled(position: int, *runs: tuple[int, int]) -> str:
    """The metadata of a commit with these offsets settled beyond the position."""
    return encode(here(position, P1), {"default": runs}).text


class Group:
    """What a group has committed at each look; the last stays. Time goes by while one waits."""

    def __init__(self, *looks: Committed | None) -> None:
        self.looks = list(looks)
        self.now = 0.0
        self.asked: list[list[TopicPartition]] = []

    def ask(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        self.asked.append(list(partitions))
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return {} if look is None else dict.fromkeys(partitions, look)

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def watch(self, behind: Sequence[PartitionFacts], seconds: float) -> list[Standing]:
        return looking.watch(behind, self.ask, seconds, clock=lambda: self.now, pause=self.pause)

    def watched(self, facts: PartitionFacts, seconds: float = 6.0) -> Standing:
        (standing,) = self.watch([facts], seconds)
        return standing


def behind(metadata: str | None = None, position: int = 17, end: int = 40) -> PartitionFacts:
    return PartitionFacts(*ORDERS, 0, end, position, metadata=metadata)


def test_a_group_that_gets_on_is_not_watched_for_longer_than_it_takes() -> None:
    group = Group(Committed(17, None), Committed(21, None))
    standing = group.watched(behind())
    assert standing.moved
    assert standing.seconds == 2 * looking.LOOK_EVERY


def test_a_position_that_stands_is_watched_for_all_the_time() -> None:
    standing = Group(Committed(17, None)).watched(behind(), seconds=6.0)
    assert (standing.moved, standing.position, standing.held) == (False, 17, ())
    assert standing.seconds == 6.0


def test_a_coordinator_that_does_not_answer_moves_nothing() -> None:
    standing = Group(None).watched(behind(settled(17, (18, 20))))
    assert not standing.moved
    assert standing.held == ((17, 18),)


def test_what_is_held_is_told_by_what_settled_beyond_it() -> None:
    before, after = settled(17, (18, 20), (21, 25)), settled(17, (18, 20), (21, 25), (30, 33))
    standing = Group(Committed(17, after)).watched(behind(before))
    assert standing.goes_on
    assert standing.settled_end == 33
    # 25 to 29 may have been fetched only just now.
    assert standing.held == ((17, 18), (20, 21))
    assert standing.held_offsets(9) == [17, 20]


@pytest.mark.parametrize("metadata", ["text of another client", "KS9", None])
def test_metadata_that_is_not_ours_says_nothing_of_what_is_held(metadata: str | None) -> None:
    standing = Group(Committed(17, metadata)).watched(behind(metadata))
    assert (standing.moved, standing.held, standing.settled_end) == (False, (), None)


def test_few_records_are_read_the_ones_at_positions_first() -> None:
    partitions = [TopicPartition("orders", number) for number in range(9)]
    held = tuple((offset, offset + 1) for offset in range(10, 400, 2))
    every = [Standing(partition, 10, 500, moved=False, held=held) for partition in partitions]
    wanted = looking.wanted([*every, Standing(ORDERS, 3, 9, moved=True)])
    assert wanted[:9] == [(partition, 10) for partition in partitions]
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
        (one, 0): Nothing(0),
    }
    asking = Consumer(conf)
    (committed,) = asking.committed([ClientPartition(*zero)], timeout=30)
    asking.close()
    assert committed.offset < 0


def test_a_record_that_does_not_come_in_time_is_told_from_none() -> None:
    """What listens there takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        consumer = outsider({"bootstrap.servers": address, **looking.ONE_RECORD}, [])
        found = looking.read_records(consumer, [(ORDERS, 3)], 0.3)
        consumer.close()
    assert found == {(ORDERS, 3): UnreadPosition("it did not come within 0.3 s")}


# --- the judgement ---


def test_a_group_that_gets_on_is_fine() -> None:
    check = progress(Standing(ORDERS, 21, 40, moved=True))
    assert (check.status, check.seen) == (
        CheckStatus.OK,
        "1 partition with lag, all moved within 6.0 s",
    )


@pytest.mark.parametrize("age", [5.0, 600.0, None])
@pytest.mark.parametrize(
    ("standing", "seconds", "status", "page"),
    [
        (SILENT, 6.0, CheckStatus.WARN, "lag-not-moving"),
        (SILENT, 60.0, CheckStatus.FAIL, "lag-not-moving"),
        (HELD, 6.0, CheckStatus.WARN, "offsets-held"),
        (HELD, 59.9, CheckStatus.WARN, "offsets-held"),
        (HELD, 60.0, CheckStatus.FAIL, "position-held"),
    ],
)
def test_a_position_is_stuck_once_it_was_seen_to_stand_for_long_however_old_its_record(
    standing: Standing, seconds: float, status: CheckStatus, page: str, age: float | None
) -> None:
    check = progress(standing._replace(seconds=seconds), age=age)
    assert (check.status, check.page) == (status, page_of(page))
    assert "--status-url" in check.cure
    assert f"orders-1, which app-1 at /10.0.0.7 has, has stood at 17 for {seconds:.0f} s" in (
        check.why
    )
    assert "key b'customer-17'" in check.why
    in_doubt = "whether it is stuck or only slow" in check.why
    assert in_doubt == (status is CheckStatus.WARN)
    assert ("--watch 60" in check.cure) == (status is CheckStatus.WARN)


def test_the_first_record_behind_a_gap_is_named_as_such() -> None:
    why = progress(SILENT, found=RecordFacts(25, b"customer-25", NOW - 5_000)).why
    assert "the next record, 25 (key b'customer-25', written 5 s ago), is not settled" in why


def test_what_is_held_is_named_with_its_keys() -> None:
    why = progress(HELD, age=720.0).why
    assert "written 12 min ago" in why
    assert "while later records are, up to 33, but for 4 more records" in why
    assert "(20 key b'customer-20', 23 key b'customer-23', 24 key b'customer-24', …)" in why


def test_a_position_behind_which_there_is_no_record_is_not_stuck() -> None:
    """The marker of a transaction is an offset too, and a plain consumer never commits past it."""
    check = progress(SILENT, found=Nothing(40))
    assert check.status is CheckStatus.OK
    assert "0 of them stood still" in check.seen
    assert "from orders-1@17 on there is no record, only what transactions" in check.seen


def test_a_record_that_does_not_come_in_time_is_not_one_that_is_not_there() -> None:
    check = progress(SILENT, found=UnreadPosition("it did not come within 4 s"))
    assert (check.status, check.page) == (CheckStatus.WARN, page_of("record-unknown"))
    assert "the record there could not be read (it did not come within 4 s)" in check.why
    assert "so it is unknown whether the group has work left" in check.why
    held = progress(HELD, found=UnreadPosition("it did not come within 4 s"))
    assert held.page == page_of("offsets-held"), "the metadata tells that it is there"
    assert "the record there (it could not be read: it did not come within 4 s)" in held.why


def test_an_open_transaction_is_no_fault_of_the_group() -> None:
    check = progress(SILENT, found=Nothing(20))
    assert (check.status, check.page) == (CheckStatus.WARN, page_of("transaction-open"))
    assert "the records from 20 on are of an open transaction" in check.why


# --- what an instance says ---


def told(**status: Any) -> Check:
    """The check of a position that stands still, with what its instance says of it."""
    said = instance_checks.told(instance(**status), "billing", [SILENT])
    return progress(SILENT, age=720.0, url=URL, told=said)


def of_orders(**changed: Any) -> list[dict[str, Any]]:
    return [{**partition(1, 23), **changed}]


def test_a_key_that_its_instance_says_is_blocked_is_stuck_at_once() -> None:
    check = told(partitions=of_orders(), lanes={"blocked": 1}, blocked=[blocked(17)])
    assert (check.status, check.page) == (CheckStatus.FAIL, page_of("lag-not-moving"))
    assert "its instance says: its key is blocked, for 12 min (last: KeyError at app.py:6" in (
        check.why
    )
    assert check.cure.startswith("fix the handler and restart")
    assert "--status-url" not in check.cure


@pytest.mark.parametrize(
    ("seconds", "status"),
    [(8.0, CheckStatus.WARN), (59.0, CheckStatus.WARN), (61.0, CheckStatus.FAIL)],
)
def test_a_record_that_runs_is_stuck_when_its_instance_says_so(
    seconds: float, status: CheckStatus
) -> None:
    check = told(partitions=of_orders(), workers=[worker(3, 17, seconds)])
    assert check.status is status
    assert f"its instance says: worker-3 has been running it for {seconds:.0f} s" in check.why
    assert "whether it is stuck or only slow" not in check.why, "that is known"
    assert "--status-url" not in check.cure


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"oldest_seconds": 8.0}, "it waits, for a worker or its next attempt, for 8 s"),
        ({"safe": 21}, "all before 21 is settled, and its commit has not come through"),
        ({"fetched": 17}, "it has not fetched it"),
        (
            {"fetched": 17, "held_back": ("the window is full",)},
            "it has not fetched it; the window is full",
        ),
    ],
)
def test_what_a_record_waits_for_is_told(changed: dict[str, Any], said: str) -> None:
    check = told(partitions=of_orders(**changed))
    assert (check.status, said in check.why) == (CheckStatus.WARN, True), check.why


def test_what_somebody_has_paused_is_not_stuck_however_long_it_stands() -> None:
    long = SILENT._replace(seconds=600.0)

    def told_of(*held_back: str) -> Check:
        partitions = of_orders(fetched=17, held_back=held_back)
        said = instance_checks.told(instance(partitions=partitions), "billing", [long])
        return progress(long, age=720.0, url=URL, told=said)

    check = told_of(Reason.BY_HAND)
    assert check.status is CheckStatus.WARN
    assert "its instance says: it has not fetched it; it is paused by hand" in check.why
    assert check.cure.startswith("resume it (app.resume())")
    assert told_of().status is CheckStatus.FAIL


@pytest.mark.parametrize("status", [{"partitions": [partition(0)]}, {"group": "other"}])
def test_an_instance_that_does_not_have_the_partition_tells_nothing_of_it(
    status: dict[str, Any],
) -> None:
    check = told(**{"partitions": of_orders(), **status})
    assert check.status is CheckStatus.WARN
    assert f"{URL} tells nothing of this partition: ask app-1 at /10.0.0.7 there" in check.cure
    assert "--status-url" not in check.cure, "it was given"


# --- how long to look ---


class Noted(list[str]):
    """What was said before something took long."""


def observed(
    group: Group, *, age: float, found: Read | None = None, **how: Any
) -> tuple[looking.ProgressObservation, Noted]:
    """Observe a position with a record of that age at it."""
    noted = Noted()
    record = found or RecordFacts(17, b"k", NOW - int(age * 1000))

    def read(records: Sequence[Coordinates]) -> dict[Coordinates, Read]:
        return dict.fromkeys(records, record)

    said = how.pop("told", {})
    ask = looking.ProgressQueries(group.watch, read, lambda _: said, lambda: NOW, noted.append)
    return looking.observe([behind()], looking.Looking(**how), ask), noted


def slow(seconds: float) -> Group:
    """A group that takes so long for a record."""
    looks = [Committed(17, None)] * int(seconds / looking.LOOK_EVERY)
    return Group(*looks, Committed(18, None))


def test_a_slow_handler_with_an_old_backlog_is_told_from_one_that_hangs() -> None:
    seen, noted = observed(slow(10.0), age=7_200)
    (standing,) = seen.standing
    assert (standing.moved, standing.seconds) == (True, 10.5)
    (note,) = noted
    assert "orders-1@17 did not move in 6 s: watching on for 54 s at most" in note
    seen, noted = observed(Group(Committed(17, None)), age=7_200)
    (standing,) = seen.standing
    assert (standing.moved, standing.seconds, len(noted)) == (False, 60.0, 1)


@pytest.mark.parametrize(
    ("how", "seconds"),
    [
        ({"age": 30}, 6.0),  # it cannot be held for longer than it is there
        ({"age": 7_200, "watch": 6.0}, 6.0),
        ({"age": 7_200, "watch": 30.0}, 30.0),
        ({"age": 7_200, "held_after": 3.0}, 6.0),
        ({"age": 7_200, "held_after": 20.0}, 20.0),
        ({"age": 7_200, "held_after": 7_200.0}, 60.0),  # that would be for too long
        ({"age": 7_200, "found": Nothing(40)}, 6.0),
        ({"age": 7_200, "found": UnreadPosition("late")}, 60.0),
        ({"age": 7_200, "told": {ORDERS: InstanceAnswer(8.0, "it runs", "see")}}, 6.0),
    ],
)
def test_nobody_waits_for_longer_than_it_takes_to_know(how: dict[str, Any], seconds: float) -> None:
    seen, noted = observed(Group(Committed(17, None)), **how)
    (standing,) = seen.standing
    assert standing.seconds == seconds
    assert len(noted) == (seconds > 6.0 and "watch" not in how)


def test_many_partitions_that_stand_still_are_a_few_sentences() -> None:
    held = HELD._replace(seconds=60.0)
    every = [held._replace(partition=TopicPartition("orders", number)) for number in range(200)]
    check = progress(*every, age=600.0)
    assert len(check.findings) == judging.NAMED + 1
    assert "so do 197 more: orders-3, orders-4" in check.why
    assert len(check.why) < 1_500


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7_300, "2 h"), (900_000, "10 d")],
)
def test_times_in_words(seconds: float, said: str) -> None:
    assert in_words(seconds) == said


def test_a_position_that_stands_still_names_what_ran_at_the_last_commit() -> None:
    running = LaneNotes(running=RunningNote({17: STARTED, 20: WAITING}))
    text = encode(here(17, P1), {}, notes={"default": running}).text
    standing = Group(Committed(17, text)).watched(behind())
    assert standing.running == [17, 20]
    (finding,) = progress(standing, age=5.0).findings
    assert "running at the last commit: orders-1@17, orders-1@20; whether" in finding.why


def test_a_partition_without_an_owner_names_what_ran_when_the_last_one_ended() -> None:
    running = LaneNotes(running=RunningNote(dict.fromkeys(range(17, 30), STARTED), 4))
    facts = behind(encode(here(17, P1), {}, notes={"default": running}).text)
    check = checks.positions([facts], {}, owners=())
    assert check.status is CheckStatus.WARN
    assert "orders-1@17" in check.why
    assert "orders-1@26 (+7 more)" in check.why
    owned = checks.positions([facts], {}, owners={TopicPartition(*ORDERS)})
    assert owned.status is CheckStatus.OK, "a living owner runs them"
    assert checks.positions([facts], {}).status is CheckStatus.OK, "it may have an owner"
