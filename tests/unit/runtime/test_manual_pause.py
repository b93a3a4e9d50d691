"""What somebody pauses is not fetched from until it is resumed, whatever comes and goes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.command_queue import OrderRefusedError
from kafka_keyshared.runtime.pause_commands import pause, resume
from kafka_keyshared.runtime.pauses import Those
from kafka_keyshared.runtime.shutdown import stop
from tests.support.loop_ports import Stage
from tests.support.records import P0, P1, FakeRecord

REFUSED = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
EVERYTHING = Those()
THE_TOPIC = Those(topics=[P0.topic])
THE_FIRST = Those(partitions=[P0])


@pytest.fixture
def stage() -> Stage:
    """P0 is here, and one record of each of two partitions is there to be read."""
    made = Stage()
    made.accept()
    for each in (P0, P1):
        made.client.stored[each] = CommittedOffset(0, None)
        made.fill(FakeRecord(each, 0, b"key"))
    made.client._cooperative = True
    made.assign(P0)
    return made


def order(stage: Stage, those: Those, *, paused: bool = True) -> list[TopicPartition]:
    """Order it, and let the owner have rounds until it has answered."""
    work = (pause if paused else resume)(those)
    reply = stage.loop.orders.post("order", lambda: work(stage.loop))
    for _ in range(20):
        if reply.done():
            break
        stage.step()
    return reply.result(0.0)


def ran(stage: Stage) -> int:
    """Give it time, and say how many records run in it."""
    count = 0
    for _ in range(10):
        stage.now += 0.1
        stage.step()
        count += len(stage.work())
    return count


@pytest.mark.parametrize("those", [EVERYTHING, THE_TOPIC, THE_FIRST])
def test_of_what_is_paused_nothing_comes_until_it_is_resumed(stage: Stage, those: Those) -> None:
    assert order(stage, those) == [P0]
    assert order(stage, those) == [P0], "once more is the same"
    assert ran(stage) == 0
    assert order(stage, those, paused=False) == []
    assert order(stage, those, paused=False) == []
    assert ran(stage) == 1


def test_what_is_not_named_goes_on(stage: Stage) -> None:
    stage.assign(P1)
    assert order(stage, Those(partitions=[P1])) == [P1]
    assert ran(stage) == 1
    assert stage.client.paused == {P1}


def test_what_was_fetched_runs_to_its_end_and_is_committed(stage: Stage) -> None:
    stage.step(2)
    order(stage, EVERYTHING)
    assert stage.work() == [0]
    assert ran(stage) == 0
    assert stage.sent()[-1] == 1


@pytest.mark.parametrize("those", [EVERYTHING, THE_TOPIC, THE_FIRST])
@pytest.mark.parametrize("how", ["revoke", "lost"])
def test_a_rebalance_does_not_lift_it(stage: Stage, those: Those, how: str) -> None:
    order(stage, those)
    stage.client.callbacks[how]([P0])
    stage.client.paused.clear()  # as if the client had forgotten too
    stage.assign(P0)
    assert ran(stage) == 0
    order(stage, those, paused=False)
    assert ran(stage) == 1


def test_it_may_be_lifted_while_the_partition_is_away(stage: Stage) -> None:
    order(stage, THE_FIRST)
    stage.client.callbacks["revoke"]([P0])
    assert order(stage, THE_FIRST, paused=False) == []
    stage.assign(P0)
    assert ran(stage) == 1


@pytest.mark.parametrize("those", [EVERYTHING, THE_TOPIC, Those(partitions=[P1])])
def test_what_comes_later_is_paused_too(stage: Stage, those: Those) -> None:
    order(stage, those)
    ran(stage)
    stage.assign(P1)
    assert ran(stage) == 0
    assert order(stage, Those(partitions=[P1]), paused=False) == ([P0] if P0 in held(stage) else [])
    assert ran(stage) == 1


def test_a_partition_whose_start_was_not_known_is_paused_when_it_is(stage: Stage) -> None:
    order(stage, THE_TOPIC)
    stage.client.committed_fails.append(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    stage.assign(P1)
    for _ in range(5):
        stage.now += 2.0
        assert ran(stage) == 0
    assert P1 in stage.core.partitions, "it has started by now"
    assert held(stage) == {P0, P1}


def held(stage: Stage) -> set[TopicPartition]:
    return set(stage.client.paused)


@pytest.mark.parametrize(
    ("orders", "left"),
    [
        ([(EVERYTHING, True), (THE_FIRST, False)], [P1]),
        ([(EVERYTHING, True), (THE_TOPIC, False)], []),
        ([(THE_TOPIC, True), (THE_FIRST, False)], [P1]),
        ([(THE_FIRST, True), (THE_TOPIC, False)], []),
        ([(THE_FIRST, False), (EVERYTHING, True)], [P0, P1]),
        ([(THE_FIRST, True), (EVERYTHING, False)], []),
        ([(Those(topics=[], partitions=[]), True)], []),
    ],
)
def test_of_a_partition_the_last_order_that_names_it_counts(
    stage: Stage, orders: Sequence[tuple[Those, bool]], left: list[TopicPartition]
) -> None:
    stage.assign(P1)
    for those, paused in orders:
        answer = order(stage, those, paused=paused)
    assert answer == left
    assert held(stage) == set(left)


def test_it_is_answered_when_the_client_has_taken_it(stage: Stage) -> None:
    stage.client.pause_fails.append(REFUSED)
    work = pause(EVERYTHING)
    reply = stage.loop.orders.post("order", lambda: work(stage.loop))
    stage.loop.orders.serve()
    assert not reply.done()
    while not reply.done():
        stage.now += 0.1
        stage.step()
    assert stage.client.paused == {P0}


def test_a_partition_that_there_is_not_is_refused_by_name(stage: Stage) -> None:
    stage.client.added.add(P1)
    with pytest.raises(OrderRefusedError, match=f"no partition {P1} is known"):
        order(stage, Those(partitions=[P0, P1]))
    assert ran(stage) == 1, "nothing of it was done"
    stage.client.added.add(P0)
    assert order(stage, THE_FIRST) == [P0], "it was added since the start, and is here"


def test_a_stop_ends_as_ever(stage: Stage) -> None:
    stage.step(2)
    order(stage, EVERYTHING)
    stage.work()
    began = stage.now
    report = stop(stage.loop, 10.0, lambda: False)
    assert (report.clean, stage.sent()[-1]) == (True, 1)
    assert stage.now - began < 1.0
