"""Facts that the core reports for the log.

The core reports what happened as a value and writes no text.
:mod:`kafka_keyshared.executors.notice_text` puts every fact into words and gives it a log level.
The core decides how often a fact is reported (:mod:`kafka_keyshared.core.telemetry.bursts`).

A fact holds values that nothing changes later, because its line may be written seconds after the
event. ``about`` is the one record that the fact is about. Times are in seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kafka_keyshared.core.contract.commit_facts import (
    CommitFailed,
    MetadataIgnored,
    MetadataLimitLowered,
    PositionRemoved,
    ProgressRegained,
    SettledSetCut,
    SuspectsStarting,
    UncleanStops,
)
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.model import About, TopicPartition

# --- failed attempts and closed lanes ---


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """An attempt failed; ``follows`` is the consequence, with the ``delay`` of a retry.

    ``attempt`` of ``attempts`` have been made; None is no limit. ``traceback`` says that the
    traceback belongs in the log, because it is the first failure of its kind. ``last_kind`` says
    that no further kind is logged with a traceback.
    """

    about: About
    attempt: int
    attempts: int | None
    failure: Failure
    follows: Disposition
    delay: float | None = None
    traceback: bool = False
    last_kind: bool = False


@dataclass(frozen=True, slots=True)
class RetryRequested(AttemptFailed):
    """A handler asked for another attempt."""


@dataclass(frozen=True, slots=True)
class RecordDeadLettered:
    """The broker acknowledged the dead letter of a record, written ``at`` these coordinates."""

    about: About
    at: str
    attempts: int
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class RecordDiverted:
    """A record of a diverted lane went to the dead-letter topic without an attempt."""

    about: About


@dataclass(frozen=True, slots=True)
class DeadLetterRefused:
    """A dead letter was not written for the ``tries``-th time; the next try is after ``delay``."""

    about: About
    tries: int
    error: str
    delay: float


@dataclass(frozen=True, slots=True)
class LaneDiverted:
    """A lane is diverted from this record on."""

    about: About
    attempts: int
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class LaneBlocked:
    """A lane is blocked by its head.

    ``archived`` says that the dead-letter topic has a copy of the head. ``diverted`` is the number
    of diverted lanes that the partition has at most, if that limit prevented a diversion. ``dlq``
    says that there is a dead-letter topic.
    """

    about: About
    attempts: int
    failure: Failure
    archived: bool
    diverted: int | None
    dlq: bool
    traceback: bool


@dataclass(frozen=True, slots=True)
class BlockedLane:
    """A blocked lane in a reminder: its key, its head's coordinates, and its last failure."""

    about: About
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class LanesStillBlocked:
    """A number of lanes are blocked; ``oldest`` are those blocked for longest."""

    count: int
    seconds: float
    oldest: Sequence[BlockedLane]
    dlq: bool


@dataclass(frozen=True, slots=True)
class LaneOrderDone:
    """An operator's order for a lane in this ``state`` was executed.

    ``follows`` is the consequence for its head, RETRY for a release. ``waiting`` records wait
    behind it. The offset in ``about`` is -1 for a lane without a head.
    """

    about: About
    state: str
    follows: Disposition
    waiting: int


@dataclass(frozen=True, slots=True)
class DiversionEnded:
    """An operator released a diverted key that has had no record in this process."""

    key: bytes | None


OrderResult: TypeAlias = LaneOrderDone | DiversionEnded

# --- keys that cannot be read ---


@dataclass(frozen=True, slots=True)
class KeyUnreadable:
    """The key of a record cannot be read; ``follows`` is the consequence.

    The consequence RETRY means that the record counts as a record without a key.
    """

    about: About
    reason: str
    follows: Disposition


@dataclass(frozen=True, slots=True)
class UnreadableKeyBlocked:
    """A record whose key cannot be read blocks; ``dlq`` says that there is a dead-letter topic."""

    about: About
    reason: str
    dlq: bool


@dataclass(frozen=True, slots=True)
class KeyNotYetReadable:
    """The key of a record cannot be read now; the next try is after ``delay``."""

    about: About
    reason: str
    delay: float


@dataclass(frozen=True, slots=True)
class KeysMissing:
    """Records of a topic have no key by the key function.

    ``mixed`` says that other records of the topic have one. ``one_lane`` says that records without
    a key share a lane.
    """

    topic: str
    records: int
    mixed: bool
    one_lane: bool


# --- running records ---


@dataclass(frozen=True, slots=True)
class RecordRunsLong:
    """A record has been running for long on a worker, or is unsettled at a pull member.

    ``running`` is its subscription, worker, slice and index. ``others_wait`` says whether other
    keys of the worker wait as well, None if only the record's own key can wait.
    """

    about: About
    running: tuple[str, int, int, int]
    worker: str
    seconds: float
    member: bool
    others_wait: bool | None


@dataclass(frozen=True, slots=True)
class LongRunEnded:
    """A record that was reported as running for long has ended after this time."""

    about: About
    seconds: float


@dataclass(frozen=True, slots=True)
class RecordStuck:
    """A record runs past the ack timeout and nothing can end it.

    ``goes_on`` says that the worker has a replacement thread. ``halts`` says that the instance
    stops because of it.
    """

    about: About
    worker: str
    ack_timeout: float
    goes_on: bool
    halts: bool = False


# --- backpressure ---


@dataclass(frozen=True, slots=True)
class SettledSetFull:
    """A partition's settled set is full; only records before the ``ceiling`` start."""

    partition: TopicPartition
    ceiling: int | None


@dataclass(frozen=True, slots=True)
class OutageBegan:
    """A subscription waits: most attempts fail with this error, whatever the key."""

    subscription: str
    error: str
    where: str
    message: str


@dataclass(frozen=True, slots=True)
class OutageEnded:
    """A probe showed that the dependency answers, after ``seconds`` and some failed ``probes``."""

    subscription: str
    error: str
    seconds: float
    probes: int


@dataclass(frozen=True, slots=True)
class DlqLimitReached:
    """A partition has reached its dead-letter limit and stops.

    ``dead_letters`` of the last ``records`` were dead letters; None if they came in a row.
    """

    partition: TopicPartition
    dead_letters: int
    records: int | None


@dataclass(frozen=True, slots=True)
class BlockedRecordsFull:
    """A partition stops because records behind closed lanes fill its part of the window.

    The lane of ``key`` holds the most ``records``.
    """

    partition: TopicPartition
    key: bytes | None
    records: int


class WaitsFor(enum.Enum):
    """What most waiting records of a partition wait for."""

    WORKER = "a worker for their slots"
    RUNNING = "a record that runs for long"
    EACH_OTHER = "each other: one key has more records than a worker can do"
    DETACHED = "a detached record"
    RETRY = "a failed record"


@dataclass(frozen=True, slots=True)
class WaitingRecordsFull:
    """A partition is held back because its waiting records fill too much of the window.

    ``records`` of them wait for ``cause``. ``head`` is the record that they wait for, ``key`` its
    key. ``seconds`` is how long the head has been running, or the delay until its next attempt.
    """

    partition: TopicPartition
    records: int
    cause: WaitsFor
    key: bytes | None = None
    head: About | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RecordsShed:
    """A full worker dropped records, because the subscription is not reliable."""

    worker: str
    records: int


@dataclass(frozen=True, slots=True)
class RecordHeld:
    """A record waits for a worker that takes its key and has not joined."""

    about: About


@dataclass(frozen=True, slots=True)
class RecordUnmatched:
    """No declared worker takes this record, and ``on_unmatched`` is ``error``."""

    about: About | None
    subscription: str


# --- workers ---


@dataclass(frozen=True, slots=True)
class WorkerEvicted:
    """A worker could not be restarted; its keys go to the ``others``.

    ``written_off`` says that its ``records`` count as settled and are lost.
    """

    worker: str
    heartbeats: int
    others: int
    records: int
    written_off: bool


@dataclass(frozen=True, slots=True)
class LastWorkerDead:
    """The last worker of a subscription could not be restarted."""

    worker: str


@dataclass(frozen=True, slots=True)
class WorkerDeparted:
    """A pull member has left; its keys go to the others."""

    worker: str


@dataclass(frozen=True, slots=True)
class WorkersAllLeft:
    """All pull members have left, so nothing runs."""

    workers: Sequence[str]


@dataclass(frozen=True, slots=True)
class SlotStateLost:
    """The state of slots is lost; ``error`` is that of ``release``, None if the thread is gone."""

    worker: str
    slots: int
    error: str | None


HaltCause: TypeAlias = RecordStuck | RecordUnmatched | LastWorkerDead
"""Facts that stop the instance."""

Fact: TypeAlias = (
    AttemptFailed
    | RetryRequested
    | RecordDeadLettered
    | RecordDiverted
    | DeadLetterRefused
    | LaneDiverted
    | LaneBlocked
    | LanesStillBlocked
    | LaneOrderDone
    | DiversionEnded
    | KeyUnreadable
    | UnreadableKeyBlocked
    | KeyNotYetReadable
    | KeysMissing
    | RecordRunsLong
    | LongRunEnded
    | RecordStuck
    | SettledSetFull
    | OutageBegan
    | OutageEnded
    | DlqLimitReached
    | BlockedRecordsFull
    | WaitingRecordsFull
    | RecordsShed
    | RecordHeld
    | RecordUnmatched
    | WorkerEvicted
    | LastWorkerDead
    | WorkerDeparted
    | WorkersAllLeft
    | SlotStateLost
    | CommitFailed
    | SettledSetCut
    | MetadataLimitLowered
    | PositionRemoved
    | MetadataIgnored
    | UncleanStops
    | SuspectsStarting
    | ProgressRegained
)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Events that share one notice, which describes only the first.

    ``count`` events happened in ``seconds``, the last one ``last_ago`` seconds ago. ``kinds`` are
    the most frequent kinds of failure, each with its number; ``others`` is the number of the rest.
    None of them is known for other events.
    """

    count: int
    seconds: float
    last_ago: float
    kinds: Sequence[tuple[tuple[str, str], int]] = ()
    others: int = 0
