"""Status values from outside the core."""

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


class CodePosition(NamedTuple):
    """A handler's current position: the line of the user's program, and its call stack."""

    where: str
    stack: str


class ReportCounts(NamedTuple):
    """Counts of written and failed instance reports; both are 0 without a topic for reports.

    They have failed for ``failing_seconds``, most recently with ``error``; None while writes
    succeed.
    """

    written: int = 0
    failed: int = 0
    failing_seconds: float | None = None
    error: str = ""


class StatusInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The values from outside the core that the status shows. Times are in seconds since 1970.

    ``topics`` are the topics subscribed to by name. ``paused`` are the partitions that are paused
    at the client. With ``pending`` the status lists every pending acknowledgement. ``full`` adds
    all details for the console, with the first pending acknowledgements of each worker. ``stands``
    has the position of handlers that have been running for long, by subscription, worker, slice and
    index.
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
    stands: Mapping[tuple[str, int, int, int], CodePosition] = {}
    brokers_away_seconds: float | None = None
    client_error: str = ""
    rebalanced: tuple[RebalanceStatus, ...] = ()
    unjoined_seconds: float | None = None
    lately: Lately | None = None
    reports: ReportCounts = ReportCounts()
    refused: tuple[RefusedRight, ...] = ()
    standstill: Standstill | None = None
