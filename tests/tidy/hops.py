"""The files of the package that a trip through the owner enters: what its reader has to follow.

A trip is a piece of one round: a fetch up to its leases, a failure up to its dead letter, a revoke.
The owner's ports end it: calls of the client, the pool, the mailbox and the publisher are doubles
of the tests here, and what they call does not count. A file counts when one of its functions is
called, or is running when the trip begins.

    python -m tests.tidy.hops     the numbers, and the files in the order in which they are entered
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from tests.support.loop_ports import Stage
from tests.support.records import P0, FakeRecord, failure

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = f"{ROOT / 'kafka_keyshared'}/"
DOUBLES = (f"{ROOT / 'tests'}/", f"{PACKAGE}lab/")

POISON = 20
"""The offset of the record that fails."""


class Trip(NamedTuple):
    """The files that a trip enters, in that order, and how many calls it makes in them."""

    files: tuple[str, ...]
    calls: int


class Recorder:
    """Records the calls of this thread in files of the package, between two marks."""

    def __init__(self) -> None:
        self._files: list[str] = []
        self._within: FrameType | None = None  # the outermost frame of a port
        self._begin: int | None = None
        self._end: int | None = None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls inside the block."""
        before = sys.getprofile()
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(before)

    def begin(self) -> None:
        """The trip begins here, if it has not yet: with the files of the functions that run now."""
        if self._begin is not None:
            return
        running: list[str] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(PACKAGE) and not name.startswith(DOUBLES):
                running.insert(0, name)
            frame = frame.f_back
        self._files += running
        self._begin = len(self._files) - len(running)

    def end(self) -> None:
        """The trip ends here, unless it goes on and ends later."""
        self._end = len(self._files)

    def trip(self) -> Trip:
        """Return what was recorded between the marks; without marks all of it."""
        files = self._files[self._begin : self._end]
        return Trip(tuple(dict.fromkeys(each.removeprefix(PACKAGE) for each in files)), len(files))

    def _profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call":
            if self._within is not None:
                return
            if name.startswith(DOUBLES):
                back = frame.f_back
                if back is not None and back.f_code.co_filename.startswith(PACKAGE):
                    self._within = frame
            elif name.startswith(PACKAGE):
                self._files.append(name)
        elif event == "return" and frame is self._within:
            self._within = None


class DeadLetters:
    """A publisher that keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[cmd.Publish] = []
        self.on_publish: Callable[[], None] = lambda: None

    def publish(self, publish: cmd.Publish) -> None:
        self.given.append(publish)
        self.on_publish()

    def serve(self) -> None:
        pass

    def unanswered(self) -> int:
        return len(self.given)

    def close(self, timeout: float) -> None:
        del timeout


def started(records: int = POISON) -> tuple[Stage, DeadLetters]:
    """A member with four workers and one partition, whose log has so many records."""
    letters = DeadLetters()
    settings = SubscriptionSettings(workers=worker_names(4), dlq=True, on_exhausted="dead_letter")
    stage = Stage(settings, publisher=letters)
    stage.accept()
    stage.assign(P0)
    stage.step(3)
    stage.fill(*[FakeRecord(P0, offset, b"k%d" % (offset % 7)) for offset in range(records)])
    return stage, letters


def begin_with_mail(stage: Stage, recorder: Recorder) -> None:
    """Let the trip begin when the owner takes something out of its mailbox."""
    get, get_nowait = stage.mailbox.get, stage.mailbox.get_nowait

    def got(*given: Any, **named: Any) -> Any:
        recorder.begin()
        return get(*given, **named)

    def got_now() -> Any:
        recorder.begin()
        return get_nowait()

    stage.mailbox.get, stage.mailbox.get_nowait = got, got_now  # type: ignore[method-assign]


def end_with_leases(stage: Stage, recorder: Recorder) -> None:
    """Let the trip end when the pool has the last slice."""
    submit = stage.pool.submit

    def submitted(slice_: Any) -> None:
        submit(slice_)
        recorder.end()

    stage.pool.submit = submitted  # type: ignore[method-assign]


def round_trip() -> Trip:
    """A whole round that fetches twenty records and leases them."""
    stage, _ = started()
    recorder = Recorder()
    with recorder.recording():
        stage.step()
    return recorder.trip()


def fetch_to_leases() -> Trip:
    """From the client's records to the last slice that the pool is given for them."""
    stage, _ = started()
    recorder = Recorder()
    poll = stage.client.poll

    def polled(timeout: float) -> Any:
        recorder.begin()
        return poll(timeout)

    stage.client.poll = polled  # type: ignore[method-assign]
    end_with_leases(stage, recorder)
    with recorder.recording():
        stage.step()
    assert len(stage.work()) == POISON
    return recorder.trip()


def failed() -> tuple[Stage, DeadLetters]:
    """A member in whose mailbox a failure is that ends in the dead-letter topic."""
    stage, letters = started()
    stage.step()
    stage.work()
    stage.now += 1.2
    stage.step(2)
    stage.fill(FakeRecord(P0, POISON, b"poison"), FakeRecord(P0, POISON + 1, b"poison"))
    stage.step()
    worker = next(each for each in stage.pool.workers.values() if each.start() is not None)
    worker.finish(failure(Disposition.DEAD_LETTER))
    return stage, letters


def failure_to_dead_letter() -> Trip:
    """From the report of a failed attempt to the dead letter that the publisher is given."""
    stage, letters = failed()
    recorder = Recorder()
    begin_with_mail(stage, recorder)
    letters.on_publish = recorder.end
    with recorder.recording():
        stage.step()
    assert [each.record.offset() for each in letters.given] == [POISON]
    return recorder.trip()


def dead_letter_to_open_lane() -> Trip:
    """From the broker's answer to the lease of the key's next record."""
    stage, letters = failed()
    stage.step()
    assert stage.work() == [], "the key's next record is set aside"
    stage.step()
    stage.mailbox.put(ev.DeadLetterAnswer(letters.given.pop(), None, "orders.dlq-0@1"))
    recorder = Recorder()
    begin_with_mail(stage, recorder)
    end_with_leases(stage, recorder)
    with recorder.recording():
        stage.step()
    assert stage.work() == [POISON + 1]
    return recorder.trip()


def revoke() -> Trip:
    """From the client's callback to its return: running records end, and a commit is sent."""
    stage, _ = started(60)
    stage.step()

    def work() -> None:
        stage.work()

    stage.on_wait = work
    recorder = Recorder()
    with recorder.recording():
        stage.client.callbacks["revoke"]([P0])
    assert stage.sent()
    return recorder.trip()


TRIPS: dict[str, Callable[[], Trip]] = {
    "a round": round_trip,
    "a fetch to its leases": fetch_to_leases,
    "a failure to its dead letter": failure_to_dead_letter,
    "a dead letter's answer to the next lease of its key": dead_letter_to_open_lane,
    "a revoke": revoke,
}

if __name__ == "__main__":
    for name, measure in TRIPS.items():
        trip = measure()
        sys.stdout.write(f"{name}: {len(trip.files)} files, {trip.calls} calls\n")
        sys.stdout.write(f"    {', '.join(trip.files)}\n")
