"""What an instance looks like at one moment, as one value.

Metrics, health checks and the console read it; it is the only thing they know of the inside. It is
plain data (``msgspec.json.encode`` makes JSON of it) and carries the version of its layout. Offsets
are exclusive: the next one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.shared_status import SharedStatus

VERSION = 1

Phase: TypeAlias = Literal["starting", "running", "stopping", "stopped"]

ShownState: TypeAlias = Literal["idle", "running", "stuck", "gone"]


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Observations: how many up to each bound and not the one before, the last without a bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An assigned partition. None stands for what is not known (yet).

    ``fetched`` is the received end; ``safe`` the end of the contiguous settled run; ``completed``
    one past the highest settled offset; ``committed`` what the broker accepted. ``lag`` is from
    the committed position to the end of the log; ``backlog`` leaves out what is settled beyond it.
    ``oldest_seconds`` is how long the record at the position has been the oldest unsettled one,
    ``lag_seconds`` how old it is. ``held_back`` says why nothing is fetched from it just now, and
    ``held_seconds`` for how long each of these reasons has been seen; ``paused`` whether the client
    was told so. ``settled`` are the first runs that are settled beyond the safe position, each from
    its first offset to the one behind its last; None unless they were asked for.
    """

    topic: str
    partition: int
    fetched: int | None
    safe: int | None
    completed: int | None
    committed: int | None
    log_end: int | None
    incomplete: int
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

    ``key`` is the text of its key, cut, with what is no text as ``\\x…``, and ``slot`` the slot of
    it; both are None without a key. ``where`` and ``stack`` say where in the user's program its
    handler stands, once it has been running for long and as far as its pool can tell.
    """

    topic: str
    partition: int
    offset: int
    seconds: float
    key: str | None = None
    slot: int | None = None
    where: str = ""
    stack: str = ""


class DrainingHash(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that drains at a worker: PIP-379 calls it a draining hash.

    ``pending`` of its leases have yet to end, and ``blocked`` records wait for that, at ``owner``:
    the worker that has the slot by now, None where nobody has. Where workers filter, keys of a slot
    may have several owners, and each of them is a draining hash. It has been seen to drain for so
    many ``seconds``.
    """

    hash: int
    pending: int
    blocked: int
    owner: str | None = None
    seconds: float = 0.0


class PendingAck(msgspec.Struct, frozen=True, kw_only=True):
    """A record that a worker was given and has not settled: it runs, or waits in its mailbox.

    ``slot`` is None without a key; ``draining`` says that the slot waits for it: it is another
    worker's by now.
    """

    worker: str
    topic: str
    partition: int
    offset: int
    slot: int | None
    running: bool
    draining: bool


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker. ``share`` is the part of all slots that it owns; times in seconds.

    ``runs`` is how many of its records run, and ``running`` the one of them that it got first;
    ``stuck`` of them run past the ack timeout, and nothing can end them. A worker is stuck that
    waits for one of these: others have somebody else who goes on. ``dropped`` counts what came
    while it was full, which only happens without reliability. ``draining`` are slots of which it
    has leases, and that are another worker's by now. One is ``detached`` whose record
    takes long: all else that it had is with others. It holds so many ``shards``.
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
    draining: tuple[DrainingHash, ...] = ()
    detached: bool = False
    shards: int = 0


class BlockedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is blocked, the record that blocks it, for how long, and why.

    ``key`` is its text, cut, with what is no text as ``\\x…``; None for a record without a key.
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
    """A closed lane: its key, what it waits for, its head, and how many records are behind that.

    ``key`` and ``slot`` are as those of a :class:`RunningRecord`. ``offset`` is -1 where it has no
    head; ``due_seconds`` is the time until that is tried again, or its letter. It first failed so
    many ``seconds`` ago; its letter was ``refused`` so many times, the last time for ``refusal``.
    ``refused_for_good`` says that another try does not help: the topic is gone, a right is missing.
    ``stack`` is the last attempt's.
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


class UnreadKey(msgspec.Struct, frozen=True, kw_only=True):
    """A record whose key cannot be read just now: so many ``records`` of its partition wait.

    It has been seen to be so for so many ``seconds``.
    """

    topic: str
    partition: int
    offset: int
    records: int
    error: str
    seconds: float


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failed attempts that are alike: of one type of error, from one place in the program.

    ``first_at`` and ``last_at`` are in seconds since 1970; the rest is that of the last one.
    ``keys`` says how often each of the last few keys failed, ``slots`` their slots.
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


class FailureRate(msgspec.Struct, frozen=True, kw_only=True):
    """A share of failures that is high, of a subscription, a topic or a partition.

    ``what`` says of what: ``attempts`` failed, or records were ``given_up``: dead-lettered,
    diverted, or dropped by the poison policy. ``topic`` is empty and ``partition`` None where the
    rate is that of all of them. In the last ``window_seconds`` there were ``count`` of those, and
    ``ok`` records were done. ``put_off`` says that handlers put off most of these records
    (``Retry(attempt=False)``) instead of failing. The rate has been high for ``seconds``, with
    ``total`` of those since. ``error_share`` of them are ``error`` from ``where``, the last one
    with ``message``.
    """

    what: Literal["attempts", "given_up"]
    level: Literal["fail", "warn"]
    topic: str
    partition: int | None
    share: float
    count: int
    ok: int
    window_seconds: float
    put_off: bool = False
    total: int
    seconds: float
    error: str
    where: str
    error_share: float
    message: str


class SubscriptionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription: its workers, its window, and how its records ended.

    ``routing`` and ``on_unmatched`` are what was chosen. ``ranges`` are the slots of each worker,
    both ends included, where they are in ranges, as the settings have them; ``unassigned`` are
    those that are in nobody's. ``filters`` is what each takes, where workers filter. Ranges and
    filters name those too that were declared and are not there.

    ``processed``, ``retried`` and ``letters`` count by topic and outcome (or error). ``lanes`` are
    the closed ones by state, and ``blocked`` those that have been blocked for longest. ``keys`` and
    ``hottest`` say how many keys have unsettled records, and how many the one with the most has.

    ``draining_hashes_count`` slots drain, for ``draining_hashes_pending_messages`` leases in all.
    ``draining_hashes_blocked_messages`` records wait for that; ``draining_hashes_cleared_total``
    slots have drained so far. ``pending`` lists all that workers were given and have not settled,
    by worker and oldest first; None unless it was asked for. ``failure_rates`` are those that are
    high, as of the last heartbeat.
    ``closed`` are the first closed lanes, those before others that wait for somebody; ``unread``
    the partitions that wait for a key to be read. ``keyless`` counts by topic the records for which
    the key function found no key. So many records (``away``) wait for workers that
    were declared and are not there (``missing``), since ``away_seconds``, the first one at
    ``away_at``. ``errors`` are failed attempts by kind, the latest first. ``slots`` is who has the
    slots, each run from its first to its last one with the worker's place among ``workers``, -1 for
    nobody; None unless it was asked for. ``hottest_key`` is the key with the most unsettled records
    and ``hottest_slot`` its slot. The window has been full for so many seconds (``full_seconds``).
    So many records were ever ``stuck``: past the ack timeout, and not to be ended; so many attempts
    ``timed_out``: ended for it. ``late`` is what members settled that was theirs no more, and
    ``written_off`` what counted as done when its worker was evicted. So many records took so
    long that all but their keys went on elsewhere (``detached``). ``shared`` is None where workers
    own their keys. ``slot_function`` names the setting.
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
    letters: dict[str, dict[str, int]]
    stuck: int
    timed_out: int = 0
    late: int = 0
    written_off: int = 0
    stale: int
    lanes: dict[str, int]
    lane_records: int
    blocked: tuple[BlockedKey, ...] = ()
    keys: int
    hottest: int
    draining_hashes_count: int = 0
    draining_hashes_pending_messages: int = 0
    draining_hashes_blocked_messages: int = 0
    draining_hashes_cleared_total: int = 0
    detached: int = 0
    pending: tuple[PendingAck, ...] | None = None
    closed: tuple[LaneStatus, ...] = ()
    unread: tuple[UnreadKey, ...] = ()
    keyless: dict[str, int] = {}
    away: int = 0
    away_at: tuple[str, int, int] | None = None
    away_seconds: float = 0.0
    missing: tuple[str, ...] = ()
    errors: tuple[ErrorGroup, ...] = ()
    failure_rates: tuple[FailureRate, ...] = ()
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
    """What the Kafka client says of itself, from its statistics.

    ``coordinator`` is its state towards the group's coordinator, ``up`` when it has one, since so
    many seconds (``coordinator_seconds``); empty before the first statistics.
    """

    lag: dict[str, dict[int, int]] = {}
    fetch_queue: int = 0
    round_trip_seconds: dict[str, float] = {}
    rebalances: int = 0
    coordinator: str = ""
    coordinator_seconds: float = 0.0


class RebalanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that came or went: what moved, how long it took, what it cost.

    ``at`` is when it was over, in seconds since 1970; ``event`` is assigned, revoked or lost.
    ``let_go`` records were received and are not settled here any more; ``left`` of them were still
    running at the deadline, and may run twice.
    """

    at: float
    event: str
    partitions: tuple[TopicPartition, ...]
    seconds: float
    let_go: int = 0
    left: int = 0


class Standstill(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which the owner thread did nothing, though nothing of the package held it.

    It ended ``ago_seconds`` ago and took ``seconds``. ``process`` says that no thread of the
    process ran: it was stopped or swapped out, or a C call kept the interpreter lock. Else the
    owner thread alone was held, in ``where``. ``records`` were running meanwhile, the first few of
    them, each with its worker.
    """

    ago_seconds: float
    seconds: float
    process: bool
    where: str = ""
    records: tuple[str, ...] = ()


class Lately(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen over the last ``seconds``, at the beginning of which the ``backlog`` was that.

    It is that of so many ``partitions``: of others it is not known.
    ``busy`` is the mean share of the workers that ran something, ``full`` the share of the time
    that the window was full; ``fetched`` and ``settled`` are records.
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

    ``text`` says what is refused, what that stops, and what to grant. It has been refused for
    ``seconds``, the last time with ``error``.
    """

    topic: str
    seconds: float
    error: str
    text: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One instance at one moment. Times are in seconds since 1970.

    ``joined`` says whether the group has given this member its partitions, be they none.
    ``poll_used`` is the longest time between two polls lately, as a share of the client's
    ``max.poll.interval.ms``. ``stalls`` counts, by topic, how often a partition delivered nothing
    for 30 s although there was something to read, and was read again. What is counted by topic has
    every topic that is subscribed to or was ever assigned, be it at 0, and what is counted by
    answer or event each of them.

    ``commit_failures`` commits in a row have failed, the first ``commit_failing_seconds`` ago, the
    last with ``commit_error``; the oldest that is on its way has waited for its answer for
    ``commit_waiting_seconds``. No broker has answered for ``brokers_away_seconds``;
    ``client_error`` is what the client said last that is wrong. The group has been giving out
    partitions for ``rebalance_seconds``, and has not come to this member's yet. The control loop
    has not turned for ``silent_seconds``. ``rebalanced`` are the last rebalances, ``lately`` the
    last minute, None while there is none that was seen. ``beats`` counts what the group was told by
    what became of it; that has failed for ``beats_failing_seconds``, the last with ``beats_error``.
    ``refused`` are the rights that are missing, the group's first.
    ``standstill`` is the last one, for some minutes.
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
    drain_seconds: Distribution
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
    beats: dict[str, int] = {}
    beats_failing_seconds: float | None = None
    beats_error: str = ""
    refused: tuple[RefusedRight, ...] = ()
    standstill: Standstill | None = None


class Health(NamedTuple):
    """Whether all is well, with the reason in a line."""

    ok: bool
    reason: str
