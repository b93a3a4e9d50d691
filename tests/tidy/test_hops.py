"""A trip through the owner enters few files: a reader has to follow each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tidy.hops import PACKAGE, TRIPS, Recorder, Trip

LIMITS = {
    "a round": 36,
    "a fetch to its leases": 30,
    "a failure to its dead letter": 30,
    "a dead letter's answer to the next lease of its key": 33,
    "a revoke": 44,
}
"""The most files of a trip. Where one needs more, join its fragments and raise no limit."""


@pytest.mark.parametrize("name", TRIPS)
def test_a_trip_enters_no_more_files_than_its_limit(name: str) -> None:
    trip = TRIPS[name]()
    assert len(trip.files) <= LIMITS[name], f"{name} enters {', '.join(trip.files)}"
    assert trip.calls >= len(trip.files) > LIMITS[name] // 2, "and it is that trip"


def planted(path: str) -> Callable[..., None]:
    """A function of a file that is not there; it calls what it is given."""
    found: dict[str, Callable[..., None]] = {}
    exec(compile("def call(then, *rest): then(*rest)", f"{PACKAGE}{path}", "exec"), found)
    return found["call"]


def test_a_trip_has_the_files_between_its_marks_and_those_that_run_at_its_begin() -> None:
    recorder = Recorder()
    before, outer, inner, after = map(planted, ("a.py", "core/b.py", "core/c.py", "d.py"))
    with recorder.recording():
        before(len, ())
        outer(inner, recorder.begin)
        inner(len, ())
        recorder.end()
        after(len, ())
    assert recorder.trip() == Trip(("core/b.py", "core/c.py"), 3)


def test_what_a_port_calls_does_not_count() -> None:
    recorder = Recorder()
    caller, port, within = map(planted, ("core/a.py", "lab/port.py", "core/b.py"))
    with recorder.recording():
        caller(port, within, len, ())
        caller(len, ())
    assert recorder.trip() == Trip(("core/a.py",), 2)
