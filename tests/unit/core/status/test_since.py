"""For how long things have been so, look after look."""

from __future__ import annotations

from kafka_keyshared.core.status.since import Lasting


def test_a_time_begins_with_the_first_look_that_shows_it() -> None:
    lasting = Lasting()
    assert lasting.seconds("a", 5.0) == 0.0
    lasting.over()
    assert lasting.seconds("a", 7.5) == 2.5
    assert lasting.seconds("b", 7.5) == 0.0, "each has its own"
    lasting.over()
    assert lasting.seconds("a", 9.0) == 4.0


def test_what_a_look_does_not_show_is_over_and_begins_anew() -> None:
    lasting = Lasting()
    lasting.seconds("a", 5.0)
    lasting.over()
    lasting.seconds("b", 6.0)
    lasting.over()
    assert lasting.seconds("a", 7.0) == 0.0
    assert lasting.seconds("b", 7.0) == 1.0
