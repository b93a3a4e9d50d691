"""An outage is told in a line when it begins, one a minute, and one when it is over."""

from __future__ import annotations

import logging
import re

import pytest
from confluent_kafka import KafkaError

from kafka_keyshared.client.connection_log import (
    ASK_EVERY,
    ASK_FIRST,
    ASK_LAST,
    SAME_EVERY,
    OutageLog,
)
from kafka_keyshared.logs import CLIENT_EVERY, CLIENT_LINES, ClientLog, log_of, quietly

REFUSED = KafkaError(KafkaError._TRANSPORT, "broker 1: connection refused")
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


class World:
    """A broker that is there or not, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.there = False
        self.asked: list[float] = []
        # For how long each answer was to be waited for, and how long one takes.
        self.waits: list[float] = []
        self.takes = 0.0
        self.outages = OutageLog(self.answers, lambda: self.now)

    def answers(self, timeout: float) -> bool:
        self.asked.append(self.now)
        self.waits.append(timeout)
        self.now += self.takes
        return self.there

    def after(self, seconds: float) -> None:
        """Let time pass, with the client telling of every attempt, and look in between."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.1
            if not self.there:
                self.outages.heard(REFUSED)
                self.outages.heard(DOWN)
            self.outages.look()


@pytest.fixture
def world() -> World:
    return World()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records]


def test_an_outage_is_three_lines_however_often_the_client_tells_of_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.outages.heard(REFUSED)
    world.outages.heard(DOWN)
    world.after(75.0)
    world.there = True
    world.after(ASK_EVERY)
    first, gone, still, back = lines(caplog)
    assert first == "broker 1: connection refused"
    assert gone == (
        "no broker answers (broker 1: connection refused); held records still run; the "
        "connection is retried"
    )
    assert re.fullmatch(r"no broker has answered for 6\d s \(broker 1: connection refused\)", still)
    assert re.fullmatch(r"a broker answers again, after 7\d s", back)


def test_a_broker_is_asked_soon_and_then_now_and_then_and_not_while_all_is_well(
    world: World,
) -> None:
    world.after(0.1)
    world.after(20.0)
    first, second, *_ = world.asked
    assert first - 100.0 == pytest.approx(ASK_FIRST, abs=0.5)
    assert second - first == pytest.approx(ASK_EVERY, abs=0.2)
    world.there = True
    world.after(ASK_EVERY + 0.2)
    world.asked.clear()
    world.after(60.0)
    assert world.asked == []


def test_an_outage_for_want_of_a_token_says_so(caplog: pytest.LogCaptureFixture) -> None:
    outages = OutageLog(lambda _: False, lambda: 0.0, no_token=lambda said: f"the cause of {said}")
    outages.heard(REFUSED)
    outages.heard(DOWN)
    _, line = lines(caplog)
    assert line.startswith("no broker answers (no token: the cause of broker 1: connection refused")


def test_the_next_outage_is_told_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        world.there = False
        world.after(3.0)
        world.there = True
        world.after(ASK_EVERY)
    assert len([each for each in lines(caplog) if "no broker answers" in each]) == 2
    assert len([each for each in lines(caplog) if "answers again" in each]) == 2


def test_one_broker_of_several_is_told_once_in_a_minute(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(int(SAME_EVERY / 0.1) + 3):
        world.now += 0.1
        world.outages.heard(REFUSED)
        world.outages.look()
    assert lines(caplog) == ["broker 1: connection refused"] * 2
    assert world.asked == []


def test_what_is_no_connection_is_told_in_an_outage_too(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.outages.heard(DOWN)
    world.outages.heard(KafkaError(KafkaError._FATAL, "fenced", fatal=True))
    assert caplog.records[-1].levelno == logging.ERROR
    assert world.outages.last_error == "fenced"


# --- how long a broker is waited for at the end ---


def test_outside_an_outage_a_broker_is_waited_for_and_not_asked(world: World) -> None:
    assert world.outages.patience(10.0) == 10.0
    assert not world.asked


def test_an_outage_that_is_over_and_not_yet_known_to_be_is_found_out_at_the_end(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The last question may be :data:`ASK_EVERY` old: so long a broker may have been back."""
    world.outages.heard(DOWN)
    world.after(ASK_FIRST + 0.2)
    world.there, world.takes = True, 0.25
    assert world.outages.patience(10.0) == pytest.approx(9.75)
    assert world.outages.seconds is None
    assert lines(caplog)[-1].startswith("a broker answers again")


def test_in_an_outage_no_broker_is_waited_for(world: World) -> None:
    world.outages.heard(DOWN)
    assert world.outages.patience(10.0) == 0.0
    assert len(world.asked) == 1
    assert world.outages.seconds is not None


def test_a_question_at_the_end_takes_no_longer_than_there_is_time(world: World) -> None:
    world.outages.heard(DOWN)
    for seconds, asked in ((0.2, [0.2]), (10.0, [ASK_LAST]), (0.0, []), (-1.0, [])):
        world.waits.clear()
        assert world.outages.patience(seconds) == 0.0
        assert world.waits == asked


# --- the lines of the client itself ---


def test_of_the_clients_own_lines_a_few_of_each_kind_are_written_in_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    log = ClientLog(log_of("kafka_keyshared.client"), lambda: now[0])
    with caplog.at_level(logging.INFO, "kafka_keyshared.client"):
        for number in range(500):
            log.log(30, "%s [%s] %s", "SESSTMOUT", "rdkafka#consumer-1", f"line {number}")
            log.log(40, "%s [%s] %s", "FAIL", "rdkafka#producer-1", "connection refused")
        log.log(30, "%s [%s] %s", "GETPID", "rdkafka#producer-1", "another kind")
        now[0] = CLIENT_EVERY
        log.log(30, "%s [%s] %s", "SESSTMOUT", "rdkafka#consumer-1", "a minute later")
        log.log(40, "%s [%s] %s", "FATAL", "rdkafka#producer-1", "what the package tells itself")
    *records, fatal = caplog.records
    assert fatal.levelno == logging.WARNING
    said = [each.getMessage() for each in records]
    assert said[:CLIENT_LINES] == [
        f"SESSTMOUT [rdkafka#consumer-1] line {number}" for number in range(CLIENT_LINES)
    ]
    assert said[CLIENT_LINES:] == [
        "GETPID [rdkafka#producer-1] another kind",
        f"{500 - CLIENT_LINES} more lines of the Kafka client like this: SESSTMOUT",
        "SESSTMOUT [rdkafka#consumer-1] a minute later",
    ]


def test_a_producer_that_asks_again_by_itself_warns_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = ClientLog(log_of("kafka_keyshared.client"))
    asked = "Failed to acquire idempotence PID from broker localhost:9092/1: "
    with caplog.at_level(logging.DEBUG, "kafka_keyshared.client"):
        again = f"{asked}Broker: Coordinator load in progress: retrying"
        log.log(logging.WARNING, "%s [%s] %s", "GETPID", "rdkafka#producer-4", again)
        log.log(
            logging.WARNING, "%s [%s] %s", "GETPID", "rdkafka#producer-4", f"{asked}not allowed"
        )
    assert [each.levelno for each in caplog.records] == [logging.DEBUG, logging.WARNING]


@pytest.mark.parametrize("wanted", [{"logger": object()}, {"debug": "cgrp"}])
def test_who_wants_the_clients_lines_otherwise_has_them_so(wanted: dict[str, object]) -> None:
    assert quietly({"group.id": "g", **wanted}) == {"group.id": "g", **wanted}
    assert isinstance(quietly({"group.id": "g"})["logger"], ClientLog)


def test_an_outage_is_believed_whatever_number_the_client_gives(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a lost broker it has said "0/1 brokers are down", once, and nothing more."""
    world.outages.heard(KafkaError(KafkaError._ALL_BROKERS_DOWN, "0/1 brokers are down"))
    assert world.outages.seconds is not None
    assert len(lines(caplog)) == 1
