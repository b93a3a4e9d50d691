"""The batch loop of a Spark run.

A run starts at the group's committed positions. It runs batch after batch until it has caught up or
a pod joins. A streaming run does the same without an end. The group's commits are the only record
of progress. No separate checkpoint could contradict them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kafka_keyshared.config.local_paths import local_path
from kafka_keyshared.core.contract.commands import CommitEntry
from kafka_keyshared.core.contract.events import StartPoint
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.dlq.topics import require_topics
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.handling.outputs import TOPIC, OutputTarget
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.processed import TOPIC as LOG_TOPIC
from kafka_keyshared.spark.batch_plan import BATCH_OFFSETS, BatchPlan, outcome, plan
from kafka_keyshared.spark.driver import batch
from kafka_keyshared.spark.driver.batch import TopicSource
from kafka_keyshared.spark.driver.folders import HadoopFiles, WrittenBatches
from kafka_keyshared.spark.driver.group import SoleMember
from kafka_keyshared.spark.driver.lost import why_lost
from kafka_keyshared.spark.driver.stop import Stop
from kafka_keyshared.spark.java import java_conf
from kafka_keyshared.spark.placement import RecordPlacement
from kafka_keyshared.spark.state import Positions, StateFile, StateStore
from kafka_keyshared.spark.task import SparkJob, TaskReport
from kafka_keyshared.spark.uncommitted_batches import Note, note_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = log_of("kafka_keyshared.spark")

DLQ_TIMEOUT = 10.0

SHARED_FOLDER = "a folder that the driver and every executor see under the same path"

NO_STATE_FOLDER = (
    "the handler has release() and adopt(), and its state is to go from batch to batch: give "
    f"--state {SHARED_FOLDER}"
)

LOST_AT_MOST = 4
"""Number of recoverable losses in a row that ends the run, the same as for Spark's tasks."""

JOB_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
"""Thread properties by which Spark groups its jobs."""

LOOK_EVERY = 0.5
"""Seconds between two checks for new records in a streaming run."""


@dataclass(frozen=True)
class SparkRunRequest:
    """The work of a run: a handler with its settings, as `keyshared run` has them.

    ``dlq_topic`` maps a topic to its dead-letter topic. ``most`` is the maximum number of offsets
    of a partition in a batch. ``state`` is the folder for the state of a handler class that hands
    it over. The driver and all executors see it under this path. ``audit_log`` is the destination
    of the processed log of a wrapped handler: such a folder, or ``topic:NAME``. ``outputs`` is the
    destination of the handlers' outputs. With ``check_invariants`` each task checks its invariants.
    """

    conf: Mapping[str, Any]
    topics: Sequence[str]
    settings: SubscriptionSettings
    specs: Sequence[WorkerSpec]
    dlq_topic: Callable[[str], str]
    dlq_create: bool = False
    letter_form: str = "headers"
    most: int = BATCH_OFFSETS
    state: Path | None = None
    audit_log: str | None = None
    outputs: OutputTarget | None = None
    check_invariants: bool = False

    def check(self) -> None:
        """Raise :class:`ConfigError` for settings that Spark cannot run."""
        if self.settings.individually:
            raise ConfigError(
                "Spark calls a handler with one record after the other: batch handlers, coroutines "
                "and members that ask for records run with `keyshared run`"
            )
        if not self.settings.at_least_once:
            raise ConfigError(
                "delivery='at-most-once' commits nothing, so a batch would be run for ever: "
                "leave it out"
            )
        if self.state is not None:
            local_path("state", self.state, SHARED_FOLDER)
        if self.audit_log is not None and not self.audit_log.startswith(LOG_TOPIC):
            local_path("audit_log", self.audit_log, SHARED_FOLDER)
        RecordPlacement(self.settings)
        java_conf(self.conf)


@dataclass
class SparkRunOutcome:
    """The result of a run.

    ``ended`` is ``caught_up``, ``member_joined``, ``held_up``, or ``stopped``.
    """

    records: int = 0
    handled: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    outputs: int = 0
    retries: int = 0
    batches: int = 0
    seconds: float = 0.0
    left: int = 0
    ended: str = "caught_up"
    positions: dict[str, int] = field(default_factory=dict)

    def add(self, reports: Sequence[TaskReport]) -> None:
        """Add the reports of a batch's tasks."""
        self.batches += 1
        self.handled += sum(each.handled for each in reports)
        self.dead_lettered += sum(each.dead_lettered for each in reports)
        self.dropped += sum(each.dropped for each in reports)
        self.outputs += sum(each.outputs for each in reports)
        self.retries += sum(each.retries for each in reports)
        self.records = self.handled + self.dead_lettered + self.dropped

    def told(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return asdict(self)


Watch = Callable[[str, BatchPlan, SparkRunOutcome], None]
"""Callback that is called with ``begun`` and ``committed`` for each batch."""


def run_batches(
    spark: SparkSession,
    wanted: SparkRunRequest,
    watch: Watch = lambda *_: None,
    stop: Stop | None = None,
    *,
    streams: bool = False,
) -> SparkRunOutcome:
    """Run everything up to the log ends at the first batch; return the result.

    With ``streams`` it continues with new records. When a stop is requested through ``stop`` or a
    pod joins, the running batch is the last.

    Raises :class:`KeySharedError` for any early end. The commits of earlier batches stay.
    """
    wanted.check()
    stop = stop or Stop()
    began = time.monotonic()
    with (
        _rows_of_arrow(spark),
        _state_store(spark, wanted) as store,
        _jobs_of_a_run(spark) as cancel,
        stop.ends(SoleMember(wanted.conf, wanted.topics, cancel)) as member,
    ):
        run = _Run(spark, wanted, member, watch, store, streams=streams)
        more, lost = True, 0
        while more and not stop.asked and member.begin():
            try:
                more = run.batch()
            except Exception as error:
                member.refuse_failed()  # the reason for the cancelled jobs
                lost += 1
                why = why_lost(error)
                if why is None or lost >= LOST_AT_MOST:
                    raise
                log.warning(
                    "%s: nothing of the batch is committed, and it is planned and run again", why
                )
                continue
            finally:
                member.end()
            lost = 0
            if streams and not more:
                stop.wait(LOOK_EVERY)
                more = True
    done = run.done
    if stop.asked and more:
        done.ended = "stopped"
    elif done.left or streams:
        done.ended = "member_joined" if more else "held_up"
    done.seconds = time.monotonic() - began
    return done


@contextmanager
def _rows_of_arrow(spark: SparkSession) -> Iterator[None]:
    """Set how many rows a task takes at a time; restore the value of the caller's session."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name, None)
    spark.conf.set(name, str(batch.ROWS))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


@contextmanager
def _jobs_of_a_run(spark: SparkSession) -> Iterator[Callable[[], None]]:
    """Yield a function that cancels the jobs this thread has started, with their handlers.

    A job group that the caller has set for this thread is restored afterwards.
    """
    context, name = spark.sparkContext, f"keyshared-{uuid4()}"
    before = {each: context.getLocalProperty(each) for each in JOB_GROUP}
    # With interruption, a task's Java would end at once and its Python would finish the records it
    # has read. Without it, Java ends the Python after four seconds.
    context.setJobGroup(name, "batches of a run", interruptOnCancel=False)
    try:
        yield lambda: context.cancelJobGroup(name)
    finally:
        for each, value in before.items():
            context.setLocalProperty(each, value)  # type: ignore[arg-type]


@contextmanager
def _state_store(spark: SparkSession, wanted: SparkRunRequest) -> Iterator[StateStore | None]:
    """Yield the state store, or None for a handler without state.

    Without a state folder on a local master, a temporary one lasts as long as the run. Raises
    :class:`ConfigError` when a cluster needs a shared folder and none is configured.
    """
    group = str(wanted.conf["group.id"])
    if not wanted.settings.hands_over:
        yield None
    elif wanted.state is not None:
        yield StateStore(wanted.state.resolve(), group)
    elif str(spark.sparkContext.master).startswith("local"):
        with TemporaryDirectory(prefix="keyshared-state-") as folder:
            yield StateStore(Path(folder), group)
    else:
        raise ConfigError(NO_STATE_FOLDER)


class _Run:
    """A run as the group's only member, with its results so far."""

    def __init__(
        self,
        spark: SparkSession,
        wanted: SparkRunRequest,
        member: SoleMember,
        watch: Watch,
        store: StateStore | None,
        *,
        streams: bool,
    ) -> None:
        self.done = SparkRunOutcome()
        self._store = store
        self._streams = streams
        # The end offset of each partition's last batch. Records left behind by a blocked key are
        # run again only when there are more records behind them.
        self._ran: dict[TopicPartition, int] = {}
        self._spark, self._wanted, self._member, self._watch = spark, wanted, member, watch
        # The end of the run in each partition: the log end when the run began.
        self._until: dict[TopicPartition, int] = {}
        place = wanted.outputs
        self._written: WrittenBatches | None = None
        if place is not None and place.kind != TOPIC:
            self._written = WrittenBatches(HadoopFiles(spark, place.name))

    def batch(self) -> bool:
        """Plan a batch, run it and commit it; return whether another one follows."""
        done, before = self.done, self.done.records
        folder: Path | None = None
        note: Note | None = None
        starts, untold = self._member.starts()
        if self._written is not None:
            self._written.look(str(self._wanted.conf["group.id"]), starts)
        for each, point in starts.items():
            if self._streams or each not in self._until:
                self._until[each] = point.log_end or 0
        made = plan(
            {each: self._within(each, point) for each, point in starts.items()},
            self._wanted.settings,
            self._wanted.most,
        )
        for notice in made.notices:
            log.warning("%s", notice)
        # A partition without a committed position gets one here: that of the reset policy.
        entries = {each: CommitEntry(starts[each].position or 0, "") for each in untold}
        runs = any(share.end > self._ran.get(each, -1) for each, share in made.shares.items())
        if runs:
            self._watch("begun", made, done)
            stood = {each: (at.position or 0, at.metadata or "") for each, at in starts.items()}
            kept, folder = self._state(stood, untold)
            reports, told = self._run(made, kept, folder)
            entries |= outcome(made, reports, self._wanted.settings.name)
            note = note_of(str(self._wanted.conf["group.id"]), starts, entries)
            self._write(note, starts, reports, told)
            done.add(reports)
            if self._store is not None and folder is not None:
                stood |= {each: (at.position, at.metadata) for each, at in entries.items()}
                states = [each.state for each in reports if each.state is not None]
                self._store.keep(folder, states, stood)
        if entries:
            self._member.commit(entries)
        if self._written is not None and note is not None:
            self._written.committed(note)
        if self._store is not None and folder is not None:
            self._store.forget_before(folder)
        done.positions |= {str(each): entry.position for each, entry in entries.items()}
        if not runs:
            return False
        self._ran |= {each: share.end for each, share in made.shares.items()}
        done.left = sum(
            end - entries[each].position for each, end in made.ends.items() if each in entries
        )
        self._watch("committed", made, done)
        return _goes_on(made, entries, done.records > before)

    def _within(self, partition: TopicPartition, point: StartPoint) -> StartPoint:
        """Limit the log end to the end of the run; later records are for the next run."""
        end = max(self._until[partition], point.position or 0)
        return replace(point, log_end=min(end, point.log_end or end))

    def _state(
        self, stood: Positions, untold: Collection[TopicPartition]
    ) -> tuple[Sequence[StateFile], Path | None]:
        """Return the state at the group's positions, and the folder for the new state."""
        if self._store is None:
            return (), None
        kept, others = self._store.find(stood, untold)
        if others:
            log.warning(
                "the state that is kept is of other positions than the group's: it has gone on "
                "without Spark, and handlers begin without state"
            )
        return kept, self._store.next_folder()

    def _run(
        self, made: BatchPlan, kept: Sequence[StateFile], folder: Path | None
    ) -> tuple[list[TaskReport], DataFrame]:
        """Run the tasks of a batch; return their reports and their other output."""
        wanted = self._wanted
        topics = sorted({each.topic for each in made.shares})
        dlq = wanted.settings.dlq
        letter_topics = {each: wanted.dlq_topic(each) for each in topics} if dlq else {}
        if letter_topics:
            names = sorted(set(letter_topics.values()))
            require_topics(wanted.conf, names, create=wanted.dlq_create, timeout=DLQ_TIMEOUT)
        job = SparkJob(
            wanted.settings,
            wanted.specs,
            made.shares,
            str(wanted.conf["group.id"]),
            letter_topics,
            wanted.letter_form,
            kept,
            folder,
            _is_last(made) and not self._streams,
            wanted.audit_log,
            wanted.outputs,
            wanted.check_invariants,
        )
        frame = batch.placed(batch.read(self._spark, self._source(), job), job)
        out = batch.run_tasks(frame, job)
        return batch.reports_of(out, len(wanted.settings.workers))

    def _source(self) -> TopicSource:
        conf = self._wanted.conf
        return TopicSource(java_conf(conf), str(conf.get("isolation.level", "read_committed")))

    def _write(
        self,
        note: Note,
        starts: Mapping[TopicPartition, StartPoint],
        reports: Sequence[TaskReport],
        told: DataFrame,
    ) -> None:
        """Write the output of a batch's tasks, before the batch is committed."""
        wanted, source = self._wanted, self._source()
        self._member.refuse_failed()  # other members already run its records
        batch.write_letters(told, source, sum(each.letters for each in reports))
        if wanted.outputs is not None:
            count = sum(each.outputs for each in reports)
            if self._written is not None:
                self._written.begin(note, starts, outputs=count > 0)
            batch.write_outputs(told, source, wanted.outputs, note.batch, count)
        if wanted.audit_log is not None:
            rows = sum(each.rows for each in reports)
            batch.write_rows(told, source, wanted.audit_log, rows)
        for notice in dict.fromkeys(text for each in reports for text in each.notices):
            log.warning("%s", notice)


def _goes_on(made: BatchPlan, entries: Mapping[TopicPartition, CommitEntry], settled: bool) -> bool:
    """Return whether another batch follows: there is more to read, and this one made progress."""
    if _is_last(made):
        return False
    return settled or any(
        entries[each].position > share.begin for each, share in made.shares.items()
    )


def _is_last(made: BatchPlan) -> bool:
    """Return whether the batch reaches the end of every partition."""
    return all(share.end >= made.ends[each] for each, share in made.shares.items())
