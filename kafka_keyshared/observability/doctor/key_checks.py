"""Checks on the results of a key function for sampled records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from kafka_keyshared.config.keys.sampled import TopicKeys
from kafka_keyshared.model import counted
from kafka_keyshared.observability.doctor.findings import (
    Check,
    CheckStatus,
    DoctorFinding,
    FindingKind,
    conclude,
)

_RECORD = "set key='record' where the record's own key will do, or name what every record has"


def keys(setting: str, seen: Mapping[str, TopicKeys]) -> Check:
    """Check the keys of each topic. ``setting`` is the key's setting."""
    findings: list[DoctorFinding] = []
    told: list[str] = []
    for topic, each in sorted(seen.items()):
        read = each.keyed + each.keyless
        told.append(f"{topic}: {each.keyed:,} of {counted(read + each.without, 'sampled record')}")
        findings += _judged(topic, each, setting)
    return conclude("keys", f"with a key by key={setting!r}: {', '.join(told)}", findings)


def _judged(topic: str, each: TopicKeys, setting: str) -> Iterator[DoctorFinding]:
    total = each.keyed + each.keyless + each.without
    worst = CheckStatus.WARN if each.keyed + each.keyless else CheckStatus.FAIL
    for kind, reasons, status, follows, cure in (
        (
            FindingKind.KEY_UNREAD,
            each.unread,
            CheckStatus.FAIL,
            "a run would hold their partitions",
            "bring back what reads the keys, such as the schema registry",
        ),
        (
            FindingKind.KEY_FORMAT_UNKNOWN,
            each.unknown,
            worst,
            "a run would hold their partitions",
            "let key= and key_schema= name the format of the records, or register the schema",
        ),
        (
            FindingKind.KEY_UNDECODABLE,
            each.broken,
            worst,
            "a run would apply undecodable= to them",
            "see whether the setting fits the topic",
        ),
    ):
        if reasons:
            why = f"{_some(topic, reasons, total)} and {follows}: {reasons.most_common(1)[0][0]}"
            yield DoctorFinding(kind, status, why, cure)
    if each.keyless:
        count = f"{each.keyless:,} of {counted(total, 'sampled record')}"
        why = (
            f"{topic}: {count} have no key by key={setting!r}, and run in no order beside others "
            "with null_keys='any'"
        )
        yield DoctorFinding(FindingKind.KEY_MISSING, CheckStatus.WARN, why, _RECORD)


def _some(topic: str, reasons: Counter[str], total: int) -> str:
    many = f"{sum(reasons.values()):,} of {counted(total, 'sampled record')}"
    return f"{topic}: the keys of {many} cannot be read,"
