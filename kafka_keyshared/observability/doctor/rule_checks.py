"""Check of ``keyshared doctor`` on a dashboard or Prometheus rules."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_keyshared.observability.doctor.findings import (
    Check,
    CheckStatus,
    DoctorFinding,
    FindingKind,
    conclude,
)
from kafka_keyshared.observability.former_metrics import former_names


def rules(name: str, text: str) -> Check:
    """Check that the text of a file has no former name of a metric or of a label value."""
    return conclude("rules", name, _former(name, text))


def _former(name: str, text: str) -> Iterator[DoctorFinding]:
    for each in former_names(text):
        yield DoctorFinding(
            FindingKind.METRIC_RENAMED,
            CheckStatus.FAIL,
            f"{name}:{each.line}: {each.name} is no longer served, so this query finds no series",
            f"replace {each.name} with {each.successor}",
        )
