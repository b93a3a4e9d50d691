"""What an instance looks like at one moment, as one value.

Metrics, health checks and the console read it; it is the only thing they know of the inside. It is
plain data (``msgspec.json.encode`` makes JSON of it) and carries the version of its layout. Offsets
are exclusive: the next one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from kafka_keyshared.model import TopicPartition

VERSION = 1

KEY_CHARS = 80

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
    ``lag_seconds`` how old it is. ``held_back`` says why nothing is fetched from it just now,
    ``paused`` whether the client was told so.
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


class RunningRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record whose handler has not returned."""

    topic: str
    partition: int
    offset: int
    seconds: float


class DrainingHash(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that drains at a worker: PIP-379 calls it a draining hash.

    ``pending`` of its leases have yet to end, and ``blocked`` records wait for that, at ``owner``:
    the worker that has the slot by now, None where nobody has. Where workers filter, keys of a slot
    may have several owners, and each of them is a draining hash.
    """

    hash: int
    pending: int
    blocked: int
    owner: str | None = None


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
    has leases, and that are another worker's by now. ``lends_to`` are those who have its slots
    while the record that it runs holds it up; all but that record's.
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
    lends_to: tuple[str, ...] = ()


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


class LaneStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A closed lane: its key, what it waits for, its head, and how many records are behind that.

    ``key`` is as that of a :class:`BlockedKey`. ``offset`` is -1 where it has no head just now;
    ``due_seconds`` is the time until its head is tried again, or its letter, where that is known.
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
    by worker and oldest first; None unless it was asked for.
    So many records were ever ``stuck``: past the ack timeout, and not to be ended; so many attempts
    ``timed_out``: ended for it. ``late`` is what members settled that was theirs no more, and
    ``written_off`` what counted as done when its worker was evicted. So many times a worker that
    was held up has lent its slots (``loans``), and so many of these loans are over (``returned``).
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
    loans: int = 0
    returned: int = 0
    pending: tuple[PendingAck, ...] | None = None
    process_seconds: Distribution
    wait_seconds: Distribution
    age_seconds: Distribution


class ClientStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the Kafka client says of itself, from its statistics."""

    lag: dict[str, dict[int, int]] = {}
    fetch_queue: int = 0
    round_trip_seconds: dict[str, float] = {}
    rebalances: int = 0


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the core does not know and the status shows: times in seconds since 1970.

    ``topics`` are those that are subscribed to, as far as they go by their names. ``paused`` are
    the partitions of which the client was told to fetch nothing. With ``pending`` every pending
    acknowledgement is listed.
    """

    wall: float
    started_at: float
    phase: Phase
    joined: bool
    group: str
    pool: str
    polled_at: float | None
    poll_used: float
    log_ends: dict[TopicPartition, int]
    topics: tuple[str, ...] = ()
    paused: frozenset[TopicPartition] = frozenset()
    stalls: dict[str, int] = {}
    client: ClientStatus | None = None
    pending: bool = False


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One instance at one moment. Times are in seconds since 1970.

    ``joined`` says whether the group has given this member its partitions, be they none.
    ``poll_used`` is the longest time between two polls lately, as a share of the client's
    ``max.poll.interval.ms``. ``stalls`` counts, by topic, how often a partition delivered nothing
    for 30 s although there was something to read, and was read again. What is counted by topic has
    every topic that is subscribed to or was ever assigned, be it at 0, and what is counted by
    answer or event each of them.
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


class Health(NamedTuple):
    """Whether all is well, with the reason in a line."""

    ok: bool
    reason: str
