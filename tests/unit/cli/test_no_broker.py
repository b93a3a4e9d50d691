"""How long a verb bears it that nothing comes, and what it says meanwhile."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.cli.no_broker import AFTER_STOP, LONGEST, Away
from kafka_keyshared.dlq.read_timeout import PATIENCE

REFUSED = KafkaError(KafkaError._TRANSPORT, "b:1: connection refused")
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)


class World:
    """A broker that is there or not, a client that tells of it, and a verb that waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.there = True
        self.said = False
        self.notes: list[str] = []
        self.away = Away(self.notes.append, lambda: self.now)
        client: Any = SimpleNamespace(list_topics=self.list_topics)
        self.away.asks = client

    def list_topics(self, timeout: float) -> None:
        assert timeout < 1.0
        if not self.there:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def wait(self, seconds: float) -> str | None:
        """Wait in vain; return why it was given up, if it was."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            if not self.there:
                self.away.heard(REFUSED)
                # As the client does: once, until it has been connected again.
                if not self.said:
                    self.away.heard(DOWN)
            self.said = not self.there
            if (why := self.away.over()) is not None:
                return why
        return None


@pytest.fixture
def world() -> World:
    return World()


def test_an_outage_is_told_when_it_begins_once_a_minute_and_when_it_is_over(world: World) -> None:
    world.there = False
    assert world.wait(140.0) is None
    world.there = True
    assert world.wait(10.0) is None
    began, one, two, back = world.notes
    assert began == (
        "no broker answers (b:1: connection refused); trying for up to 10 minutes; "
        "press Ctrl-C to stop"
    )
    for line, seconds in ((one, 60), (two, 120)):
        found = re.fullmatch(
            r"no broker has answered for (\d+) s \(b:1: connection refused\)", line
        )
        assert found is not None
        assert seconds <= int(found[1]) < seconds + 10
    assert re.fullmatch(r"a broker answers again, after 14\d s", back)


def test_what_comes_ends_an_outage_without_a_question(world: World) -> None:
    world.there = False
    world.wait(7.0)
    world.away.came()
    assert len(world.notes) == 2
    assert re.fullmatch(r"a broker answers again, after \d s", world.notes[1])


def test_what_a_client_had_received_already_is_no_end_of_an_outage(world: World) -> None:
    """It comes after the client has said that no broker answers: that was told as over at once."""
    world.away.heard(REFUSED)
    world.away.heard(DOWN)
    world.away.came()
    assert world.notes == []
    world.there, world.said = False, True
    world.wait(5.0)
    assert [each.partition(" (")[0] for each in world.notes] == ["no broker answers"]


def test_an_outage_that_began_while_much_was_received_already_is_told(world: World) -> None:
    """The client says once that no broker answers; what it had received comes for longer."""
    world.there = False
    world.wait(0.5)
    for _ in range(10):
        world.now += 0.7
        world.away.came()
    assert world.notes == []
    assert world.wait(2 * PATIENCE) is None
    assert [each.partition(" (")[0] for each in world.notes] == ["no broker answers"]


def test_what_another_client_had_received_is_no_end_of_an_outage(world: World) -> None:
    """Or it would be told as over for good: nobody says a second time that it is not."""
    world.there = False
    world.wait(5.0)
    world.away.came()
    assert world.wait(2 * PATIENCE) is None
    told = [each.partition(" (")[0].partition(",")[0] for each in world.notes]
    assert told[:3] == ["no broker answers", "a broker answers again", "no broker answers"]


def test_two_outages_at_once_are_both_told(world: World) -> None:
    world.there = False
    world.wait(5.0)
    world.there = True
    world.away.came()
    world.wait(0.5)
    world.there = False
    world.wait(5.0)
    told = [each.partition(" (")[0].partition(",")[0] for each in world.notes]
    assert told == ["no broker answers", "a broker answers again", "no broker answers"]


def test_what_another_client_still_tells_of_an_outage_is_no_new_one(world: World) -> None:
    world.there = False
    world.wait(30.0)
    world.there = True
    world.away.came()
    told = len(world.notes)
    world.away.heard(DOWN)
    world.wait(5.0)
    assert len(world.notes) == told == 2
    world.there = False
    world.wait(5.0)
    assert len(world.notes) == told + 1


def test_a_cluster_that_answers_and_sends_nothing_is_given_up_after_a_while(world: World) -> None:
    assert world.wait(PATIENCE) is None
    world.away.came()
    why = world.wait(2 * PATIENCE)
    assert why == f"nothing came for {PATIENCE:.0f} s"
    assert world.notes == []


def test_after_an_outage_it_is_waited_as_long_as_ever(world: World) -> None:
    world.there = False
    world.wait(100.0)
    world.there = True
    assert world.wait(PATIENCE) is None


def test_an_outage_without_end_is_given_up(world: World) -> None:
    world.there = False
    why = world.wait(2 * LONGEST)
    assert why is not None
    assert re.fullmatch(r"no broker answered for 60\d s \(b:1: connection refused\)", why)


def test_whoever_wants_the_end_gets_it_in_an_outage_too(world: World) -> None:
    world.there = False
    assert world.wait(100.0) is None
    world.away.stop()
    asked = world.now
    assert world.wait(10 * AFTER_STOP) == f"no answer within {AFTER_STOP:g} s after the stop"
    assert world.now - asked <= AFTER_STOP + 1.0
