"""Checks of ``keyshared doctor`` on a group's progress, from two observations.

The duration of a standstill cannot be queried. A cluster shows clients no time of a commit. The age
of the record at the position is only that of the backlog. So a position is stuck only if the doctor
saw it unmoved for long enough, or if an instance reports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from kafka_keyshared.core.offsets.commit_metadata import Runs
from kafka_keyshared.model import TopicPartition, counted, in_words, named_key, some
from kafka_keyshared.observability.doctor.findings import (
    Check,
    CheckStatus,
    DoctorFinding,
    FindingKind,
    conclude,
)

NAMED = 3
"""Maximum partitions of a kind with a sentence of their own, and records named in it."""


class Standing(NamedTuple):
    """A partition with lag, and the changes seen during the observation.

    ``held`` are the runs of offsets, from the position on, that stayed unsettled although something
    beyond them is settled. ``settled_end`` is the end of the settled offsets beyond the position,
    None without any. ``goes_on``: something has settled beyond the position. ``seconds`` is the
    duration of the observation. ``running`` are the records that the last commit names as running.
    """

    partition: TopicPartition
    position: int
    end: int
    moved: bool
    goes_on: bool = False
    held: Runs = ()
    settled_end: int | None = None
    seconds: float = 0.0
    running: Sequence[int] = ()

    @property
    def held_count(self) -> int:
        """Number of held offsets."""
        return sum(end - start for start, end in self.held)

    def held_offsets(self, most: int) -> list[int]:
        """Return the first few held offsets."""
        return [offset for start, end in self.held for offset in range(start, end)[:most]][:most]


class RecordFacts(NamedTuple):
    """A record of the log. ``at_ms`` is its timestamp in milliseconds since 1970, if it has one."""

    offset: int
    key: object
    at_ms: int | None


class Nothing(NamedTuple):
    """There is no record from an offset on: a reader gets the end of the log, at ``end``."""

    end: int


class UnreadPosition(NamedTuple):
    """The record at an offset is unknown, for this reason."""

    reason: str


Read: TypeAlias = RecordFacts | Nothing | UnreadPosition
Records: TypeAlias = Mapping[tuple[TopicPartition, int], Read]


class InstanceAnswer(NamedTuple):
    """An instance's facts about the record at an unmoved position.

    ``seconds`` is the minimum time for which it has been the oldest unsettled record. ``what`` is
    its state in words, ``cure`` the remedy. A ``blocked`` record stays. ``by_hand``: an operator
    paused it.
    """

    seconds: float
    what: str
    cure: str
    blocked: bool = False
    by_hand: bool = False


class Watched(NamedTuple):
    """All observations: their duration, and the records at the unmoved positions.

    ``records`` has the result for each offset read, ``owners`` the member of each partition.
    ``told`` are the facts of the instance at ``url``, which is None where none was named.
    """

    seconds: float
    standing: Sequence[Standing]
    records: Records
    owners: Mapping[TopicPartition, str]
    now_ms: int
    url: str | None = None
    told: Mapping[TopicPartition, InstanceAnswer] = MappingProxyType({})


def progress(watched: Watched, held_after: float) -> Check:
    """Check that every partition with lag makes progress.

    A position counts as stuck once it is known to have stood for ``held_after`` seconds.
    """
    still = [each for each in watched.standing if not each.moved]
    done = [each for each in still if _is_done(each, watched)]
    stuck = [each for each in still if each not in done]
    seen = f"{counted(len(watched.standing), 'partition')} with lag"
    if watched.standing:
        seen += (
            f", all moved within {watched.seconds:.1f} s"
            if not still
            else f", {len(stuck)} of them stood still for {watched.seconds:.1f} s"
        )
    if done:
        names = some(f"{each.partition}@{each.position}" for each in done)
        seen += f"; from {names} on there is no record, only what transactions or compaction left"
    by_kind: dict[tuple[FindingKind, CheckStatus], list[Standing]] = {}
    for each in stuck:
        by_kind.setdefault(_kind(each, watched, held_after), []).append(each)
    findings = []
    for (kind, status), every in by_kind.items():
        for each in every[:NAMED]:
            why, cure = _why(kind, status, each, watched), _cure(kind, each, watched, held_after)
            findings.append(DoctorFinding(kind, status, why, cure))
    for (kind, status), every in by_kind.items():
        if more := every[NAMED:]:
            why = f"so do {len(more)} more: {some(each.partition for each in more)}"
            findings.append(
                DoctorFinding(kind, status, why, _cure(kind, more[0], watched, held_after))
            )
    return conclude("progress", seen, findings)


def _is_done(each: Standing, watched: Watched) -> bool:
    """Return whether no record is left, although offsets are left."""
    found = _first(each, watched)
    return isinstance(found, Nothing) and found.end >= each.end and each.settled_end is None


def _first(each: Standing, watched: Watched) -> Read:
    return watched.records.get(
        (each.partition, each.position), UnreadPosition("it was not looked at")
    )


def _kind(each: Standing, watched: Watched, held_after: float) -> tuple[FindingKind, CheckStatus]:
    told, first = watched.told.get(each.partition), _first(each, watched)
    stuck = is_stuck(each, told, held_after)
    if each.settled_end is not None:
        return (
            (FindingKind.POSITION_HELD, CheckStatus.FAIL)
            if stuck
            else (FindingKind.OFFSETS_HELD, CheckStatus.WARN)
        )
    if isinstance(first, Nothing):
        return FindingKind.TRANSACTION_OPEN, CheckStatus.WARN
    if told is None and isinstance(first, UnreadPosition):
        return FindingKind.RECORD_UNKNOWN, CheckStatus.WARN
    return FindingKind.LAG_NOT_MOVING, CheckStatus.FAIL if stuck else CheckStatus.WARN


def is_stuck(each: Standing, told: InstanceAnswer | None, held_after: float) -> bool:
    """Return whether a position is known to have stood for so long, or to stay."""
    if told is not None and told.by_hand:
        return False
    if told is not None and (told.blocked or told.seconds >= held_after):
        return True
    return not each.moved and each.seconds >= held_after


def _why(kind: FindingKind, status: CheckStatus, each: Standing, watched: Watched) -> str:
    owner, told = watched.owners.get(each.partition), watched.told.get(each.partition)
    why = f"{each.partition}" + (f", which {owner} has," if owner else "")
    why += f" has stood at {each.position} for {each.seconds:.0f} s: "
    first = _first(each, watched)
    if kind is FindingKind.TRANSACTION_OPEN and isinstance(first, Nothing):
        return (
            why + f"the records from {first.end} on are of an open transaction, and no consumer "
            "receives them"
        )
    if kind is FindingKind.RECORD_UNKNOWN and isinstance(first, UnreadPosition):
        return (
            why + f"the record there could not be read ({first.reason}), so it is unknown whether "
            "the group has work left"
        )
    why += f"{_record(first, each.position, watched.now_ms)} is not settled, "
    if each.settled_end is None:
        why += f"and nothing behind it up to {each.end}"
    else:
        others = each.held_count - 1
        why += f"while later records are, up to {each.settled_end}"
        why += (
            f", but for {counted(others, 'more record')}{_named(each, watched)}" if others else ""
        )
    if told is not None:
        return f"{why}; its instance says: {told.what}"
    if each.running:
        running = some((f"{each.partition}@{offset}" for offset in each.running), NAMED)
        why += f"; running at the last commit: {running}"
    if status is CheckStatus.WARN:
        why += f"; whether it is stuck or only slow, {each.seconds:.0f} s do not tell"
    return why


def _record(found: Read, position: int, now_ms: int) -> str:
    match found:
        case RecordFacts():
            age = age_of(found, now_ms)
            written = "" if age is None else f", written {in_words(age)} ago"
            facts = f"({named_key(found.key)}{written})"
            if found.offset == position:
                return f"the record there {facts}"
            return f"the next record, {found.offset} {facts},"
        case Nothing():
            return "the record that was there, which is no longer in the log,"
        case UnreadPosition():
            return f"the record there (it could not be read: {found.reason})"


def _named(each: Standing, watched: Watched) -> str:
    """Return the first few held records after the one at the position."""
    names = []
    for offset in each.held_offsets(NAMED + 1)[1:]:
        record = watched.records.get((each.partition, offset))
        key = ""
        if isinstance(record, RecordFacts) and record.offset == offset:
            key = f" {named_key(record.key)}"
        names.append(f"{offset}{key}")
    return f" ({', '.join(names)}{', …' if each.held_count - 1 > len(names) else ''})"


_ASK = (
    "ask the member itself: give its address to the doctor, --status-url http://HOST:PORT (its "
    "--http-port), and see its log"
)
_CAUSES = {
    FindingKind.LAG_NOT_MOVING: "its handler hangs, or the member makes no progress at all",
    FindingKind.POSITION_HELD: (
        "its key is blocked, or its handler hangs: fix the handler and restart, or configure a "
        "dead-letter topic (--dlq auto --dlq-create)"
    ),
    FindingKind.OFFSETS_HELD: "it runs, waits for a retry or is blocked",
}
_CURES = {
    FindingKind.TRANSACTION_OPEN: (
        "check its producer; one that is gone leaves it open until its time-out "
        "(transaction.timeout.ms): kafka-transactions.sh find-hanging"
    ),
    FindingKind.RECORD_UNKNOWN: (
        "ask again; if it stays so, see whether the partition's leader is overwhelmed or away"
    ),
}


def _cure(kind: FindingKind, each: Standing, watched: Watched, held_after: float) -> str:
    if kind in _CURES:
        return _CURES[kind]
    told = watched.told.get(each.partition)
    if told is not None:
        return told.cure
    ask = _ASK
    if watched.url is not None:
        owner = watched.owners.get(each.partition, "the member that has it")
        ask = f"{watched.url} tells nothing of this partition: ask {owner} there, and see its log"
    if kind is FindingKind.POSITION_HELD:
        return f"{_CAUSES[kind]}; which of the two it is: {ask}"
    if is_stuck(each, None, held_after):
        return f"{_CAUSES[kind]}; {ask}"
    cause = "its handler takes longer than that or hangs"
    cause = _CAUSES[kind] if kind is FindingKind.OFFSETS_HELD else cause
    return f"{cause}: look for longer, --watch {held_after:g}, or {ask}"


def age_of(record: RecordFacts, now_ms: int) -> float | None:
    """Return the age of a record in seconds by its own timestamp; None without one."""
    return None if record.at_ms is None else max(0.0, (now_ms - record.at_ms) / 1000)
