"""The status of an instance at one moment, as one value.

Metrics, health checks and the console read it and know nothing else of the instance. It is plain
data for ``msgspec.json.encode``, with the version of its layout. An offset is the next one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from kafka_keyshared.failure_status import DependencyWait, FailureRate
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.shared_status import SharedStatus

VERSION = 1

Phase: TypeAlias = Literal["starting", "running", "stopping", "stopped"]

ShownState: TypeAlias = Literal["idle", "running", "stuck", "gone"]


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """A histogram: counts per bucket up to each bound; the last bucket has no bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An assigned partition. None stands for unknown values.

    - ``fetched`` is the received end.
    - ``safe`` is the end of the contiguous settled run.
    - ``settled_max`` is one past the highest settled offset, ``unsettled`` a number of records.
    - ``committed`` is the position that the broker accepted.
    - ``lag`` counts from the committed position to the end of the log. ``backlog`` leaves out what
      is settled beyond it.
    - ``oldest_seconds`` is how long the record at the position has been the oldest unsettled one.
      ``lag_seconds`` is the age of that record.
    - ``held_back`` gives the reasons not to fetch from it, and ``held_seconds`` for how long each
      has been seen. ``paused`` says whether the client was asked to pause it.
    - ``settled`` are the first settled runs beyond the safe position, each from its first offset to
      the one after its last. It is None unless it was requested.
    """

    topic: str
    partition: int
    fetched: int | None
    safe: int | None
    settled_max: int | None
    committed: int | None
    log_end: int | None
    unsettled: int
    oldest_seconds: float
    lag: int | None
    backlog: int | None
    lag_seconds: float | None
    paused: bool
    held_back: tuple[str, ...] = ()
    held_seconds: tuple[float, ...] = ()
    settled: tuple[tuple[int, int], ...] | None = None


class RunningRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record whose handler has not returned.

    ``key`` is the text of its key, cut to length, with non-text bytes as ``\\x…``; it and ``slot``
    are None without a key. ``where`` and ``stack`` give the handler's position in the user's
    program, once it has been running for long and if its pool can determine them.
    """

    topic: str
    partition: int
    offset: int
    seconds: float
    key: str | None = None
    slot: int | None = None
    where: str = ""
    stack: str = ""


class DrainingSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that drains at a worker. PIP-379 calls it a draining hash.

    ``pending`` of its leases have not ended, and ``blocked`` records wait for that at ``owner``,
    the worker that now has the slot (None: no worker). Where workers filter, keys of a slot may
    have several owners, each with a draining slot. It was first seen ``seconds`` ago.
    """

    slot: int
    pending: int
    blocked: int
    owner: str | None = None
    seconds: float = 0.0


class PendingAck(msgspec.Struct, frozen=True, kw_only=True):
    """A record that a worker was given and has not settled: running, or in its mailbox.

    ``slot`` is None without a key. ``draining`` says that the slot now belongs to another worker
    and waits for this record.
    """

    worker: str
    topic: str
    partition: int
    offset: int
    slot: int | None
    running: bool
    draining: bool


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker. ``share`` is the part of all slots that it owns. Times are in seconds.

    - ``runs`` is how many of its records run. ``running`` is the first of them that it got.
    - ``stuck`` of them run past the ack timeout and cannot be ended. The worker's state is stuck if
      it waits for one of these; otherwise a replacement goes on.
    - ``dropped`` counts records that came while it was full (without reliability only).
    - ``draining`` are slots of which it has leases and which now belong to another worker.
    - ``detached`` says that its record takes long, and other workers have taken its other records.
    - ``shards`` is the number of shards it holds.
    """

    name: str
    state: ShownState
    leased: int
    queued: int
    running: RunningRecord | None
    runs: int = 0
    stuck: int = 0
    busy_seconds: float
    starved_seconds: float
    restarts: int
    dropped: int = 0
    share: float
    draining: tuple[DrainingSlot, ...] = ()
    detached: bool = False
    shards: int = 0


class BlockedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A blocked key, the record that blocks it, for how long, and why.

    ``key`` is as that of a :class:`RunningRecord`.
    """

    key: str | None
    topic: str
    partition: int
    offset: int
    seconds: float
    attempts: int
    error: str
    slot: int | None = None


class LaneStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A closed lane: its key, its state, its head, and the number of records after it.

    - ``key`` and ``slot`` are as those of a :class:`RunningRecord`.
    - ``offset`` is -1 where it has no head.
    - ``due_seconds`` is the time until the head, or its dead letter, is retried.
    - ``seconds`` is the time since it first failed.
    - ``refused`` is how often its dead letter was refused, the last time for ``refusal``.
    - ``refused_for_good`` says that a retry does not help: the topic is gone, a right is missing.
    - ``stack`` is the last attempt's.
    """

    subscription: str
    key: str | None
    state: str
    topic: str
    partition: int
    offset: int
    attempts: int
    archived: bool
    waiting: int
    due_seconds: float | None
    error: str
    slot: int | None = None
    seconds: float = 0.0
    refused: int = 0
    refusal: str = ""
    refused_for_good: bool = False
    stack: str = ""


class UnreadableKeyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A record whose key has been unreadable for ``seconds``; ``records`` of its partition wait."""

    topic: str
    partition: int
    offset: int
    records: int
    error: str
    seconds: float


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failed attempts of one error type from one place in the program.

    ``first_at`` and ``last_at`` are in seconds since 1970. The other fields are those of the last
    attempt. ``keys`` says how often each of the last few keys failed, ``slots`` gives their slots.
    """

    error: str
    where: str
    count: int
    first_at: float
    last_at: float
    message: str
    stack: str
    topic: str
    partition: int
    offset: int
    keys: tuple[tuple[str | None, int], ...] = ()
    slots: tuple[int | None, ...] = ()


class SubscriptionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription: its workers, its window, and how its records ended.

    Routing:

    - ``routing``, ``on_unmatched`` and ``slot_function`` are the settings.
    - ``ranges`` are the slots of each worker, both ends included, written as in the settings, where
      slots are in ranges. ``unassigned`` are those without a worker.
    - ``filters`` are the patterns of each worker, where workers filter. Ranges and filters also
      name declared workers that are away.
    - ``slots`` gives the owner of the slots as runs: first slot, last slot, and the worker's index
      in ``workers``, -1 for none. It is None unless it was requested.
    - ``shared`` is None where workers own their keys.
    - ``draining_slots`` slots drain, with ``draining_pending_records`` leases;
      ``draining_blocked_records`` records wait for that. ``drained_slots`` have drained so far.

    Records and keys:

    - These count by topic: ``processed`` settled records by outcome, ``attempts`` by result,
      ``retried`` retries by error, ``dlq_writes`` dead letters by the broker's answer.
    - ``keyless`` counts by topic the records for which the key function found no key.
      ``undecodable`` counts those whose key could not be read.
    - ``pending`` lists the records that workers were given and have not settled, by worker and
      oldest first. It is None unless it was requested.
    - ``keys`` is the number of keys with unsettled records. ``hottest`` is the number that the key
      with the most has, ``hottest_key`` that key and ``hottest_slot`` its slot.
    - ``full_seconds`` is for how long the window has been full.
    - ``unreadable_keys`` are the partitions that wait for a key to be read.
    - ``away`` records wait for declared workers that are away (``missing``), for ``away_seconds``,
      the first one at ``away_at``.

    Failures:

    - ``lanes`` counts the closed lanes by state. ``blocked`` are those blocked for longest.
      ``closed`` are the first closed lanes, those first that need an operator.
    - ``errors`` are failed attempts by kind, the latest first.
    - ``failure_rates`` are the high ones, as of the last heartbeat. ``waiting`` is the outage of a
      dependency that everything waits for; None without one.
    - ``stuck`` counts records that outlasted the ack timeout and could not be ended.
    - ``late_acks`` counts rejected acknowledgements of members, whose lease was over.
      ``stale_results`` counts records that ended after their partition had gone.
    - ``written_off`` counts records that were taken as done when their worker was evicted.
    - ``detached`` counts records that ran so long that other workers took over all but their keys.
    """

    name: str
    pool: str
    routing: str = "ring"
    on_unmatched: str | None = None
    ranges: dict[str, str] = {}
    unassigned: str = ""
    filters: dict[str, tuple[str, ...]] = {}
    workers: tuple[WorkerStatus, ...]
    records: int
    bytes: int
    records_max: int
    processed: dict[str, dict[str, int]]
    retried: dict[str, dict[str, int]]
    dlq_writes: dict[str, dict[str, int]]
    attempts: dict[str, dict[str, int]]
    stuck: int
    late_acks: int = 0
    written_off: int = 0
    stale_results: int
    lanes: dict[str, int]
    lane_records: int
    blocked: tuple[BlockedKey, ...] = ()
    keys: int
    hottest: int
    draining_slots: int = 0
    draining_pending_records: int = 0
    draining_blocked_records: int = 0
    drained_slots: int = 0
    detached: int = 0
    pending: tuple[PendingAck, ...] | None = None
    closed: tuple[LaneStatus, ...] = ()
    unreadable_keys: tuple[UnreadableKeyStatus, ...] = ()
    keyless: dict[str, int] = {}
    undecodable: dict[str, int] = {}
    away: int = 0
    away_at: tuple[str, int, int] | None = None
    away_seconds: float = 0.0
    missing: tuple[str, ...] = ()
    errors: tuple[ErrorGroup, ...] = ()
    failure_rates: tuple[FailureRate, ...] = ()
    waiting: DependencyWait | None = None
    slots: tuple[tuple[int, int, int], ...] | None = None
    hottest_key: str | None = None
    hottest_slot: int | None = None
    full_seconds: float = 0.0
    shared: SharedStatus | None = None
    slot_function: str = "mmh3"
    process_seconds: Distribution
    wait_seconds: Distribution
    age_seconds: Distribution


class ClientStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The Kafka client's statistics.

    ``coordinator`` is its state towards the group's coordinator, ``up`` when it has one, for
    ``coordinator_seconds``. It is empty before the first statistics.
    """

    lag: dict[str, dict[int, int]] = {}
    fetch_queue: int = 0
    round_trip_seconds: dict[str, float] = {}
    rebalances: int = 0
    coordinator: str = ""
    coordinator_seconds: float = 0.0


class RebalanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One assignment, revocation or loss of partitions, its duration and its cost.

    ``at`` is when it was over, in seconds since 1970. ``event`` is assigned, revoked or lost.
    ``let_go`` records were received and are not settled here any more. ``left`` of them were still
    running at the deadline and may run twice.
    """

    at: float
    event: str
    partitions: tuple[TopicPartition, ...]
    seconds: float
    let_go: int = 0
    left: int = 0


class Standstill(msgspec.Struct, frozen=True, kw_only=True):
    """A period in which the owner thread did nothing although it had no reason to wait.

    It ended ``ago_seconds`` ago and took ``seconds``. ``process`` says that no thread of the
    process ran. It was stopped or swapped out, or a C call kept the interpreter lock. Otherwise
    only the owner thread was blocked, in ``where``. ``records`` are the first few that ran during
    it, each with its worker.
    """

    ago_seconds: float
    seconds: float
    process: bool
    where: str = ""
    records: tuple[str, ...] = ()


class Lately(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of the last ``seconds``.

    ``backlog`` is that of the period's start, over the ``partitions`` with a known one. ``busy`` is
    the mean share of workers that ran a record. ``full`` is the share of time that the window was
    full. ``fetched`` and ``settled`` are numbers of records.
    """

    seconds: float
    partitions: int = 0
    backlog: int
    busy: float
    full: float
    fetched: int
    settled: int


class RefusedRight(msgspec.Struct, frozen=True, kw_only=True):
    """A right that the brokers refuse: on ``topic``, or on the group where that is ''.

    ``text`` names the refused right, its effect, and the right to grant. The first refusal was
    ``seconds`` ago, and the last one says ``error``.
    """

    topic: str
    seconds: float
    error: str
    text: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One instance at one moment. Times are in seconds since 1970.

    Counts by topic include every topic that is subscribed to or was ever assigned, also at 0.
    Counts by answer or event include each of these.

    Group and client:

    - ``joined`` says whether the group has assigned partitions to this member, possibly none.
    - ``poll_used`` is the longest recent time between two polls, as a share of the client's
      ``max.poll.interval.ms``.
    - ``rebalance_seconds`` is for how long a rebalance has run that has not assigned this member's
      partitions yet. ``rebalanced`` are the last rebalances.
    - ``brokers_away_seconds`` is for how long no broker has answered. ``client_error`` is the
      client's last error.
    - ``refused`` are the missing rights, the group's first.

    Commits:

    - ``commit_failures`` commits in a row have failed, the first ``commit_failing_seconds`` ago,
      the last with ``commit_error``.
    - ``commit_waiting_seconds`` is how long the oldest commit in flight has waited for its answer.

    Progress:

    - ``stalls`` counts, by topic, how often a stalled partition was read again. It had delivered
      nothing for 30 s although there was something to read.
    - ``silent_seconds`` is the time since the control loop last ran a round.
    - ``lately`` is the last minute, None until one was observed.
    - ``standstill`` is the last one, shown for some minutes.
    - ``instance_reports`` counts the reports to the group by result. They have failed for
      ``report_failing_seconds``, the last with ``report_error``.
    """

    version: int
    taken_at: float
    started_at: float
    phase: Phase
    joined: bool
    group: str
    partitions: tuple[PartitionStatus, ...]
    subscriptions: tuple[SubscriptionStatus, ...]
    fetched: dict[str, int]
    rebalances: dict[str, int]
    revoke_seconds: Distribution
    commits: dict[str, int]
    commit_seconds: Distribution
    metadata_bytes: Distribution
    paused_seconds: float
    stalls: dict[str, int]
    polled_at: float | None
    poll_used: float
    client: ClientStatus | None
    commit_failures: int = 0
    commit_failing_seconds: float | None = None
    commit_error: str = ""
    commit_waiting_seconds: float | None = None
    brokers_away_seconds: float | None = None
    client_error: str = ""
    rebalance_seconds: float | None = None
    silent_seconds: float = 0.0
    rebalanced: tuple[RebalanceStatus, ...] = ()
    lately: Lately | None = None
    instance_reports: dict[str, int] = {}
    report_failing_seconds: float | None = None
    report_error: str = ""
    refused: tuple[RefusedRight, ...] = ()
    standstill: Standstill | None = None


class Health(NamedTuple):
    """Whether the instance is healthy, with the reason in one line."""

    ok: bool
    reason: str
