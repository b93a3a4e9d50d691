"""Listening to a group: while somebody looks, whatever comes, and with an end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import msgspec
import pytest

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.observability.web.group import subscribe
from kafka_keyshared.observability.web.group.report import InstanceReport, key_of
from kafka_keyshared.observability.web.group.subscribe import GroupListener, News, ReportSource
from kafka_keyshared.observability.web.group.view import Looker
from tests.support.instance_reports import GROUP, report

Eventually = Callable[..., None]


class MadeUpEar:
    """Hears what it is told to, by the thread of the group."""

    def __init__(self) -> None:
        self.caught_up = False
        self.troubles: tuple[str, ...] = ()
        self.closed = threading.Event()
        self.opened = 0
        self.failing = ""
        self._news: list[News] = []
        self._lock = threading.Lock()
        self._told = threading.Event()

    def open(self) -> MadeUpEar:
        if self.failing:
            raise KeySharedError(self.failing)
        self.opened += 1
        self.closed.clear()
        return self

    def tell(self, *news: News) -> None:
        with self._lock:
            self._news += news
            self.caught_up = True
        self._told.set()

    def hear(self, timeout: float) -> Iterable[News]:
        self._told.wait(timeout)
        with self._lock:
            found, self._news = self._news, []
            self._told.clear()
        return found

    def close(self) -> None:
        self.closed.set()


class Here:
    """A group as an instance ``a`` sees it, by a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(subscribe, "TAKE", 0.01)
        monkeypatch.setattr(subscribe, "AGAIN_AFTER", 0.01)
        self.now = 1_000.0
        self.own: InstanceReport | None = None
        self.sizes = {"orders": 2}
        self.trouble = ""
        self.ear = MadeUpEar()
        self.group = GroupListener(
            lambda: self.own,
            ReportSource("topic", "reports", self.ear.open),
            Looker(GROUP, "a-1-0", "a"),
            sizes=lambda topics: {each: self.sizes[each] for each in topics},
            trouble=lambda: self.trouble,
            clock=lambda: self.now,
            wall=lambda: self.now,
        )

    def labels(self) -> list[str]:
        return [each.label for each in self.group.view().instances]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterable[Here]:
    made = Here(monkeypatch)
    yield made
    made.group.close()


def news(name: str, *numbers: int, ago: float = 0.0, at: float = 100.0, settled: int = 0) -> News:
    said = report(name, *numbers, at=at, settled=settled)
    return News(key_of(GROUP, said.instance), said, ago)


def test_the_first_look_waits_for_what_others_have_said(here: Here) -> None:
    here.ear.tell(news("b", 0), news("c", 1, ago=20.0))
    view = here.group.view()
    assert [(each.label, each.state) for each in view.instances] == [
        ("b", "running"),
        ("c", "silent"),
    ]
    assert (view.source, view.place, view.taken_at) == ("topic", "reports", 1_000.0)


def test_an_instance_knows_of_itself_without_having_heard_itself(here: Here) -> None:
    here.own = report("a", 0, 1)
    here.ear.tell()
    (found,) = here.group.view().instances
    assert (found.here, found.state) == (True, "running")


def test_one_that_had_stopped_cleanly_before_anybody_looked_is_not_shown(here: Here) -> None:
    here.ear.tell(news("b", 0), news("c", 1), news("b", 0)._replace(report=None))
    assert here.labels() == ["c"]


def test_one_that_has_stopped_cleanly_is_gone(here: Here, eventually: Eventually) -> None:
    here.ear.tell(news("b", 0), news("c", 1))
    assert here.labels() == ["b", "c"]
    here.ear.tell(news("b", 0)._replace(report=None))
    eventually(lambda: here.labels() == ["c"])


def test_a_rate_is_that_of_the_last_half_minute(here: Here, eventually: Eventually) -> None:
    def rate() -> float | None:
        return here.group.view().instances[0].per_second

    here.ear.tell(news("b", at=100.0, settled=1_000))
    assert rate() is None, "one report says nothing of it"
    here.ear.tell(news("b", at=105.0, settled=1_050))
    eventually(lambda: rate() == 10.0)
    here.ear.tell(*(news("b", at=105.0 + 5 * n, settled=1_050 + 500 * n) for n in range(1, 9)))
    eventually(lambda: rate() == 100.0)


def test_an_older_report_does_not_take_the_place_of_a_later_one(
    here: Here, eventually: Eventually
) -> None:
    here.ear.tell(news("b", 0, at=105.0), news("b", 1, at=100.0), news("c"))
    (b, _) = here.group.view().instances
    assert b.report.partitions == {"orders": (0,)}


def test_it_is_asked_how_many_partitions_there_are(here: Here, eventually: Eventually) -> None:
    here.ear.tell(news("b", 0))
    assert here.group.view().unheld == 1
    here.sizes = {"orders": 4}
    here.now += subscribe.SIZES_EVERY + 1
    here.ear.tell(news("b", 0, at=200.0))
    eventually(lambda: here.group.view().unheld == 3)


def test_nobody_listens_a_minute_after_the_last_look_and_the_next_begins_anew(
    here: Here, eventually: Eventually
) -> None:
    here.ear.tell(news("b", 0))
    assert here.labels() == ["b"]
    here.now += subscribe.LISTENS_FOR + 1
    assert here.ear.closed.wait(30)
    here.ear.caught_up = False
    here.ear.tell(news("c", 0))
    assert here.labels() == ["c"]
    assert here.ear.opened == 2


def test_what_keeps_it_from_hearing_is_told_until_it_is_over(
    here: Here, eventually: Eventually
) -> None:
    here.ear.failing = "topic 'reports' does not exist"
    here.trouble = "nobody hears this one"
    here.own = report("a", 0)
    view = here.group.view()
    assert view.troubles == ("nobody hears this one", "topic 'reports' does not exist")
    assert [each.label for each in view.instances] == ["a"]
    here.ear.failing = here.trouble = ""
    here.ear.tell(news("b", 1))
    eventually(lambda: here.labels() == ["a", "b"] and not here.group.view().troubles)


def test_no_number_of_made_up_instances_takes_the_memory(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribe, "MOST", 5)
    here.ear.tell(*(news(f"x{n}", ago=10.0 - n) for n in range(9)))
    assert here.labels() == ["x4", "x5", "x6", "x7", "x8"]


def test_many_looks_are_one_listener(here: Here) -> None:
    here.ear.tell(news("b", 0))
    looks = [threading.Thread(target=here.labels) for _ in range(8)]
    for each in looks:
        each.start()
    for each in looks:
        each.join(30)
        assert not each.is_alive()
    assert here.ear.opened == 1


def test_the_end_comes_at_once_also_before_anybody_was_heard(here: Here) -> None:
    looked = threading.Event()

    def look() -> None:
        here.group.view()
        looked.set()

    looking = threading.Thread(target=look)
    looking.start()
    here.group.close()
    assert looked.wait(4.0), "it does not wait for who is not there"
    looking.join(30)
    assert msgspec.json.encode(here.group.view())
