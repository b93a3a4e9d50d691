"""``keyshared demo``: a year of flights through a consumer group.

A producer thread writes the year into the embedded cluster. A :class:`KeyShared` instance
dispatches it by aircraft to four times as many workers as the topic has partitions. A third thread
reads the dead-letter topic. A ledger gets every event, and the judge reads it at the end. The
workers' answer is compared with one computed directly from the file.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.app.hooks import Hooks
from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.config import RetryOptions
from kafka_keyshared.config.worker_options import ASYNCIO, PROCESS, counted_workers
from kafka_keyshared.core.contract.events import DeadLetterAnswer
from kafka_keyshared.dlq.envelope import source_of
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.lab.demo import data
from kafka_keyshared.lab.demo.calls import CallingElsewhere, CallLog, awaiting, calling
from kafka_keyshared.lab.demo.expected import compare, expected, read_answers
from kafka_keyshared.lab.demo.flights import Flights
from kafka_keyshared.lab.demo.ledgers import audited_client, on_dead_letter, on_rebalance
from kafka_keyshared.lab.demo.sabotage import check_kind, client_class, handler_class, pool_class
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.judge import Judgement, judge
from kafka_keyshared.observability.audit.ledger import MemoryLedger, together
from kafka_keyshared.observability.audit.ledger_wrappers import audited
from kafka_keyshared.observability.audit.processed import ProcessedLog
from kafka_keyshared.runtime.instance_view import InstanceView
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from kafka_keyshared.testing.clusters.producer import MeteredProducer

TOPIC = "flights"
DLQ = "flights.dlq"
# Far fewer than workers, on purpose. Kafka alone would have four consumers at most.
PARTITIONS = 4
DLQ_PARTITIONS = 4
WORKERS = 16
HANDLERS: dict[str, Callable[[CallLog], type[Flights]]] = {
    "thread": calling,
    ASYNCIO: awaiting,
    PROCESS: lambda _: CallingElsewhere,
}
"""The handler for each kind of pool."""
RETRY = RetryOptions(attempts=3, backoff=0.005, factor=2.0, jitter=0.0)
STALL_SECONDS = 60.0
READ_BACK_SECONDS = 60.0
"""Seconds that the reader of dead letters waits for the next one after the end."""


def _quiet(bootstrap: str) -> dict[str, Any]:
    # The clients write their log straight to the terminal, through the live progress, and outlive
    # the cluster by a moment. Their failures are reported as errors anyway.
    return {"bootstrap.servers": bootstrap, "log_level": 2}


class InputTotals(NamedTuple):
    """The contents of the input, counted from the records themselves."""

    records: int
    flights: int
    weather: int
    keyless: int
    cancelled: int


WHOLE = InputTotals(data.RECORDS, data.FLIGHTS, data.WEATHER, data.KEYLESS, data.CANCELLED)
"""The result of :func:`count` for the whole year."""


def count(year: Sequence[data.SourceRecord]) -> InputTotals:
    """Count the input. For the whole year, the number of cancelled flights is a constant."""
    # An Avro union begins with its branch, as a zigzag number: 0 is a flight, 2 a weather row.
    flights = sum(record.value[0] == 0 for record in year)
    cancelled = data.CANCELLED
    if len(year) < data.RECORDS:
        rows = (data.decode(record.value) for record in year)
        cancelled = sum("flight" in row and row["dep_delay"] is None for row in rows)
    keyless = sum(record.key is None for record in year)
    return InputTotals(len(year), flights, len(year) - flights, keyless, cancelled)


@dataclass
class DemoProgress:
    """The progress of the demo, for the caller's ``watch``."""

    started: float = field(default_factory=time.monotonic)
    produced: int = 0
    settled: int = 0
    dead_letters_read: int = 0
    calls: int = 0
    """Number of handler calls in progress."""
    committed: int = 0
    console: str = ""
    """URL of the console, once it is up."""
    held: bool = False
    """Everything is committed, and the console stays open until a signal."""
    judging: bool = False
    """Everything is committed, and the judge is at work."""


class Demo:
    """One run. ``watch`` is called about ten times a second.

    ``records`` limits the number of records from the start of the year, for tests. ``log`` gets a
    row for each record that was written and for each outcome. Raises :class:`ConfigError` for an
    invalid number, workers or kind of sabotage. With ``console`` the console is served, and the run
    waits at its end until a signal. ``workers`` may be threads, coroutines, or processes. In
    processes the calls of late flights are not counted.
    """

    def __init__(
        self,
        watch: Callable[[DemoProgress], None],
        sabotage: str | None = None,
        records: int = data.RECORDS,
        log: ProcessedLog | None = None,
        *,
        console: bool = False,
        workers: int | str | None = None,
    ) -> None:
        self.workers = WORKERS if workers is None else workers
        self._pool, _ = counted_workers(self.workers)
        if self._pool not in HANDLERS:
            raise ConfigError(
                f"--workers {workers}: the demo has {', '.join(HANDLERS)}; give one of these with "
                "a number, such as process:2"
            )
        check_kind(sabotage, self._pool)
        if not 1 <= records <= data.RECORDS:
            raise ConfigError(f"--records {records}: give a number from 1 to {data.RECORDS}")
        self._watch = watch
        self._sabotage = sabotage
        self._records = records
        self._console = console
        self._year: Iterable[data.SourceRecord]
        if console and records == data.RECORDS:
            # A user of the console should not wait, so the year is read while it is written.
            self._year, self.totals = data.records(), WHOLE
        else:
            # Read before the clock starts, because the time of the path through Kafka is measured.
            self._year = year = list(itertools.islice(data.records(), records))
            self.totals = count(year)
        self.progress = DemoProgress()
        self._calls = CallLog()
        self._written = MemoryLedger("producer")
        self._heard = MemoryLedger("consumer")
        more = [] if log is None else [log.take]
        self._ledger = together(self._heard.events.append, *more)
        self._producing = together(self._written.events.append, *more)
        self._letters = MemoryLedger("dead-letters")
        self._ends: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self._committed: dict[int, int] = {}
        self._all_produced = threading.Event()
        self._finished = threading.Event()
        # Number of dead letters that the broker has acknowledged.
        self._acknowledged = 0
        self._failure: BaseException | None = None
        self._ended = 0.0
        self._moved = (0, time.monotonic())
        self._watched = 0.0

    def run(self) -> dict[str, Any]:
        """Run to the end; return the figures and the judgement.

        Raises :class:`KeySharedError` when the run makes no progress for a minute, or is stopped by
        a signal before its end.
        """
        before = os.environ.get("FLIGHTS_OUT")
        with EmbeddedCluster() as cluster, tempfile.TemporaryDirectory() as out:
            cluster.create_topic(TOPIC, PARTITIONS)
            cluster.create_topic(DLQ, DLQ_PARTITIONS)
            os.environ["FLIGHTS_OUT"] = out
            try:
                self._run(cluster.bootstrap)
            finally:
                if before is None:
                    del os.environ["FLIGHTS_OUT"]
                else:
                    os.environ["FLIGHTS_OUT"] = before
            self.progress.judging = True
            self._watch(self.progress)
            answers = read_answers(Path(out))
        differences = compare(expected(self._records), answers)
        judgement = judge([self._written, self._heard, self._letters])
        return self._summary(judgement, differences)

    def _run(self, bootstrap: str) -> None:
        producer = MeteredProducer(_quiet(bootstrap))
        app = self._app(bootstrap, producer)
        threads = [
            threading.Thread(target=self._guarded, args=(work, app), name=f"demo-{name}")
            for name, work in (
                ("producer", partial(self._produce, producer)),
                ("dead-letters", partial(self._read_dead_letters, bootstrap)),
            )
        ]
        for thread in threads:
            thread.start()
        try:
            app.run()
        finally:
            self._finished.set()
            try:
                producer.close()
            finally:
                for thread in threads:
                    thread.join()
        if self._failure is not None:
            raise self._failure
        unread = self._acknowledged - self.progress.dead_letters_read
        if self._ended and unread:
            raise KeySharedError(
                f"{unread} of {self._acknowledged} dead letters could not be read back in "
                f"{READ_BACK_SECONDS:g} s although the broker has acknowledged them; this is a "
                "defect, please report it"
            )
        if not self._ended:
            raise KeySharedError(
                f"stopped before the end: {self.progress.settled:,} of {self._records:,} records "
                "were settled, so there is nothing to judge; run it again and let it finish"
            )

    def _app(self, bootstrap: str, producer: MeteredProducer) -> KeyShared:
        def accepted(partition: TopicPartition, position: int) -> None:
            self._committed[partition.partition] = position
            producer.settled(partition.topic, partition.partition, position)

        hooks = Hooks(
            client=audited_client(self._ledger, accepted, client_class(self._sabotage)),
            pool=pool_class(self._sabotage),
            rebalanced=on_rebalance(self._ledger),
            dead_lettered=self._dead_lettered(),
            stepped=self._stepped,
            called=self._ledger.called if self._pool == PROCESS else None,
        )
        app = KeyShared(
            {
                **_quiet(bootstrap),
                "group.id": "flights-demo",
                # This setting would skip a record that was deleted unread. The run then waits for
                # that record in vain and ends as stalled, never as a success.
                "auto.offset.reset": "earliest",
            },
            [TOPIC],
            workers=self.workers,
            dlq=DLQ,
            retry=RETRY,
            hooks=hooks,
            # The flights are public, so their keys may be shown.
            show_keys=self._console,
            console_port=0 if self._console else None,
        )
        handler = HANDLERS[self._pool](self._calls)
        if self._pool != PROCESS:  # a process pool reports calls to the ledger itself
            handler = handler_class(self._sabotage, audited(handler, self._ledger))
        app.handler(handler)
        self._app_stop = app.stop
        self._looked = app
        return app

    def _dead_lettered(self) -> Callable[[DeadLetterAnswer], None]:
        tell = on_dead_letter(self._ledger)

        def note(answered: DeadLetterAnswer) -> None:
            tell(answered)
            self._acknowledged += answered.error is None

        return note

    # --- the three threads ---

    def _guarded(self, work: Callable[[], None], app: KeyShared) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again by run()
            if not self._finished.is_set():
                self._failure = self._failure or error
                app.stop()

    def _produce(self, producer: MeteredProducer) -> None:
        self.progress.started = time.monotonic()
        ends, told = self._ends, self._producing.produced
        for record in self._year:
            partition = producer.produce(TOPIC, record.key, record.value)
            # The producer is idempotent and the topic is new, so offsets count up from 0.
            offset = ends[partition]
            ends[partition] = offset + 1
            told(TOPIC, partition, offset, record.key)
            self.progress.produced += 1
        producer.flush()
        self._all_produced.set()

    def _read_dead_letters(self, bootstrap: str) -> None:
        consumer = Consumer({**_quiet(bootstrap), "group.id": "flights-demo-dlq"})
        consumer.assign(
            [ClientPartition(DLQ, number, OFFSET_BEGINNING) for number in range(DLQ_PARTITIONS)]
        )
        progress, moved = self.progress, time.monotonic()
        # After the last commit the broker acknowledges none, and all acknowledged ones are in the
        # topic.
        while not self._finished.is_set() or progress.dead_letters_read < self._acknowledged:
            letters = consumer.consume(1_000, 0.2)
            if letters or not self._finished.is_set():
                moved = time.monotonic()
            elif time.monotonic() - moved > READ_BACK_SECONDS:
                break
            for letter in letters:
                # A received record has its headers as a list. Only a producer may give a dict.
                headers = cast("list[tuple[str, Any]] | None", letter.headers())
                source = None if letter.error() else source_of(headers)
                if source is not None:
                    self._letters.dead_lettered(*source)
                    progress.dead_letters_read += 1
        consumer.close()

    def _stepped(self, view: InstanceView) -> None:
        """Watch the instance on its own thread; stop it when everything is committed."""
        now = time.monotonic()
        progress = self.progress
        progress.settled = view.settled()
        if now - self._watched >= 0.1:
            self._watched = now
            progress.calls = self._calls.under_way
            if (admin := self._looked.admin) is not None:
                progress.console = admin.url
            progress.committed = sum(self._committed.values())
            self._watch(progress)
        if not self._ended and progress.settled >= self._records and self._all_committed():
            self._ended = now
            if self._console:
                progress.held = True
                self._watch(progress)
            else:
                self._app_stop()
        if progress.settled != self._moved[0]:
            self._moved = (progress.settled, now)
        elif not self._ended and now - self._moved[1] > STALL_SECONDS:
            raise KeySharedError(
                f"no record has settled for {STALL_SECONDS:g} s ({progress.settled} of "
                f"{self._records}); this is a defect, please report it"
            )

    def _all_committed(self) -> bool:
        return self._all_produced.is_set() and all(
            self._committed.get(number, 0) >= end for number, end in self._ends.items()
        )

    # --- the result ---

    def _summary(self, judgement: Judgement, differences: list[str]) -> dict[str, Any]:
        produced = self.progress.produced
        elapsed = self._ended - self.progress.started
        dead_lettered = judgement.totals.dead_lettered
        return {
            "records": produced,
            "flights": self.totals.flights,
            "weather": self.totals.weather,
            "keyless": self.totals.keyless,
            "partitions": PARTITIONS,
            "workers": self.workers,
            **({} if self._pool == PROCESS else self._calls.waiting()._asdict()),
            "dead_lettered": dead_lettered,
            **judgement.counts(),
            "oracle_match": not differences,
            "elapsed_s": round(elapsed, 2),
            "records_per_s": round(produced / elapsed),
            "ok": judgement.clean
            and not differences
            and dead_lettered == self.totals.cancelled
            and produced == self._records,
            "findings": judgement.lines() if not judgement.clean else [],
            "differences": differences,
        }
