"""When the end of a partition is handed on to members."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_keyshared.model import Record
from kafka_keyshared.runtime.partition_ends import LOOK_EVERY, PartitionEnds
from tests.support.records import P0, record

OTHER = P0._replace(partition=7)


class Held:
    """A core in which these records are not settled, of these partitions."""

    def __init__(self, *records: Record) -> None:
        self._records = records
        self.partitions = {P0, OTHER}
        self.subscriptions = {"default": self}
        self.unsettled = self

    def records(self, progress: Any) -> list[tuple[Any, Record]]:
        return [(P0, each) for each in self._records]


@pytest.fixture
def ends() -> Any:
    told: list[Record] = []
    now = SimpleNamespace(seconds=0.0)
    made = PartitionEnds(lambda: now.seconds)
    made.deliver = told.append

    def look(core: Any) -> list[Record]:
        now.seconds += LOOK_EVERY
        made.hand_on(core)
        return told

    return SimpleNamespace(made=made, look=look)


def test_an_end_waits_for_the_records_before_it_and_not_for_those_behind(ends: Any) -> None:
    event = record(10)
    ends.made.note(event)
    assert ends.look(Held(record(9), record(12))) == []
    assert ends.look(Held(record(10))) == [event]
    assert ends.look(Held()) == [event], "it is told once"


def test_the_end_of_a_partition_that_has_gone_is_forgotten(ends: Any) -> None:
    core = Held()
    core.partitions = {OTHER}
    ends.made.note(record(10))
    assert ends.look(core) == []
    core.partitions = {P0}
    assert ends.look(core) == []


def test_a_later_end_of_a_partition_takes_the_place_of_an_earlier_one(ends: Any) -> None:
    later = record(20)
    ends.made.note(record(10))
    ends.made.note(later)
    assert ends.look(Held(record(15))) == []
    assert ends.look(Held()) == [later]


def test_where_no_member_waits_for_ends_none_is_kept(ends: Any) -> None:
    deliver, ends.made.deliver = ends.made.deliver, None
    ends.made.note(record(10))
    ends.made.deliver = deliver
    assert ends.look(Held()) == []
