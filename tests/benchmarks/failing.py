"""What it costs to tell of failures: the same attempts fail, with the telling and without it.

End to end a machine cannot fail 100,000 records a second, so only the part that fails is run: the
handler raises, the worker describes it, the core judges and tells. Time in it is made up, so many
failures to a second; what is measured is processor time.
"""

from __future__ import annotations

import logging
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from confluent_kafka import Message

from kafka_keyshared.core import events as ev
from kafka_keyshared.core.attempts import Attempts
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.heartbeat import BEAT_SECONDS
from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.core.settle import RetryPolicy
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.handling import failure
from kafka_keyshared.model import Record, TopicPartition

PARTITION = TopicPartition("orders", 0)
BATCH = 500
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class FailingPlan:
    """``per_second`` failures in each second of made-up time, of so many ``kinds``.

    ``failures`` are those of one side of a pair; ``seconds`` is for how long lines are counted.
    """

    failures: int = 100_000
    pairs: int = 9
    per_second: int = 100_000
    seconds: float = 12.0
    kinds: int = 5


class Failing:
    """An instance of which every record fails five times and is dropped; no thread, no client."""

    def __init__(self, plan: FailingPlan) -> None:
        self.plan = plan
        self.cpu = 0.0
        self.failed = 0
        self.now = 0.0  # made up, in seconds
        self._fetched = 0
        # Delays are short beside the time of a batch, so that each round finds the whole batch due.
        policy = RetryPolicy(attempts=ATTEMPTS, backoff=0.01 * BATCH / plan.per_second)
        settings = SubscriptionSettings(workers=("worker-0",), retry=policy, poison="drop")
        self.core = Dispatcher([settings])
        self.core.handle(ev.Assigned({PARTITION: ev.StartPoint(0)}), 0.0)
        self.lines: Counter[int] = Counter()
        self._handlers = _handlers(self.plan.kinds)
        self._beat_at = 0.0

    def run(self, count: int) -> None:
        """Fail so many records, or a few more to fill a batch."""
        while self.failed < count:
            at = range(self._fetched, self._fetched + BATCH)
            self._fetched += BATCH
            records: list[Any] = [  # the stubs of Message promise less than a record
                Message(
                    topic=PARTITION.topic, partition=0, offset=each, key=b"%d" % each, value=b""
                )
                for each in at
            ]
            began = time.process_time()
            self._batch(records)
            if self.now - self._beat_at >= BEAT_SECONDS:
                self._beat_at = self.now
                self._tell(ev.Beat({}, (), None))
            self.cpu += time.process_time() - began
        counted = self.core.subscriptions["default"].counts
        if not self.failed == counted.failed == counted.dropped * ATTEMPTS:
            raise KeySharedError(f"of {self.failed} failures {counted.failed} were counted")

    def _batch(self, records: list[Record]) -> None:
        leases = self._tell(ev.Fetched(records, {PARTITION: self._fetched}))
        while self.core.unsettled_count():
            reports: list[ev.Report] = []
            for lease in leases:
                reports += [self._attempt(lease.slice, each) for each in lease.slice.records]
                reports.append(ev.Ended(lease.slice, 0.001))
            if reports:
                leases = self._tell(ev.Reported(reports))
            else:
                self.now = max(self.now, self.core.next_due() or 0.0)
                leases = self._tell(ev.Flush())

    def _attempt(self, share: ev.Slice, record: Record) -> ev.Failed:
        self.failed += 1
        self.now += 1 / self.plan.per_second
        try:
            self._handlers[self.failed % len(self._handlers)](record)
        except Exception as error:  # noqa: BLE001 - as a worker does
            return ev.Failed(share, record, failure.describe(error))
        raise KeySharedError("a handler that always fails did not")

    def _tell(self, event: ev.Event) -> list[ev.Lease]:
        """Do what the core says: lines go to the log, fences are passed at once."""
        leases: list[ev.Lease] = []
        commands = self.core.handle(event, self.now)
        passed: list[ev.Report] = []
        for command in commands:
            if isinstance(command, ev.Fence):
                passed.append(ev.FencePassed(command.subscription, command.worker, command.lanes))
            elif isinstance(command, ev.Lease):
                leases.append(command)
            elif isinstance(command, ev.Notice):
                self.lines[int(self.now)] += 1
                log.log(command.level, "%s", command.text)
        if passed:
            leases += self._tell(ev.Reported(passed))
        return leases


log = logging.getLogger("tests.benchmarks.failing")


def _handlers(kinds: int) -> list[Callable[[Any], None]]:
    """A user's handlers, each of which fails in a line of its own, two calls deep."""
    lines = [f"def fail_{n}(order): return order['customer_{n}']" for n in range(kinds)]
    lines += [f"def handle_{n}(record): return fail_{n}({{}})" for n in range(kinds)]
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile("\n".join(lines), str(Path.cwd() / "app.py"), "exec"), names)
    return [names[f"handle_{n}"] for n in range(kinds)]


@contextmanager
def silence() -> Iterator[None]:
    """Leave out what is done to tell of a failure: where it came from, and what is said of it."""
    with (
        mock.patch.object(Attempts, "only_counted_as", lambda *_: True),
        mock.patch.object(failure, "_place_and_stack", _only_the_stack),
    ):
        yield


def _only_the_stack(frames: failure.Frames) -> tuple[str, str]:
    """Do for the dead letter what is done for it, and nothing for the log."""
    texts = []
    for frame, number in frames[-failure.STACK_FRAMES_MAX :]:
        at = frame.f_code.co_filename, number, frame.f_code.co_name
        text = _texts.get(at)
        if text is None:
            _texts[at] = text = failure._line_at(*at, frame.f_globals).text
        texts.append(text)
    return "", "".join(texts)[-failure.STACK_CHARS_MAX :]


_texts: dict[tuple[str, int, str], str] = {}


@contextmanager
def to_nowhere() -> Iterator[None]:
    """Let lines be formatted and written as usual, but to where nobody reads them."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        handler = logging.StreamHandler(nowhere)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.propagate = False
        try:
            yield
        finally:
            log.removeHandler(handler)
            log.propagate = True


def microseconds(plan: FailingPlan, *, told: bool) -> float:
    """The processor time of one failed attempt."""
    made = Failing(plan)
    with to_nowhere():
        if told:
            made.run(plan.failures)
        else:
            with silence():
                made.run(plan.failures)
    return made.cpu / made.failed * 1e6


def lines_of(plan: FailingPlan) -> Counter[int]:
    """How many lines there are in each second, while so many fail in each."""
    made = Failing(plan)
    with to_nowhere():
        made.run(round(plan.seconds * plan.per_second))
    return made.lines


def measure(plan: FailingPlan) -> dict[str, Any]:
    """Return ``ratio``: an attempt that fails and is told of, to one that only fails.

    ``share`` is what telling takes of the time that each failure has at that rate, and
    ``most_lines`` the most lines in any second.
    """
    silent: list[float] = []
    told: list[float] = []
    for number in range(plan.pairs):
        # In turn, so that the machine's moods hit both alike.
        for loud in (True, False) if number % 2 else (False, True):
            (told if loud else silent).append(microseconds(plan, told=loud))
    pairs = list(zip(silent, told, strict=True))
    ratios = [with_it / without for without, with_it in pairs]
    telling = statistics.median(with_it - without for without, with_it in pairs)
    lines = lines_of(plan)
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(each, 3) for each in ratios],
        "share": round(telling * plan.per_second / 1e6, 3),
        "silent_us": round(statistics.median(silent), 2),
        "told_us": round(statistics.median(told), 2),
        "most_lines": max(lines.values()),
        "lines": lines.total(),
        "seconds": plan.seconds,
    }
