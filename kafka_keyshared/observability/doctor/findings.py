"""Doctor results: checks with status, findings, and documentation links.

Every kind of finding has a section of its name in ``docs/reference/doctor.md``, under the section
of its check.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

PAGE = "reference/doctor.md"
"""The page that explains the findings, relative to the folder of the documents."""


class CheckStatus(enum.StrEnum):
    """The result of a check. ``skipped``: nothing is known, because the check could not run."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


class FindingKind(enum.StrEnum):
    """Kinds of findings. The value is the heading of its section in the reference."""

    HANDLER_IMPORT = "handler-import"
    HANDLER_UNUSABLE = "handler-unusable"

    SETTING_REFUSED = "setting-refused"
    SETTING_DANGEROUS = "setting-dangerous"
    NO_SUCH_PORT = "no-such-port"

    HOST_UNKNOWN = "host-unknown"
    NO_LISTENER = "no-listener"
    PLAIN_LISTENER = "plain-listener"
    TLS_LISTENER = "tls-listener"
    OTHER_PROTOCOL = "other-protocol"
    TLS_REFUSED = "tls-refused"
    CREDENTIALS_REFUSED = "credentials-refused"
    CONNECTION_CLOSED = "connection-closed"
    NOT_A_BROKER = "not-a-broker"
    NO_ANSWER = "no-answer"
    MISLEADING_ADDRESS = "misleading-address"

    TOPIC_MISSING = "topic-missing"
    TOPIC_READ_DENIED = "topic-read-denied"
    PATTERN_INVALID = "pattern-invalid"
    PATTERN_MATCHES_NOTHING = "pattern-matches-nothing"
    PATTERN_MATCHES_INTERNAL = "pattern-matches-internal"

    KEY_UNREAD = "key-unread"
    KEY_FORMAT_UNKNOWN = "key-format-unknown"
    KEY_UNDECODABLE = "key-undecodable"
    KEY_MISSING = "key-missing"

    GROUP_UNKNOWN = "group-unknown"
    GROUP_DENIED = "group-denied"
    GROUP_REBALANCING = "group-rebalancing"
    OTHER_GROUP_PROTOCOL = "other-group-protocol"
    OTHER_ASSIGNOR = "other-assignor"
    MEMBER_WITHOUT_PARTITIONS = "member-without-partitions"

    POSITIONS_UNKNOWN = "positions-unknown"
    PARTITION_UNKNOWN = "partition-unknown"
    STARTS_AT_END = "starts-at-end"

    DELETED_UNREAD = "deleted-unread"
    ENDED_UNCLEANLY = "ended-uncleanly"
    POSITION_BEYOND_END = "position-beyond-end"

    LAG_NOT_MOVING = "lag-not-moving"
    OFFSETS_HELD = "offsets-held"
    POSITION_HELD = "position-held"
    TRANSACTION_OPEN = "transaction-open"
    RECORD_UNKNOWN = "record-unknown"

    DLQ_MISSING = "dlq-missing"
    DLQ_CONSUMED = "dlq-consumed"
    DLQ_WRITE_DENIED = "dlq-write-denied"
    DLQ_TOO_SMALL = "dlq-too-small"
    DLQ_UNCOMPRESSED = "dlq-uncompressed"
    DLQ_COMPACTED = "dlq-compacted"

    GROUP_VIEW_MISSING = "group-view-missing"
    GROUP_VIEW_DENIED = "group-view-denied"
    GROUP_VIEW_KEPT = "group-view-kept"

    METADATA_TOO_SMALL = "metadata-too-small"

    RECORD_FROM_FUTURE = "record-from-future"
    CLOCK_BEHIND = "clock-behind"
    CLOCK_AHEAD = "clock-ahead"

    INSTANCE_SILENT = "instance-silent"
    NOT_AN_INSTANCE = "not-an-instance"
    OTHER_STATUS = "other-status"
    OTHER_GROUP = "other-group"
    NOT_READY = "not-ready"
    KEY_BLOCKED = "key-blocked"
    RECORD_RUNNING_LONG = "record-running-long"

    METRIC_RENAMED = "metric-renamed"

    SPARK_UNFIT = "spark-unfit"
    SPARK_JAVA_UNFIT = "spark-java-unfit"
    SPARK_JARS_UNFIT = "spark-jars-unfit"
    SPARK_PYTHON_UNFIT = "spark-python-unfit"


class DoctorFinding(NamedTuple):
    """A problem found by a check."""

    kind: FindingKind
    status: CheckStatus
    why: str
    cure: str


class Check(NamedTuple):
    """A check: the facts seen, and for ``warn`` and ``fail`` the reason and the remedy.

    ``page`` explains it: a path below the folder of the documents, with an anchor. ``findings`` are
    the single problems behind ``why`` and ``cure``.
    """

    name: str
    status: CheckStatus
    seen: str
    why: str
    cure: str
    page: str
    findings: tuple[DoctorFinding, ...] = ()


def page_of(section: str) -> str:
    """Return the page and anchor of a check's or a finding's section."""
    return f"{PAGE}#{section}"


def skipped(name: str, seen: str) -> Check:
    """Return a check that could not run, with the reason."""
    return Check(name, CheckStatus.SKIPPED, seen, "", "", page_of(name))


def conclude(name: str, seen: str, findings: Iterable[DoctorFinding] = ()) -> Check:
    """Return the check with the worst status of its findings, and all their reasons."""
    found = list(findings)
    if not found:
        return Check(name, CheckStatus.OK, seen, "", "", page_of(name))
    failures = [each for each in found if each.status is CheckStatus.FAIL]
    worst = (failures or found)[0]
    why = "; ".join(dict.fromkeys(each.why for each in found))
    cure = "; ".join(dict.fromkeys(each.cure for each in found))
    return Check(name, worst.status, seen, why, cure, page_of(worst.kind), tuple(found))


def is_healthy(checks: Iterable[Check]) -> bool:
    """Return whether no check failed."""
    return all(check.status is not CheckStatus.FAIL for check in checks)
