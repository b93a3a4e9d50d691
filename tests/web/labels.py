"""What the labels of metrics may say, as far as it is known: the core's own enumerations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.telemetry.meters import (
    KNOWN_ERRORS,
    AttemptResult,
    LetterAnswer,
    Processed,
    Rebalance,
)
from kafka_keyshared.observability.diagnosis.causes import CAUSES
from kafka_keyshared.observability.web.metric_family import SHARD_STATES
from kafka_keyshared.status import ShownState

ENUMERATED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("keyshared_records_processed_total", "outcome"): tuple(Processed),
    ("keyshared_record_retries_total", "error"): KNOWN_ERRORS,
    ("keyshared_attempts_total", "result"): tuple(AttemptResult),
    ("keyshared_dlq_writes_total", "result"): tuple(LetterAnswer),
    ("keyshared_closed_lanes", "state"): tuple(each.value for each in LaneState),
    ("keyshared_commits_total", "result"): tuple(CommitResult),
    ("keyshared_workers", "state"): get_args(ShownState),
    ("keyshared_shards", "state"): SHARD_STATES,
    ("keyshared_rebalances_total", "event"): tuple(Rebalance),
    ("keyshared_diagnosis", "cause"): tuple(each.code for each in CAUSES),
    ("keyshared_instance_reports_total", "result"): ("written", "failed"),
}
"""By metric and label."""

OF_THE_WORLD = {"topic", "partition", "worker", "pool", "broker"}
"""Labels with names that users and operators have chosen."""
