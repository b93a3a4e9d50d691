"""Former names of metrics and label values, each with its successor.

A rule or a dashboard that uses a former name selects no series, so its alert never fires. The check
``rules`` of ``keyshared doctor`` finds these names in a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

FORMER_METRICS: Mapping[str, str] = {
    "keyshared_active_hashes": "keyshared_active_keys",
    "keyshared_buffered_bytes": "keyshared_unsettled_bytes",
    "keyshared_buffered_records": "keyshared_unsettled_records",
    "keyshared_detached_total": "keyshared_records_detached_total",
    "keyshared_diagnosis_cause": "keyshared_diagnosis",
    "keyshared_dlq_records_total": "keyshared_dlq_writes_total",
    "keyshared_draining_hashes": "keyshared_draining_slots",
    "keyshared_draining_hashes_cleared_total": "keyshared_drained_slots_total",
    "keyshared_group_beats_total": "keyshared_instance_reports_total",
    "keyshared_hottest_hash_queued_records": "keyshared_hottest_key_records",
    "keyshared_late_settlements_total": "keyshared_late_acks_total",
    "keyshared_partition_completed_offset": "keyshared_partition_settled_offset_max",
    "keyshared_partition_incomplete_offsets": "keyshared_partition_unsettled_records",
    "keyshared_partition_oldest_incomplete_seconds": "keyshared_partition_oldest_unsettled_seconds",
    "keyshared_rebalance_drain_seconds": "keyshared_revoke_duration_seconds",
    "keyshared_ring_ownership_ratio": "keyshared_worker_slots_ratio",
    "keyshared_stale_completions_total": "keyshared_stale_results_total",
    "keyshared_stuck_records_total": "keyshared_records_stuck_total",
    "keyshared_timed_out_attempts_total": 'keyshared_attempts_total{result="timed_out"}',
    "keyshared_unread_partitions": "keyshared_partitions_key_unreadable",
}
"""Former names of metrics."""

FORMER_LABELS: Mapping[tuple[str, str], str] = {
    ("cause", "beats-failing"): 'cause="report-failing"',
    ("outcome", "acknowledged"): 'result="acknowledged"',
    ("outcome", "failed"): 'keyshared_attempts_total{result="failed"}',
    ("outcome", "undecodable"): "keyshared_undecodable_records_total",
}
"""Former values of labels that a query may select, by label and value."""

_METRIC = re.compile(r"\b(keyshared_\w+?)(_bucket|_sum|_count|_created)?\b")
_LABEL = re.compile(r'\b(outcome|cause)\s*(?:=~?|!=|!~)\s*\\?["\']([^"\'\\]*)')
_DLQ = "keyshared_dlq_"
"""The start of the one metric whose label ``outcome`` is called ``result`` now."""


class FormerName(NamedTuple):
    """A former name in a text, the number of its line, and the successor."""

    line: int
    name: str
    successor: str


def former_names(text: str) -> Iterator[FormerName]:
    """Yield the former names in the text of a rule file or a dashboard."""
    for number, line in enumerate(text.splitlines(), 1):
        for name, ending in _METRIC.findall(line):
            if (successor := FORMER_METRICS.get(name)) is not None:
                yield FormerName(number, name + ending, successor + ending)
        for label, values in _LABEL.findall(line):
            for value in values.split("|"):
                successor = FORMER_LABELS.get((label, value))
                if successor is not None:
                    if label == "outcome" and _DLQ in line:  # all its outcomes are results now
                        successor = f'result="{value}"'
                    yield FormerName(number, f'{label}="{value}"', successor)
