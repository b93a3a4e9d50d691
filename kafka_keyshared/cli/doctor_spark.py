"""The doctor's check of the local requirements of ``keyshared spark``."""

from __future__ import annotations

from kafka_keyshared.observability.doctor.findings import (
    Check,
    CheckStatus,
    DoctorFinding,
    FindingKind,
    conclude,
    skipped,
)


def check_spark(*, asked: bool) -> Check:
    """Check that Java, Spark, Scala, the jars and Python fit together; start nothing."""
    if not asked:
        return skipped("spark", "not asked for (--spark)")
    from kafka_keyshared.spark.checks import misfits, seen

    found = [
        DoctorFinding(FindingKind(each.part.value), CheckStatus.FAIL, each.why, each.cure)
        for each in misfits()
    ]
    return conclude("spark", "it would not start" if found else seen(), found)
