"""``keyshared demo --story``: production problems in sequence, with their diagnosis.

An instance on the embedded cluster handles a low rate of records. Each chapter causes one problem,
waits until the instance's own diagnosis names it, and fixes it. It then waits until the diagnosis
no longer names it. So the length of a chapter depends on the instance, not on a clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Producer

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.config import RetryOptions
from kafka_keyshared.core.routing.ring import VnodeRing
from kafka_keyshared.core.subscription.settings import worker_names
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.observability.diagnosis.findings import Finding
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster

TOPIC = "orders"
PARTITIONS = 4
WORKERS, MORE_WORKERS = 4, 8

KEYS = [f"customer-{number}" for number in range(40)]
BROKEN, SLOW = "customer-13", "customer-7"

SESSION_MS = 8_000
"""Session timeout; a rebalance of the embedded cluster takes 1 s less, long enough to be named."""

PACE = 4.0
"""Seconds for which a named problem stays, so that a viewer can look at it."""

NAMED_WITHIN = 60.0


class StoryChapter(NamedTuple):
    """A finished chapter: the finding, the seconds until it was named, and until it cleared."""

    chapter: str
    code: str
    sentence: str
    named_s: float
    cleared_s: float


def moving() -> str:
    """Return a key that gets another worker when workers are added."""
    before, after = (VnodeRing(worker_names(each)) for each in (WORKERS, MORE_WORKERS))
    slots = ((key, slot_of(key.encode())) for key in KEYS if key not in {BROKEN, SLOW})
    return next(key for key, slot in slots if before.owner(slot) != after.owner(slot))


class Shop:
    """The handler: it succeeds, except for keys that are set to fail or to take long."""

    def __init__(self) -> None:
        self.failing: frozenset[str] = frozenset()
        self._gates: dict[str, threading.Event] = {}
        self._entered: dict[str, threading.Event] = {}
        self._work = threading.Event()

    def __call__(self, record: Any) -> None:
        """Handle an order."""
        key = record.key().decode()
        if key in self.failing:
            raise LookupError(f"{key} has no address")
        gate = self._gates.get(key)
        if gate is not None:
            self._entered[key].set()
            gate.wait()
        self._work.wait(0.005)

    @contextmanager
    def slow(self, key: str) -> Iterator[threading.Event]:
        """Make records of a key wait while the context is open; yield the event of the first."""
        self._entered[key] = threading.Event()
        self._gates[key] = threading.Event()
        try:
            yield self._entered[key]
        finally:
            self._gates.pop(key).set()


class Story:
    """One run of the story. ``tell`` is called with each line of it.

    With ``console`` the console is served, and it stays open at the end until the user ends it.
    ``pace`` and ``session_ms`` are for tests, which have no viewer.
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        *,
        console: bool = False,
        pace: float = PACE,
        session_ms: int = SESSION_MS,
    ) -> None:
        self._tell = tell
        self._console = console
        self._pace = pace
        self._session_ms = session_ms
        self._shop = Shop()
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._told: list[StoryChapter] = []
        self._ended = False
        self._other: KeyShared | None = None

    def run(self) -> list[StoryChapter]:
        """Run the story to its end, on the main thread.

        Raises :class:`KeySharedError` when a problem is not named within a minute, or the user ends
        it.
        """
        with EmbeddedCluster() as cluster:
            cluster.create_topic(TOPIC, PARTITIONS)
            self._bootstrap = cluster.bootstrap
            self._app = self._member(console_port=0 if self._console else None)
            threads = [
                threading.Thread(target=self._guarded, args=(work,), name=f"story-{name}")
                for name, work in (("orders", self._write), ("chapters", self._chapters))
            ]
            for thread in threads:
                thread.start()
            try:
                self._app.run()
            finally:
                self._over.set()
                if self._other is not None:
                    self._other.stop()
                    threads.append(self._others_thread)
                for thread in threads:
                    thread.join()
        if self._failure is not None:
            raise self._failure
        if not self._ended:
            raise KeySharedError(f"stopped after {len(self._told)} of {len(CHAPTERS)} chapters")
        return self._told

    def _member(self, **options: Any) -> KeyShared:
        app = KeyShared(
            {
                "bootstrap.servers": self._bootstrap,
                "log_level": 2,
                "group.id": "story",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": self._session_ms,
                "heartbeat.interval.ms": 200,
            },
            [TOPIC],
            workers=WORKERS,
            retry=RetryOptions(attempts=2, backoff=0.1),
            on_exhausted="block",
            new_workers_wait=True,  # each worker owns some of the keys, which drain and wait for it
            show_keys=True,
            **options,
        )
        app.handler(self._shop)
        return app

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            with suppress(_Ended):
                work()
        except BaseException as error:  # noqa: BLE001 - raised again by run()
            self._failure = self._failure or error
            self._app.stop()

    def _write(self) -> None:
        """Write a record of each customer in turn, a hundred a second."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "log_level": 2})
        number = 0
        while not self._over.wait(0.01):
            producer.produce(TOPIC, b"an order", KEYS[number % len(KEYS)].encode())
            producer.poll(0)
            number += 1
        producer.purge()

    # --- the chapters: each causes a problem, waits for its finding, and fixes it ---

    def _chapters(self) -> None:
        self._until(self._joined, "the group has given out its partitions")
        if self._app.admin is not None:
            self._tell(f"Console: {self._app.admin.url}/")
        for title, code, chapter in CHAPTERS:
            self._tell(f"\n{len(self._told) + 1}. {title}")
            seen, named = chapter(self, code)
            began = time.monotonic()
            self._until(partial(self._gone, code), f"{code} is no longer named")
            cleared = time.monotonic() - began
            self._tell(f"   named after {named:.1f} s, gone {cleared:.1f} s after it was mended")
            self._told.append(StoryChapter(title, code, seen.sentence, named, cleared))
        self._ended = True
        if self._console:
            self._tell("\nThe end. The console stays open; Ctrl-C ends it.")
            self._over.wait()
        else:
            self._app.stop()

    def _joined(self) -> bool:
        status = self._app.status()
        return status is not None and bool(status.partitions)

    def _blocked_key(self, code: str) -> tuple[Finding, float]:
        self._tell(
            f"The handler fails on {BROKEN} until the attempts are used up. Look at: Overview."
        )
        self._shop.failing = frozenset({BROKEN})
        seen = self._see(code)
        self._tell("   The handler is fixed and the key is unblocked.")
        self._shop.failing = frozenset()
        self._app.unblock(key=BROKEN)
        return seen

    def _slow_key(self, code: str) -> tuple[Finding, float]:
        self._tell(
            f"A call for {SLOW} does not return; other workers go on. Look at: Slow and stuck."
        )
        with self._shop.slow(SLOW) as entered:
            self._until(entered.is_set, f"a record of {SLOW} runs")
            return self._see(code)

    def _resize(self, code: str) -> tuple[Finding, float]:
        key = moving()
        self._tell(
            f"From {WORKERS} to {MORE_WORKERS} workers while a record of {key} runs, which moves:\n"
            "its new worker waits for the old one. Look at: Ring, Draining."
        )
        with self._shop.slow(key) as entered:
            self._until(entered.is_set, f"a record of {key} runs")
            with suppress(TimeoutError):  # the resize continues without a waiting caller
                self._app.scale(MORE_WORKERS, 0.2)
            return self._see(code)

    def _rebalance(self, code: str) -> tuple[Finding, float]:
        self._tell("A second member joins the group. Look at: Overview, then Rebalances.")
        self._other = self._member()
        self._others_thread = threading.Thread(target=self._other.run, name="story-other")
        self._others_thread.start()
        return self._see(code)

    # --- waiting ---

    def _see(self, code: str) -> tuple[Finding, float]:
        """Wait until a cause is named, then pause; return the finding and the seconds it took."""
        began = time.monotonic()
        found: Finding = self._until(lambda: self._finding(code), f"{code} is named")
        took = time.monotonic() - began
        self._tell(f"   -> {found.sentence} [{code}]")
        self._over.wait(self._pace)
        return found, took

    def _gone(self, code: str) -> bool:
        return self._finding(code) is None

    def _finding(self, code: str) -> Finding | None:
        diagnosis = self._app.diagnosis()
        every = () if diagnosis is None else diagnosis.findings
        return next((each for each in every if each.code == code), None)

    def _until(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + NAMED_WITHIN
        while not (found := condition()):
            if self._over.wait(0.1):
                raise _Ended
            if time.monotonic() >= deadline:
                raise KeySharedError(
                    f"not so within {NAMED_WITHIN:g} s: {what}; this is a defect, please report it"
                )
        return found


class _Ended(Exception):  # noqa: N818 - nothing is wrong
    """The user has ended the story."""


CHAPTERS: tuple[tuple[str, str, Callable[[Story, str], tuple[Finding, float]]], ...] = (
    ("A blocked key", "key-blocked", Story._blocked_key),
    ("A slow key", "handler-slow", Story._slow_key),
    ("A resize", "slot-draining", Story._resize),
    ("A rebalance", "rebalance-in-progress", Story._rebalance),
)
