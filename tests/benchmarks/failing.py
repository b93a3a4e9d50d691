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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from confluent_kafka import Message

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.dispatch.tick import BEAT_SECONDS
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.telemetry.bursts import Attempts
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.executors.command_interpreter import Actor
from kafka_keyshared.executors.handling import failure
from kafka_keyshared.executors.notice_text import line_of
from kafka_keyshared.lab.simulator.stepped import SteppedPool
from kafka_keyshared.model import Record, TopicPartition

PARTITION = TopicPartition("orders", 0)
BATCH = 500
ATTEMPTS = 5
CLOCK = Clock()


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
        settings = SubscriptionSettings(workers=("worker-0",), retry=policy, on_exhausted="drop")
        self.core = Dispatcher([settings])
        self.lines: Counter[int] = Counter()
        self.pool = _Pool(self.core)
        self._actor = _Actor(self)
        self._actor.tell(ev.Assigned({PARTITION: ev.StartPoint(0)}))
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
                self._tell(ev.Tick({}, (), None))
            self.cpu += time.process_time() - began
        counted = self.core.subscriptions["default"].counts
        if not self.failed == counted.failed == counted.dropped * ATTEMPTS:
            raise KeySharedError(f"of {self.failed} failures {counted.failed} were counted")

    def _batch(self, records: list[Record]) -> None:
        leases = self._tell(ev.Fetched(records, {PARTITION: self._fetched}))
        while self.core.unsettled_count():
            reports: list[ev.Report] = []
            for slice_ in leases:
                reports += [self._attempt(slice_, index) for index in range(len(slice_.records))]
                reports.append(ev.SliceEnded(slice_.id, 0.001))
            if reports:
                leases = self._tell(ev.Reported(reports))
            else:
                self.now = max(self.now, self.core.next_due() or 0.0)
                leases = self._tell(ev.LeaseDue())

    def _attempt(self, slice_: Slice, index: int) -> ev.Failed:
        self.failed += 1
        self.now += 1 / self.plan.per_second
        try:
            self._handlers[self.failed % len(self._handlers)](slice_.records[index])
        except Exception as error:  # noqa: BLE001 - as a worker does
            return ev.Failed(slice_.id, index, failure.describe(error, CLOCK))
        raise KeySharedError("a handler that always fails did not")

    def _tell(self, event: ev.Event) -> list[Slice]:
        """Tell the core and pass its fences; return what it leases."""
        self._actor.tell(event)
        self._actor.serve(0.0)
        leased, self.pool.leased = self.pool.leased, []
        return leased


class _Pool(SteppedPool):
    """Keeps what is leased for whoever asks, and passes fences at once."""

    def __init__(self, core: Dispatcher) -> None:
        self.leased: list[Slice] = []
        self.passed: list[ev.Report | ev.Recalled] = []
        super().__init__(core, self.passed.append)

    def submit(self, slice_: Slice) -> None:
        self.leased.append(slice_)

    def fence(self, fence: cmd.Fence) -> None:
        self.post(ev.FencePassed(fence.subscription, fence.worker, fence.lanes))


class _Actor(Actor):
    """Writes lines; nothing else is asked of it here."""

    def __init__(self, failing: Failing) -> None:
        super().__init__(failing.core, failing.pool, lambda: failing.now)
        self._failing = failing

    def serve(self, timeout: float) -> bool:
        del timeout
        passed = self._failing.pool.passed
        there = bool(passed)
        while passed:
            mail = passed.copy()
            passed.clear()
            self.hear(mail)
        return there

    def notice(self, notice: cmd.Notice) -> None:
        self._failing.lines[int(self._failing.now)] += 1
        line = line_of(notice)
        log.log(line.level, "%s", line.text)

    def assign_at(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """The records are made where they are fetched."""

    def _none(self, *what: object) -> None:
        raise KeySharedError(f"nothing but failures was asked for: {what!r:.200}")

    publish = send = client_events = halt = _none  # type: ignore[assignment]


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
        mock.patch.object(failure, "_where_and_stack", _only_the_stack),
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
