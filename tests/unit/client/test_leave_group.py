"""The order in which a member leaves: nothing is left to call back when its client is closed."""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from kafka_keyshared.client.leave_group import JOIN_TIMEOUT, LEAVE_TIMEOUT, STEP, Left, leave


class Leaving:
    """A client that is a member until it has been polled so often; a clock that polls move on."""

    def __init__(self, polls: int, fails: bool = False) -> None:
        self.left_after = polls
        self.fails = fails
        self.now = 0.0
        self.calls: list[str] = []
        self.asked = 0

    def _asked(self, patience: float) -> float:
        self.asked += 1
        return patience

    def unsubscribe(self) -> None:
        self.calls.append("unsubscribe")
        if self.fails:
            raise KafkaException(KafkaError(KafkaError._STATE))

    def poll(self, timeout: float) -> None:
        self.calls.append("poll")
        self.now += timeout

    def memberid(self) -> str:
        return "" if self.calls.count("poll") >= self.left_after else "member"

    def assignment(self) -> list[int]:
        return [] if self.calls.count("poll") >= self.left_after else [1]

    def leave(
        self, *, keeps_id: bool = False, joining: bool = False, patience: float = 60.0
    ) -> Left:
        return leave(
            cast("Consumer", self),
            keeps_id=keeps_id,
            joining=joining,
            patience=lambda: self._asked(patience),
            clock=lambda: self.now,
        )


class Joining(Leaving):
    """A client that is told its member id with the poll of that number; its leave takes another."""

    def __init__(self, answered: float) -> None:
        super().__init__(polls=0)
        self.answered = answered

    def memberid(self) -> str:
        if "unsubscribe" in self.calls:
            return ""
        return "member" if self.calls.count("poll") >= self.answered else ""


def test_what_has_come_is_called_back_also_by_who_is_no_member() -> None:
    consumer = Leaving(polls=0)
    assert consumer.leave() is Left.YES
    assert consumer.calls == ["unsubscribe", "poll"]


def test_a_member_that_joins_is_waited_for_until_the_coordinator_tells_its_id() -> None:
    consumer = Joining(answered=150)
    assert consumer.leave(joining=True) is Left.YES
    assert consumer.calls == [*150 * ["poll"], "unsubscribe", "poll"]


def test_a_member_that_knows_its_id_leaves_at_once() -> None:
    consumer = Joining(answered=0)
    assert consumer.leave(joining=True) is Left.YES
    assert consumer.calls == ["unsubscribe", "poll"]
    assert not consumer.asked, "in an outage to ask takes time"


def test_a_member_that_chooses_its_own_id_leaves_at_once() -> None:
    consumer = Leaving(polls=0)
    assert consumer.leave(joining=True, keeps_id=True) is Left.YES
    assert consumer.calls == ["unsubscribe", "poll"]


@pytest.mark.parametrize(
    ("patience", "waited"), [(3.0, 3.0), (60.0, JOIN_TIMEOUT), (0.0, 0.0), (-1.0, -1.0)]
)
def test_a_join_without_an_answer_in_time_is_said_not_to_be_left(
    patience: float, waited: float
) -> None:
    consumer = Joining(answered=float("inf"))
    assert consumer.leave(joining=True, patience=patience) is Left.JOINING
    assert consumer.calls[-1] == "unsubscribe"
    assert consumer.now == pytest.approx(max(waited, 0.0), abs=STEP)
    assert consumer.asked == 1


@pytest.mark.parametrize("keeps_id", [False, True])
def test_it_polls_until_it_is_no_member_any_more(keeps_id: bool) -> None:
    consumer = Leaving(polls=5)
    consumer.memberid, consumer.assignment = (  # type: ignore[method-assign]
        (lambda: "its own", consumer.assignment) if keeps_id else (consumer.memberid, lambda: [1])
    )
    assert consumer.leave(keeps_id=keeps_id) is Left.YES
    assert consumer.calls == ["unsubscribe"] + 5 * ["poll"]


def test_a_group_that_waits_for_others_is_left_behind() -> None:
    consumer = Leaving(polls=10_000)
    assert consumer.leave() is Left.REBALANCING
    assert consumer.now == pytest.approx(LEAVE_TIMEOUT, abs=STEP)


def test_a_client_that_refuses_is_closed_as_it_is() -> None:
    consumer = Leaving(polls=10_000, fails=True)
    assert consumer.leave() is Left.REFUSED
    assert consumer.calls == ["unsubscribe"]
