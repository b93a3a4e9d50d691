"""The core of a Spark task: runs the records of one worker.

The core that decides here is the one that pods run (:class:`~.core.dispatcher.Dispatcher`). The
thread pool's own code calls the worker's handler. Order, retries with back-off, poison policies,
dead letters and lane notes are therefore the same. A task differs in the parts that replace the
client. Records come from an iterator, by topic, partition and offset. The task takes them as the
window has room, so memory depends on the window and not on the batch. A dead letter counts as
acknowledged when the task hands it out. The driver writes it before anything is committed;
otherwise nothing is committed. The task reports its results as positions and settled sets, as each
pod would commit them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes
from kafka_keyshared.core.offsets.positions import OffsetSnapshot
from kafka_keyshared.core.offsets.settled_set_codec import Runs
from kafka_keyshared.core.partitions.assignment import unreceived
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.dlq import envelope
from kafka_keyshared.dlq.json_view import output_line
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.handling.outputs import (
    HEADER,
    JSON,
    OutputTarget,
    handing_out,
    identity,
)
from kafka_keyshared.executors.inline.driver import CHUNK, Inline, InlinePool
from kafka_keyshared.executors.notice_text import Level, line_of
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.model import Output, Record, TopicPartition, partition_of
from kafka_keyshared.spark.placement import MadeKeys, alone, derived_key
from kafka_keyshared.spark.settled_offsets import from_begin, without
from kafka_keyshared.spark.state import StateFile, adopt, release, slots_of
from kafka_keyshared.spark.task_log import LogRow, TaskLog, ordered_by

BEAT = 0.5
"""Seconds between two heartbeats, as in a pod."""


@dataclass(frozen=True, slots=True)
class BatchShare:
    """A batch's part of one partition: its offsets from ``begin`` up to ``end``, exclusive.

    ``start`` is the group's position, with its metadata.
    """

    start: ev.StartPoint
    begin: int
    end: int


class Settled(NamedTuple):
    """A partition's settled offsets from the batch's begin on, and its lane and record notes."""

    runs: Runs
    notes: LaneNotes


@dataclass(frozen=True)
class SparkJob:
    """The input of every task. ``specs`` say how each worker is made.

    ``letter_topics`` maps each topic to its dead-letter topic. ``letter_form`` is the format of the
    dead letters. ``group`` is the consumer group. ``kept`` is the state of a handler class that
    hands it over, and ``state_to`` the folder for its state after the batch. ``last`` means that
    handlers are closed for good. ``audit_log`` is the destination of the processed log, a folder or
    ``topic:NAME``. ``outputs`` is the destination of the handlers' outputs. With
    ``check_invariants`` the core checks its invariants at each heartbeat.
    """

    settings: SubscriptionSettings
    specs: Sequence[WorkerSpec]
    shares: Mapping[TopicPartition, BatchShare]
    group: str
    letter_topics: Mapping[str, str] = field(default_factory=dict)
    letter_form: str = "headers"
    kept: Sequence[StateFile] = ()
    state_to: Path | None = None
    last: bool = True
    audit_log: str | None = None
    outputs: OutputTarget | None = None
    check_invariants: bool = False


def _room_for_all(shares: Iterable[BatchShare]) -> int:
    """Return a budget for settled sets in which every offset of a batch has room.

    A task commits nothing, and parks nothing for the sake of the metadata. The plan ensures that
    the remaining set of a batch fits in the metadata. One character encodes six offsets, so one for
    each offset is enough.
    """
    spans = (each.end - min(each.begin, each.start.position or each.begin) for each in shares)
    return max([SET_BUDGET, *spans])


def _next_partition(chunk: Sequence[Record], at: int) -> int:
    """Return the index of the first record behind ``at`` that is of another partition."""
    partition = partition_of(chunk[at])
    return bisect_left(chunk, True, lo=at, key=lambda each: partition_of(each) != partition)


class TaskLetter(NamedTuple):
    """A dead letter, to be written before anything is committed."""

    topic: str
    key: Any
    value: Any
    headers: envelope.Headers


class NamedOutput(NamedTuple):
    """An output of a handler, with its identity; for JSON it is a line."""

    identity: str
    key: Any
    value: Any
    headers: envelope.Headers


@dataclass(frozen=True)
class TaskReport:
    """The result of a task: its worker, the settled offsets of each partition, and counts.

    Records of other workers count as settled here. The reports of all tasks are intersected.
    """

    worker: int
    settled: Mapping[TopicPartition, Settled]
    handled: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    retries: int = 0
    failed: int = 0
    skipped: int = 0
    letters: int = 0
    notices: Sequence[str] = ()
    state: StateFile | None = None
    rows: int = 0
    outputs: int = 0


class Drive(Inline):
    """Runs the records of a source through the core; yields dead letters and, last, a report."""

    def __init__(
        self, job: SparkJob, worker: int, clock: Clock | None = None, attempt: int = 0
    ) -> None:
        self.made_keys = None if derived_key(job.settings) is None else MadeKeys()
        settings = alone(job.settings, worker, self.made_keys)
        self._now = clock or Clock()
        mailbox: SimpleQueue[Any] = SimpleQueue()
        spec = job.specs[worker]
        # The worker is alone in its core, so it is the first one there.
        own = replace(spec, index=0)
        if job.outputs is not None:
            own = replace(own, make=lambda: self._handing_out(spec.make()))
        self._pool = pool = InlinePool([own], mailbox, self._now)
        core = Dispatcher(
            [settings],
            set_budget=_room_for_all(job.shares.values()),
            check_invariants=job.check_invariants,
        )
        super().__init__(core, pool, mailbox, self._now, self._pass)
        self._job, self._worker, self._attempt = job, worker, attempt
        self.workers_in_all = len(job.settings.workers)
        self._pack = envelope.pack
        if job.letter_form == "avro":
            from kafka_keyshared.dlq import avro

            self._pack = avro.pack
        self._letters: list[TaskLetter] = []
        self._outputs: list[NamedOutput] = []
        self._handed_out = 0
        self._written = 0
        self._rows = 0
        self._notices: list[str] = []
        # Partitions that were given up: the offsets that were neither run nor settled.
        self._left: dict[TopicPartition, list[int]] = {}
        self._settled_before: Callable[[Record], bool] | None = None
        self._beat_at = float("-inf")
        self._log: TaskLog | None = None
        if job.audit_log is not None:
            keys = ordered_by(core.subscriptions[settings.name].keys.key)
            self._log = TaskLog(job.audit_log, spec.name, keys)
        pool.start(core.lanes)
        self._slots = slots_of(job.settings, worker) if job.state_to is not None else ()
        if job.kept:
            adopt(pool.made(settings.name, 0), own, self._slots, job.kept)

    def _pass(self, until: float) -> None:
        threading.Event().wait(max(0.0, until - self._now()))

    # --- the whole task ---

    def run_all(
        self, source: Iterable[Sequence[Record]]
    ) -> Iterator[TaskLetter | NamedOutput | LogRow | TaskReport]:
        """Run the records of a source, which come in batches; yield dead letters, then the report.

        It also yields outputs, and the processed-log rows that the task does not write itself.
        Raises :class:`KeySharedError` when a pod would stop.
        """
        shares = self._job.shares
        self.tell(ev.Assigned({each: share.start for each, share in shares.items()}))
        self._share_diversions()
        batches = iter(source)
        more = True
        while True:
            while more and len(self.ahead) < CHUNK:
                following = next(batches, None)
                more = following is not None
                self._come(following or ())
            moved = self.turn()
            self.refuse_if_halted()
            self._beat()
            yield from self._take_letters()
            yield from self._take_outputs()
            yield from self._take_rows()
            due = self.core.next_due()
            if due is not None and (not moved or due <= self._clock()):
                self._wait(due)
                self.tell(ev.LeaseDue())
            elif moved:
                continue
            elif self.ahead:
                self._give_up()
            elif not more:
                break
        self.tell(ev.Fetched([], {each: share.end for each, share in shares.items()}))
        report = replace(self._report(), state=self._release())
        self.workers.close()
        if self._log is not None:
            self._log.close()
        yield report

    def _release(self) -> StateFile | None:
        """Write the handler's state, if it is handed over."""
        folder = self._job.state_to
        if folder is None:
            return None
        [name] = self.core.subscriptions
        # If Spark runs a task twice, each attempt has its own file.
        file = folder / f"{self._worker}-{self._attempt}.state"
        release(self._pool.made(name, 0), self._slots, file, go_on=self._job.last)
        return StateFile(str(file), self._slots)

    def _share_diversions(self) -> None:
        """Limit the diverted lanes so that they fit in the metadata for all tasks together."""
        [sub] = self.core.subscriptions.values()
        before = max((len(sub.diverted.hashes(each)) for each in self._job.shares), default=0)
        spare = max(0, sub.diverted.most - before)
        sub.diverted.most = before + spare // self.workers_in_all

    def _come(self, records: Sequence[Record]) -> None:
        if not self._left:
            self.ahead.extend(records)
            return
        for record in records:
            if partition_of(record) in self._left:
                self._leave(record)
            else:
                self.ahead.append(record)

    def _give_up(self) -> None:
        """Give up the partitions that are held back for good, by blocked keys or a limit."""
        if not self._left:
            [name] = self.core.subscriptions
            self._settled_before = unreceived(self.core.partitions, name)
        for record in self.ahead:
            self._left.setdefault(partition_of(record), [])
            self._leave(record)
        self.ahead.clear()

    def _leave(self, record: Record) -> None:
        """Note a record that is not run; a record that the group has settled stays settled."""
        if self._settled_before is None or not self._settled_before(record):
            self._left[partition_of(record)].append(record.offset())

    def ends_of(self, chunk: Sequence[Record]) -> dict[TopicPartition, int]:
        """Return the end offset of each partition; the chunk is sorted, so few records are read."""
        ends: dict[TopicPartition, int] = {}
        at = 0
        while at < len(chunk):
            partition = partition_of(chunk[at])
            at = _next_partition(chunk, at)
            ends[partition] = chunk[at - 1].offset() + 1
        return ends

    def _beat(self) -> None:
        now = self._clock()
        if now - self._beat_at >= BEAT:
            self._beat_at = now
            self.tell(ev.Tick(self.progress(), wall=self._now.wall()))

    # --- output ---

    def publish(self, publish: cmd.Publish) -> None:
        """Hand the dead letter out; it is written before anything is committed."""
        record = publish.record
        value, headers = self._pack(publish, self._job.group)
        topic = self._job.letter_topics[record.topic()]
        self._letters.append(TaskLetter(topic, record.key(), value, headers))
        if self._log is not None and not publish.copy:
            # Timed now, because the next record of its lane starts as soon as the dead letter is
            # handed out.
            place = record.topic(), record.partition(), record.offset()
            self._log.ledger.dead_letter_acknowledged(*place)
        self.answer(ev.DeadLetterAnswer(publish))

    def dropped(self, dropped: cmd.RecordsDropped) -> None:
        """Write the drops to the processed log, if there is one."""
        if self._log is not None:
            for each in dropped.records:
                self._log.ledger.dropped(each.topic(), each.partition(), each.offset())

    def _handing_out(self, made: Made) -> Made:
        return made._replace(handle=handing_out(made.handle, self._hand_out))

    def _hand_out(self, record: Record, outputs: Sequence[Output]) -> None:
        """Hand outputs out; like dead letters, they are written before anything is committed."""
        is_line = self._job.outputs is not None and self._job.outputs.kind == JSON
        for number, output in enumerate(outputs):
            name = identity(record, number)
            if is_line:
                self._outputs.append(
                    NamedOutput(name, None, output_line(name, output).encode(), [])
                )
                continue
            headers = [*output.headers, (HEADER, name)]
            self._outputs.append(NamedOutput(name, output.key, output.value, headers))

    def notice(self, notice: cmd.Notice) -> None:
        """Log the notice, and report it to the driver if it is a warning or worse."""
        super().notice(notice)
        line = line_of(notice)
        if line.level >= Level.WARNING and len(self._notices) < 20:
            self._notices.append(line.text)

    def _take_letters(self) -> list[TaskLetter]:
        letters, self._letters = self._letters, []
        self._written += len(letters)
        return letters

    def _take_rows(self) -> list[LogRow]:
        rows = [] if self._log is None else self._log.take()
        self._rows += len(rows)
        return rows

    def _take_outputs(self) -> list[NamedOutput]:
        outputs, self._outputs = self._outputs, []
        self._handed_out += len(outputs)
        return outputs

    def _report(self) -> TaskReport:
        progress = self.progress()
        found = self.core.snapshots.take(progress, self._clock())
        [sub] = self.core.subscriptions.values()
        counts = sub.counts
        return TaskReport(
            self._worker,
            {each: self._settled(each, found[each]) for each in self._job.shares},
            counts.ok,
            counts.dead_lettered,
            counts.dropped,
            counts.retries,
            counts.failed,
            counts.skipped,
            self._written,
            tuple(self._notices),
            rows=self._rows,
            outputs=self._handed_out,
        )

    def _settled(self, partition: TopicPartition, snapshot: OffsetSnapshot) -> Settled:
        """Return the settled offsets without the records not run, which keep their old notes."""
        [name] = self.core.subscriptions
        begin = self._job.shares[partition].begin
        runs = from_begin(begin, snapshot.position, snapshot.runs.get(name, ()))
        notes = snapshot.notes.get(name, LaneNotes())
        left = self._left.get(partition, ())
        if left:
            came = self.core.partitions[partition].notes.get(name, LaneNotes()).tried
            tried = {offset: came[offset] for offset in left if offset in came}
            notes = replace(notes, tried={**tried, **notes.tried})
        return Settled(without(runs, left), notes)
