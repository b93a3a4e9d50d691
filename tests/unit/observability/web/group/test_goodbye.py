"""Who stops waits for those who ask to hear of it: as long as that takes, and not for ever."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kafka_keyshared.observability.web.group import goodbye
from kafka_keyshared.observability.web.group.goodbye import Farewell
from kafka_keyshared.observability.web.group.subscribe import GroupListener
from kafka_keyshared.observability.web.group.view import Looker
from tests.support.instance_reports import GROUP, report

STOPPING = {"phase": "stopping"}


class Leaving:
    """A farewell by a clock that goes on by a tenth of a second with every look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(goodbye, "_LOOK_EVERY", 0.001)
        self.now = 1_000.0
        self.looks = 0
        self.farewell = Farewell(lambda: self.now)

    def asked(self, *askers: str, **more: Any) -> None:
        for asker in askers:
            self.farewell.answered(asker, report("a", **more))

    def wait(self, looks: int = 1_000) -> float:
        """How long it waits; after so many looks it is told to wait no more."""
        began = self.now

        def over() -> bool:
            self.now += 0.1
            self.looks += 1
            return self.looks > looks

        self.farewell.wait(over)
        return self.now - began


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> Leaving:
    return Leaving(monkeypatch)


def test_who_is_asked_by_nobody_does_not_wait(leaving: Leaving) -> None:
    assert leaving.wait() == 0.0
    leaving.asked("")  # a person, who will not ask again by himself
    assert leaving.wait() == 0.0


def test_all_who_have_asked_hear_of_the_stop_before_it_goes_on(leaving: Leaving) -> None:
    leaving.asked("b", "c")
    leaving.asked("b", **STOPPING)
    ended = threading.Event()

    def wait() -> None:
        leaving.farewell.wait(lambda: False)
        ended.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    try:
        assert not ended.wait(0.1), "c has not heard"
        leaving.asked("c", **STOPPING)
        assert ended.wait(30)
    finally:
        leaving.now += goodbye.WITHIN
        waiting.join(30)


def test_one_that_does_not_ask_again_is_waited_for_a_moment(leaving: Leaving) -> None:
    leaving.asked("b")
    assert leaving.wait() == pytest.approx(goodbye.WITHIN, abs=0.2)


def test_one_that_has_not_asked_lately_is_not_waited_for(leaving: Leaving) -> None:
    leaving.asked("b")
    leaving.now += goodbye.LATELY
    assert leaving.wait() == 0.0


def test_it_waits_no_more_once_it_is_told_so(leaving: Leaving) -> None:
    leaving.asked("b")
    assert leaving.wait(looks=3) == pytest.approx(0.4)


def test_no_number_of_askers_takes_the_memory(
    leaving: Leaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goodbye, "MOST", 3)
    leaving.asked(*"bcdefg")
    assert list(leaving.farewell._asked_at) == ["e", "f", "g"]


def test_an_instance_does_not_wait_for_itself() -> None:
    own = report("a", 0)
    group = GroupListener(
        lambda: own, None, Looker(GROUP, own.instance, "a"), clock=lambda: 1_000.0
    )
    looked: list[bool] = []

    def over() -> bool:
        looked.append(True)
        return True

    assert group.report(own.instance) is own
    group.part(over)
    assert looked == []
    assert group.report("b-1-0") is own
    group.part(over)
    assert looked == [True]
