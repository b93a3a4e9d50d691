"""What the core does not know of the world around it, and its status shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.status import (
    ClientStatus,
    Lately,
    Phase,
    RebalanceStatus,
    RefusedRight,
    Standstill,
)


class Stand(NamedTuple):
    """Where a handler stands: the line of the user's program in words, and the calls it is in."""

    where: str
    stack: str


class Beats(NamedTuple):
    """How many beats were written for the group, and how many not; none without a topic for them.

    They have failed for ``failing_seconds``, the last with ``error``; None while they are written.
    """

    written: int = 0
    failed: int = 0
    failing_seconds: float | None = None
    error: str = ""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the core does not know and the status shows: times in seconds since 1970.

    ``topics`` are those that are subscribed to, as far as they go by their names. ``paused`` are
    the partitions of which the client was told to fetch nothing. With ``pending`` every pending
    acknowledgement is listed; ``full`` has all that somebody may want to see who looks on, and of
    those the first of each worker. ``stands`` says where handlers stand that have been running for
    long, by subscription, worker and slice.
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
    full: bool = False
    stands: Mapping[tuple[str, int, int, int], Stand] = {}
    brokers_away_seconds: float | None = None
    client_error: str = ""
    rebalanced: tuple[RebalanceStatus, ...] = ()
    unjoined_seconds: float | None = None
    lately: Lately | None = None
    beats: Beats = Beats()
    refused: tuple[RefusedRight, ...] = ()
    standstill: Standstill | None = None
