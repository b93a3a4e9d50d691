"""Traffic through the real core, half a second at a time, with a dependency that may be away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.status.builder import take
from kafka_keyshared.core.status.environment import StatusInputs
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.failure_status import FailureRate
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.observability.diagnosis.findings import Finding
from kafka_keyshared.observability.diagnosis.judge import diagnose
from tests.support.core_harness import Harness
from tests.support.records import P0, P1, record

REFUSED = Failure(Disposition.ERROR, "ConnectionError", "refused", "", 0, where="app.py:9")
FAST = RetryPolicy()

Handler = Callable[[Record], Ending]


def fails(record: Record) -> Ending:
    """A handler whose dependency is away."""
    del record
    return REFUSED


def succeeds(record: Record) -> Ending:
    """A handler whose dependency is there."""
    del record
    return None


def puts_off(after: float) -> Handler:
    """A handler that waits for its dependency: no attempt is used up."""
    return lambda _: Failure(Disposition.PUT_OFF, "Retry", "away", "", 0, after=after)


def fails_for(*keys: bytes) -> Handler:
    """A handler that fails for these keys."""
    return lambda each: REFUSED if each.key() in keys else None


def every(number: int, other: Handler = fails) -> Handler:
    """A handler that fails for each so many-th record."""
    return lambda each: None if each.offset() % number else other(each)


def of_topic(topic: str) -> Handler:
    """A handler that fails for one topic."""
    return lambda each: REFUSED if each.topic() == topic else None


def of_partition(partition: TopicPartition) -> Handler:
    """A handler that fails for one partition."""
    return lambda each: (
        REFUSED if TopicPartition(each.topic(), each.partition()) == partition else None
    )


class Traffic:
    """Records come at a rate, each of the next key, and the handler is called with them."""

    def __init__(
        self,
        *,
        keys: int = 1_000,
        partitions: tuple[TopicPartition, ...] = (P0, P1),
        **settings: Any,
    ) -> None:
        self.keys = keys
        self.partitions = partitions
        self.harness = Harness(SubscriptionSettings(**settings))
        self.harness.checks = False
        self.harness.assign(*partitions)
        self.refusal: str | None = None
        self._next = dict.fromkeys(partitions, 0)
        self._count = 0
        self._owed = 0.0

    def run(self, seconds: float, rate: float, handler: Handler = succeeds) -> Iterator[float]:
        """Let time pass; yield the seconds so far after each heartbeat."""
        for beat in range(1, round(seconds * 2) + 1):
            if not self.harness.core.holds.held_back(Reason.DEPENDENCY):
                self._owed += rate / 2
            self._fetch(int(self._owed))
            self._owed -= int(self._owed)
            # Retries within half a second are due one after the other.
            for _ in range(5):
                self._work(handler)
                self.harness.later(0.1)
            self.harness.now -= 0.5
            self.harness.beat()
            self._work(handler)
            yield beat / 2

    def go_on(self, seconds: float, rate: float, handler: Handler = succeeds) -> list[FailureRate]:
        """Let time pass; return the rates that are high then."""
        for _ in self.run(seconds, rate, handler):
            pass
        return self.rates

    @property
    def rates(self) -> list[FailureRate]:
        """The rates that are high."""
        return list(self.harness.sub().failure_watch.rates)

    def high(self, what: str = "attempts") -> bool:
        """Whether a rate of that is high."""
        return any(each.what == what for each in self.rates)

    def findings(self) -> list[Finding]:
        """The diagnosis."""
        around = StatusInputs(
            wall=1_800_000_000.0,
            started_at=1_799_999_000.0,
            phase="running",
            joined=True,
            group="billing",
            pool="thread",
            polled_at=None,
            poll_used=0.0,
            log_ends={},
        )
        harness = self.harness
        return list(
            diagnose(take(harness.core, harness.pool.progress(), harness.now, around)).findings
        )

    def codes(self) -> list[str]:
        """The codes of the diagnosis, the first one first."""
        return [each.code for each in self.findings()]

    def until(self, seconds: float, rate: float, handler: Handler, what: str = "attempts") -> float:
        """Let time pass until a rate is high; return the seconds that it took."""
        for passed in self.run(seconds, rate, handler):
            if self.high(what):
                return passed
        return float("inf")

    def until_over(self, seconds: float, rate: float, handler: Handler = succeeds) -> float:
        """Let time pass until no rate of attempts is high; return the seconds that it took."""
        for passed in self.run(seconds, rate, handler):
            if not self.high():
                return passed
        return float("inf")

    def _fetch(self, count: int) -> None:
        records = []
        for _ in range(count):
            at = self.partitions[self._count % len(self.partitions)]
            records.append(record(self._next[at], f"key-{self._count % self.keys}", at))
            self._next[at] += 1
            self._count += 1
        if records:
            self.harness.fetch(*records)

    def _work(self, handler: Handler) -> None:
        harness = self.harness
        for _ in range(10_000):
            moved = bool(harness.mailbox)
            for worker in harness.pool.workers.values():
                if (item := worker.start()) is not None:
                    worker.finish(handler(item))
                    moved = True
                moved = moved or worker.busy
            if self.refusal is None:
                while harness.publishes:
                    harness.dead_letter()
                    moved = True
            if not moved and not harness.mailbox:
                return
            harness.deliver()
        raise AssertionError("the work never ended")
