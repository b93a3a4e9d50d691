"""Facts about commits and the starts of partitions, for the log (:mod:`.facts`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_keyshared.model import About, TopicPartition


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """A commit failed; ``refused`` says that a rebalance has completed, so it is not repeated."""

    partitions: Sequence[TopicPartition]
    error: str
    refused: bool


@dataclass(frozen=True, slots=True)
class SettledSetCut:
    """The settled set of a partition did not fit in the commit metadata and was cut."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class MetadataLimitLowered:
    """The brokers accept less commit metadata than the default.

    ``accepted`` is the limit in bytes that they report, ``refused`` the length in characters that
    they refused. ``without_sets`` says that no settled set fits.
    """

    accepted: int | None
    refused: int | None
    without_sets: bool


@dataclass(frozen=True, slots=True)
class PositionRemoved:
    """Retention has removed the log from the committed ``position`` up to ``log_start``."""

    partition: TopicPartition
    log_start: int
    position: int


@dataclass(frozen=True, slots=True)
class MetadataIgnored:
    """The commit metadata of a partition is ignored because of this problem."""

    partition: TopicPartition
    problem: str


@dataclass(frozen=True, slots=True)
class UncleanStops:
    """The last owner of these partitions stopped uncleanly.

    ``suspects`` were likely running then, and ``more`` are known only by number.
    """

    partitions: Sequence[TopicPartition]
    suspects: Sequence[About]
    more: int


@dataclass(frozen=True, slots=True)
class SuspectsStarting:
    """Records start that were running when the last owner stopped."""

    suspects: Sequence[About]


@dataclass(frozen=True, slots=True)
class ProgressRegained:
    """Lost partitions came back without another member's commit, so their progress holds."""

    partitions: Sequence[TopicPartition]
