"""Checks of ``keyshared doctor`` on the topic of the group view.

A run starts without the topic and consumes all the same, so these checks only warn.
"""

from __future__ import annotations

from kafka_keyshared.model import counted
from kafka_keyshared.observability.doctor.checks import TopicFacts
from kafka_keyshared.observability.doctor.findings import (
    Check,
    CheckStatus,
    DoctorFinding,
    FindingKind,
    conclude,
)

NEEDED = {
    "WRITE": "this user may not write to {!r}: the others would not hear this instance",
    "READ": "this user may not read {!r}: this instance could not show the others",
}
"""The required rights, and the effect of each if missing."""


def group_view(name: str, there: TopicFacts | None, *, create: bool, unmade: str | None) -> Check:
    """Check the topic of the group view. ``unmade`` is why this user could not create it."""
    if there is None:
        return _missing(name, create=create, unmade=unmade)
    findings = [
        DoctorFinding(
            FindingKind.GROUP_VIEW_DENIED,
            CheckStatus.WARN,
            why.format(name),
            f"allow {right} on topic {name}",
        )
        for right, why in NEEDED.items()
        if there.may is not None and right not in there.may
    ]
    if there.cleanup is not None and "compact" not in there.cleanup:
        why = (
            f"{name!r} is not compacted (cleanup.policy={there.cleanup}): it keeps every report of "
            "every instance until its retention is over, although only the last ones are read"
        )
        cure = f"set cleanup.policy=compact,delete on {name}"
        findings.append(DoctorFinding(FindingKind.GROUP_VIEW_KEPT, CheckStatus.WARN, why, cure))
    return conclude("group-view", f"{name}: {counted(there.partitions, 'partition')}", findings)


def _missing(name: str, *, create: bool, unmade: str | None) -> Check:
    seen = f"{name}: not there"
    if create and unmade is None:
        return conclude("group-view", f"{seen}, would be made at start")
    why = f"topic {name!r} does not exist, or this user may not see it"
    cure = "create it, with cleanup.policy=compact,delete, or set group_view_create"
    if create:
        why += f", and it could not be made: {(unmade or '').rstrip('.')}"
        cure = f"create it, with cleanup.policy=compact,delete, or allow CREATE on topic {name}"
    cure += f"; and allow WRITE and READ on topic {name}"
    return conclude(
        "group-view",
        seen,
        [DoctorFinding(FindingKind.GROUP_VIEW_MISSING, CheckStatus.WARN, why, cure)],
    )
