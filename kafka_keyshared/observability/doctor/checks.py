"""Cluster checks of ``keyshared doctor``: pure functions over small facts.

Nothing here queries a cluster: :mod:`.survey` gathers the facts and these functions judge them. A
check that fails or warns gives the reason and the remedy.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kafka_keyshared.client.patterns import (
    INTERNAL,
    BadPatternError,
    is_pattern,
    matching,
    visible,
)
from kafka_keyshared.config import starts_at_beginning
from kafka_keyshared.core.offsets.commit_metadata import LogPosition, decode
from kafka_keyshared.model import TopicPartition, counted, some
from kafka_keyshared.observability.doctor.findings import (
    Check,
    CheckStatus,
    DoctorFinding,
    FindingKind,
    conclude,
)

METADATA_BYTES = 4_096
"""Maximum size of a settled set in the commit metadata: the broker's default limit."""

CLOCK_SECONDS = 5.0
"""Clock difference in seconds from which a check warns."""


class TopicFacts(NamedTuple):
    """A topic. Facts that the cluster does not return are None. ``may``: the allowed operations.

    ``max_message_bytes`` is measured after compression, by the topic's ``compression``:
    ``producer`` keeps what each producer chose. ``broker_time``: the broker stamps the records
    (``message.timestamp.type=LogAppendTime``).
    """

    name: str
    partitions: int
    max_message_bytes: int | None = None
    cleanup: str | None = None
    may: frozenset[str] | None = None
    broker_time: bool = False
    compression: str | None = None


class PartitionFacts(NamedTuple):
    """A partition's log, from ``first`` to before ``end``, and the group's committed position.

    ``metadata`` was committed with the position, None where it is no text. ``unknown`` is why the
    cluster did not return all of it; the numbers then mean nothing. ``topic_id`` is None where no
    broker returns the id of the topic.
    """

    topic: str
    partition: int
    first: int
    end: int
    committed: int | None
    unknown: str = ""
    metadata: str | None = None
    topic_id: str | None = None


class Stamp(NamedTuple):
    """A broker's timestamp between two readings of this machine's clock, in ms since 1970."""

    after: int
    stamped: int
    before: int


# --- topics, positions ---


def topics(wanted: Sequence[str], there: Mapping[str, TopicFacts]) -> Check:
    """Check that every topic exists, and that every pattern matches a topic."""
    findings: list[DoctorFinding] = []
    seen: list[str] = []
    for name in wanted:
        if is_pattern(name):
            found = _pattern(name, there, findings)
            seen.append(
                f"{name}: {counted(len(found), 'topic')} ({some(found)})" if found else f"{name}: 0"
            )
        elif name in there:
            seen.append(f"{name}: {counted(there[name].partitions, 'partition')}")
            if (may := there[name].may) is not None and "READ" not in may:
                why = f"this user may not read {name!r}"
                findings.append(
                    DoctorFinding(
                        FindingKind.TOPIC_READ_DENIED,
                        CheckStatus.FAIL,
                        why,
                        f"allow READ on topic {name}",
                    )
                )
        else:
            seen.append(f"{name}: not there")
            why = f"topic {name!r} does not exist, or this user may not see it"
            cure = f"create it or mend the name; there are: {some(sorted(visible(there)))}"
            findings.append(DoctorFinding(FindingKind.TOPIC_MISSING, CheckStatus.FAIL, why, cure))
    return conclude("topics", ", ".join(seen), findings)


def _pattern(
    pattern: str, there: Mapping[str, TopicFacts], findings: list[DoctorFinding]
) -> list[str]:
    try:
        found = matching(pattern, there)
    except BadPatternError as error:
        findings.append(
            DoctorFinding(
                FindingKind.PATTERN_INVALID, CheckStatus.FAIL, str(error), "fix the pattern"
            )
        )
        return []
    if not found:
        why = f"pattern {pattern!r} matches no topic: nothing would be read until one is made"
        cure = f"fix the pattern or create a topic; there are: {some(sorted(visible(there)))}"
        findings.append(
            DoctorFinding(FindingKind.PATTERN_MATCHES_NOTHING, CheckStatus.WARN, why, cure)
        )
    if internal := sorted(INTERNAL.intersection(found)):
        why = (
            f"pattern {pattern!r} matches internal topics of the cluster, "
            f"{some(internal)}: the client would read it like any other topic"
        )
        cure = "fix the pattern: '^[^_]' matches no name that starts with an underscore"
        findings.append(
            DoctorFinding(FindingKind.PATTERN_MATCHES_INTERNAL, CheckStatus.WARN, why, cure)
        )
    return found


def positions(
    partitions: Sequence[PartitionFacts],
    conf: Mapping[str, Any],
    owners: Container[TopicPartition] | None = None,
) -> Check:
    """Report the lag of each topic, and check where partitions without a position would start.

    ``owners`` are the partitions with an owner, None if unknown. The commit of any other partition
    should name no running record. If it does, its last owner ended without a clean stop.
    """
    from_start = starts_at_beginning(conf)
    seen: list[str] = []
    findings = _untold(partitions)
    if owners is not None:
        findings += _ended_uncleanly(partitions, owners)
    for topic in dict.fromkeys(each.topic for each in partitions):
        own = [each for each in partitions if each.topic == topic and not each.unknown]
        if not own:
            seen.append(f"{topic}: not known")
            continue
        new = [each for each in own if each.committed is None]
        lag = sum(max(0, each.end - each.committed) for each in own if each.committed is not None)
        text = f"lag {lag:,}" if len(new) < len(own) else "nothing committed"
        every = sum(each.topic == topic for each in partitions)
        if len(own) < every:
            text += f" in {len(own)} of {counted(every, 'partition')}"
        if new:
            start = "beginning" if from_start else "end"
            count = sum(each.end - each.first for each in new)
            many = f"{len(new)} of {counted(len(own), 'partition')}, {counted(count, 'record')},"
            text += f" ({many} start at the {start})"
            if count and not from_start:
                findings.append(_starts_at_end(topic, len(new), len(own), count))
        seen.append(f"{topic}: {text}")
    return conclude("positions", "; ".join(seen), findings)


def running_in(text: str | None, at: LogPosition) -> tuple[list[int], int]:
    """Return the records that a commit names as running, and the number of further ones."""
    every = [each.running for each in decode(text, at).notes.values()]
    offsets = {offset for running in every for offset in running.numbers}
    return sorted(offsets), sum(running.more for running in every)


def _ended_uncleanly(
    partitions: Sequence[PartitionFacts], owners: Container[TopicPartition]
) -> list[DoctorFinding]:
    """Name the records that ran when the last owner of now unowned partitions ended."""
    where: list[str] = []
    names: list[str] = []
    more = 0
    for each in partitions:
        at = TopicPartition(each.topic, each.partition)
        if each.committed is None or at in owners:
            continue
        offsets, others = running_in(each.metadata, LogPosition(at, each.committed, each.topic_id))
        if offsets:
            where.append(str(at))
            names += [f"{at}@{offset}" for offset in offsets]
            more += others
    if not names:
        return []
    shown = ", ".join(names[:NAMED_RUNNING])
    if (more := more + len(names[NAMED_RUNNING:])) > 0:
        shown += f" (+{more} more)"
    why = (
        f"{some(where)}: no member has it, and its last owner ended without a clean stop; records "
        f"that were likely running then: {shown}"
    )
    cure = (
        "see the log and the exit code of the last process (out of memory, kill -9, a crash in C "
        "code); the next owner runs these records last"
    )
    return [DoctorFinding(FindingKind.ENDED_UNCLEANLY, CheckStatus.WARN, why, cure)]


NAMED_RUNNING = 10
"""Maximum number of such records that are named."""


def _starts_at_end(topic: str, new: int, partitions: int, records: int) -> DoctorFinding:
    """Report existing records that a start at the end would never read."""
    why = (
        f"{topic}: {new} of {counted(partitions, 'partition')} have no committed position and "
        f"start at their end (auto.offset.reset=latest): {counted(records, 'record')} already in "
        "them would never be read"
    )
    cure = (
        "to read them, give --from-beginning, or commit positions for these partitions; if you "
        "want later records only, change nothing"
    )
    return DoctorFinding(FindingKind.STARTS_AT_END, CheckStatus.WARN, why, cure)


def _untold(partitions: Sequence[PartitionFacts]) -> list[DoctorFinding]:
    """Return findings for partitions without an answer while others have one."""
    by_reason: dict[str, list[str]] = {}
    for each in partitions:
        if each.unknown:
            by_reason.setdefault(each.unknown, []).append(f"{each.topic}-{each.partition}")
    return [
        DoctorFinding(
            FindingKind.PARTITION_UNKNOWN,
            CheckStatus.WARN,
            f"{some(names)}: not looked at, because the cluster does not tell: {reason}",
            "ask again; if it stays so, see that the leaders of these partitions are up",
        )
        for reason, names in by_reason.items()
    ]


def retention(partitions: Sequence[PartitionFacts]) -> Check:
    """Check that the records that the group has yet to read still exist."""
    findings = []
    known = [each for each in partitions if each.committed is not None and not each.unknown]
    for each in known:
        committed = each.committed or 0
        where = f"{each.topic}-{each.partition}"
        if committed < each.first:
            why = (
                f"{where}: from the committed position {committed:,} on, "
                f"{counted(each.first - committed, 'record')} were deleted before this group read "
                f"them; the log begins at {each.first:,}"
            )
            cure = (
                "they are lost to this group, which goes on at the beginning of the log; raise "
                "retention.ms or retention.bytes of the topic, or the number of workers"
            )
            findings.append(DoctorFinding(FindingKind.DELETED_UNREAD, CheckStatus.FAIL, why, cure))
        elif committed > each.end:
            why = (
                f"{where}: the committed position {committed:,} is beyond the end {each.end:,} of "
                "the log: the topic was made anew or has lost records"
            )
            cure = "reset the group's offsets for this topic"
            findings.append(
                DoctorFinding(FindingKind.POSITION_BEYOND_END, CheckStatus.FAIL, why, cure)
            )
    return conclude("retention", f"{counted(len(known), 'committed position')} looked at", findings)


# --- dead letters, commit metadata, clock ---


def dead_letters(
    pairs: Iterable[tuple[TopicFacts, str]],
    there: Mapping[str, TopicFacts],
    *,
    consumed: Iterable[str],
    create: bool,
    codec: str = "zstd",
) -> Check:
    """Check that each source's dead letters can be written to their topic.

    ``codec`` is the compression of dead letters.
    """
    findings: list[DoctorFinding] = []
    seen: dict[str, str] = {}
    read = set(consumed)
    for source, name in pairs:
        dlq = there.get(name)
        if name in read:
            why = f"{name!r} is consumed here too: its records would come back as dead letters"
            cure = "name another topic, or mend the pattern"
            findings.append(DoctorFinding(FindingKind.DLQ_CONSUMED, CheckStatus.FAIL, why, cure))
        if dlq is None:
            seen[name] = f"{name}: not there" + (", would be made at start" if create else "")
            if not create:
                why = f"dead-letter topic {name!r} does not exist"
                cure = "create it, or give --dlq-create"
                findings.append(DoctorFinding(FindingKind.DLQ_MISSING, CheckStatus.FAIL, why, cure))
            continue
        seen[name] = f"{name}: {counted(dlq.partitions, 'partition')}"
        findings += [*_can_take(dlq, source), *_compresses(dlq, source, codec)]
    return conclude("dlq", ", ".join(seen.values()), findings)


def _can_take(dlq: TopicFacts, source: TopicFacts) -> list[DoctorFinding]:
    findings = []
    if dlq.may is not None and "WRITE" not in dlq.may:
        why = f"this user may not write to {dlq.name!r}"
        cure = f"allow WRITE on topic {dlq.name}"
        findings.append(DoctorFinding(FindingKind.DLQ_WRITE_DENIED, CheckStatus.FAIL, why, cure))
    most, needed = dlq.max_message_bytes, source.max_message_bytes
    if most is not None and needed is not None and most < needed:
        why = (
            f"{dlq.name!r} takes records of {most:,} bytes at most, {source.name!r} has them up to "
            f"{needed:,}: a larger one could not be dead-lettered and its key would wait"
        )
        cure = f"set max.message.bytes of {dlq.name} to {needed} and 100,000 more for the headers"
        findings.append(DoctorFinding(FindingKind.DLQ_TOO_SMALL, CheckStatus.WARN, why, cure))
    if dlq.cleanup is not None and "compact" in dlq.cleanup:
        why = (
            f"{dlq.name!r} is compacted: a dead letter replaces the earlier one of its key, and "
            "one without a key is refused"
        )
        cure = f"set cleanup.policy=delete on {dlq.name}"
        findings.append(DoctorFinding(FindingKind.DLQ_COMPACTED, CheckStatus.WARN, why, cure))
    return findings


STRENGTH = ("none", "uncompressed", "snappy", "lz4", "gzip", "zstd")
"""Codecs in order of compression, the strongest last."""


def _compresses(dlq: TopicFacts, source: TopicFacts, codec: str) -> Iterator[DoctorFinding]:
    """Yield a dead-letter topic in which a record takes more bytes than in its source.

    A topic limits the size of its batches after compression. If producers choose the codec of the
    source, its records may be compressed with the strongest.
    """
    most, needed = dlq.max_message_bytes, source.max_message_bytes
    if most is None or needed is None or dlq.compression is None or source.compression is None:
        return
    written = codec if dlq.compression == "producer" else dlq.compression
    there = "zstd" if source.compression == "producer" else source.compression
    weaker = _strength(written) < _strength(there)
    if source.compression == "producer":
        weaker = written in ("none", "uncompressed")
    if not weaker or most > needed:
        return
    said = "compressed by their producers" if source.compression == "producer" else there
    why = (
        f"records of {source.name!r} may be {said}, their dead letters in {dlq.name!r} are "
        f"{'not compressed' if written in ('none', 'uncompressed') else written}: one that fits "
        f"{needed:,} bytes there may not fit {most:,} here, and its key would wait"
    )
    cure = (
        f"set compression.type=producer on {dlq.name} and leave compression.type out of the "
        f"settings, or set max.message.bytes of {dlq.name} to what such a record takes uncompressed"
    )
    yield DoctorFinding(FindingKind.DLQ_UNCOMPRESSED, CheckStatus.WARN, why, cure)


def _strength(codec: str) -> int:
    return STRENGTH.index(codec) if codec in STRENGTH else 0


def commit_metadata(limits: Mapping[str, int]) -> Check:
    """Check that every broker accepts the settled set in a commit's metadata."""
    seen = f"offset.metadata.max.bytes {', '.join(map(str, sorted(set(limits.values()))))}"
    small = [address for address, limit in limits.items() if limit < METADATA_BYTES]
    why = (
        f"{some(small)}: less settles ahead of a slow record there, and below 90 nothing of it is "
        "kept: it runs again after a restart, also a clean one"
    )
    cure = f"set offset.metadata.max.bytes={METADATA_BYTES} on the brokers"
    findings = (
        [DoctorFinding(FindingKind.METADATA_TOO_SMALL, CheckStatus.WARN, why, cure)]
        if small
        else []
    )
    return conclude("metadata", seen, findings)


def clock(newest: Mapping[str, int], stamps: Sequence[Stamp], now_ms: int) -> Check:
    """Check this machine's clock against the timestamps of brokers and producers.

    ``newest`` has the latest timestamp in each topic, in milliseconds since 1970. It cannot show a
    clock that is ahead: a topic of old records looks the same. ``stamps`` can show both, because a
    broker wrote each while the doctor ran.
    """
    seen, findings = [], []
    if newest:
        ahead = {topic: (at - now_ms) / 1000 for topic, at in newest.items()}
        most = max(ahead.values())
        seen.append(
            "the newest record is "
            + (f"{most:,.1f} s in the future" if most > 0 else f"{-most:,.0f} s old")
        )
        findings = [
            DoctorFinding(
                FindingKind.RECORD_FROM_FUTURE,
                CheckStatus.WARN,
                f"{topic}: a record was written {seconds:,.0f} s from now: this machine's clock "
                "is behind, or a producer's is ahead",
                "set both by NTP; times in dead letters and logs are wrong until then",
            )
            for topic, seconds in ahead.items()
            if seconds > CLOCK_SECONDS
        ]
    if stamps:
        told, clocks = _against_brokers(stamps)
        seen.append(told)
        findings += clocks
    else:
        seen.append("no broker wrote a time in this run, so a clock that is ahead would not show")
    return conclude("clock", "; ".join(seen), findings)


def _against_brokers(stamps: Sequence[Stamp]) -> tuple[str, list[DoctorFinding]]:
    """Return this clock's difference from the brokers', by the largest deviation."""
    # Seconds outside the interval in which it must have been written; 0 within it.
    off = max(
        (
            (each.stamped - min(max(each.stamped, each.after), each.before)) / 1000
            for each in stamps
        ),
        key=abs,
    )
    if abs(off) <= CLOCK_SECONDS:
        return "the brokers' clocks agree with this one", []
    cure = "set this machine's clock and the brokers' by NTP; times in dead letters, metrics and "
    cure += "logs are wrong until then"
    kind, how = (
        (FindingKind.CLOCK_BEHIND, "behind") if off > 0 else (FindingKind.CLOCK_AHEAD, "ahead of")
    )
    why = f"this machine's clock is {abs(off):,.0f} s {how} that of a broker"
    return f"a broker's clock is {abs(off):,.0f} s from this one", [
        DoctorFinding(kind, CheckStatus.WARN, why, cure)
    ]
