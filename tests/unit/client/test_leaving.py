"""The order in which a member leaves: nothing is left to call back when its client is closed."""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from kafka_keyshared.client.leaving import LEAVE_TIMEOUT, STEP, leave


class Leaving:
    """A client that is a member until it has been polled so often; a clock that polls move on."""

    def __init__(self, polls: int, fails: bool = False) -> None:
        self.left_after = polls
        self.fails = fails
        self.now = 0.0
        self.calls: list[str] = []

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

    def leave(self, *, keeps_id: bool = False) -> bool:
        return leave(cast("Consumer", self), keeps_id=keeps_id, clock=lambda: self.now)


def test_what_has_come_is_called_back_also_by_who_is_no_member() -> None:
    consumer = Leaving(polls=0)
    assert consumer.leave()
    assert consumer.calls == ["unsubscribe", "poll"]


@pytest.mark.parametrize("keeps_id", [False, True])
def test_it_polls_until_it_is_no_member_any_more(keeps_id: bool) -> None:
    consumer = Leaving(polls=5)
    consumer.memberid, consumer.assignment = (  # type: ignore[method-assign]
        (lambda: "its own", consumer.assignment) if keeps_id else (consumer.memberid, lambda: [1])
    )
    assert consumer.leave(keeps_id=keeps_id)
    assert consumer.calls == ["unsubscribe"] + 5 * ["poll"]


def test_a_group_that_waits_for_others_is_left_behind() -> None:
    consumer = Leaving(polls=10_000)
    assert not consumer.leave()
    assert consumer.now == pytest.approx(LEAVE_TIMEOUT, abs=STEP)


def test_a_client_that_refuses_is_closed_as_it_is() -> None:
    consumer = Leaving(polls=10_000, fails=True)
    assert not consumer.leave()
    assert consumer.calls == ["unsubscribe"]
