"""What ``keyshared doctor`` makes of positions that it saw twice: whether the group gets on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafka_keyshared.cli.findings import Check, Finding, Kind, Status, conclude
from kafka_keyshared.core.metadata import Runs
from kafka_keyshared.model import TopicPartition, counted, named_key, some

NAMED = 3
"""So many partitions of a kind get a sentence of their own, and so many records in it a name."""


class Standing(NamedTuple):
    """A partition with something left to do, and what became of it while it was watched.

    ``held`` are the runs of offsets, from the position on, that were unsettled all the while
    although something beyond them is settled; ``settled_end`` is the end of what is settled beyond
    the position, None when nothing is. ``goes_on``: something has settled beyond the position.
    """

    place: TopicPartition
    position: int
    end: int
    moved: bool
    goes_on: bool = False
    held: Runs = ()
    settled_end: int | None = None

    @property
    def held_count(self) -> int:
        """How many offsets are held."""
        return sum(end - start for start, end in self.held)

    def held_offsets(self, most: int) -> list[int]:
        """Return the first few of the offsets that are held."""
        return [offset for start, end in self.held for offset in range(start, end)[:most]][:most]


class RecordFacts(NamedTuple):
    """A record of the log; ``at_ms`` is its time in milliseconds since 1970, where it has one."""

    offset: int
    key: object
    at_ms: int | None


class Watched(NamedTuple):
    """All that was seen: for how long, and the records at the positions that stood still.

    ``records`` has the first one at or after each offset that was asked for, and lacks those where
    nothing can be read. ``owners`` has the member of each partition.
    """

    seconds: float
    standing: Sequence[Standing]
    records: Mapping[tuple[TopicPartition, int], RecordFacts]
    owners: Mapping[TopicPartition, str]
    now_ms: int


def progress(watched: Watched, held_after: float) -> Check:
    """Judge whether every partition with lag gets on.

    A position counts as held once the record at it is older than ``held_after`` seconds.
    """
    still = [each for each in watched.standing if not each.moved]
    empty = [each for each in still if (each.place, each.position) not in watched.records]
    stuck = [each for each in still if each not in empty]
    seen = f"{counted(len(watched.standing), 'partition')} with lag"
    if watched.standing:
        seen += (
            f", all moved within {watched.seconds:.1f} s"
            if not still
            else f", {len(stuck)} of them stood still for {watched.seconds:.1f} s"
        )
    if empty:
        names = some(f"{each.place}@{each.position}" for each in empty)
        seen += f"; from {names} on no record came: markers of transactions, an open one, or "
        seen += "a slow broker"
    by_kind: dict[tuple[Kind, Status], list[Standing]] = {}
    for each in stuck:
        by_kind.setdefault(_kind(each, watched, held_after), []).append(each)
    findings = [
        _finding(kind, status, each, watched)
        for (kind, status), every in by_kind.items()
        for each in every[:NAMED]
    ]
    for (kind, status), every in by_kind.items():
        if more := every[NAMED:]:
            why = f"so do {len(more)} more: {some(each.place for each in more)}"
            findings.append(Finding(kind, status, why, _CURES[kind]))
    return conclude("progress", seen, findings)


def _kind(each: Standing, watched: Watched, held_after: float) -> tuple[Kind, Status]:
    age = _age(watched.records[each.place, each.position], watched.now_ms)
    old = age is not None and age >= held_after
    if each.settled_end is None:
        return Kind.LAG_NOT_MOVING, Status.FAIL if old else Status.WARN
    return (Kind.POSITION_HELD, Status.FAIL) if old else (Kind.OFFSETS_HELD, Status.WARN)


def _finding(kind: Kind, status: Status, each: Standing, watched: Watched) -> Finding:
    first = watched.records[each.place, each.position]
    age = _age(first, watched.now_ms)
    written = "" if age is None else f", written {in_words(age)} ago"
    owner = watched.owners.get(each.place)
    why = f"{each.place}" + (f", which {owner} has," if owner else "")
    why += (
        f" has stood at {each.position} for {watched.seconds:.0f} s: the record there "
        f"({named_key(first.key)}{written}) is not settled, "
    )
    if each.settled_end is None:
        why += f"and nothing behind it up to {each.end}"
    else:
        others = each.held_count - 1
        why += f"while what follows is, up to {each.settled_end}"
        why += (
            f", but for {counted(others, 'more record')}{_named(each, watched)}" if others else ""
        )
    return Finding(kind, status, why, _CURES[kind])


def _named(each: Standing, watched: Watched) -> str:
    """Return the first few records that are held behind the one at the position."""
    names = []
    for offset in each.held_offsets(NAMED + 1)[1:]:
        record = watched.records.get((each.place, offset))
        key = f" {named_key(record.key)}" if record is not None and record.offset == offset else ""
        names.append(f"{offset}{key}")
    return f" ({', '.join(names)}{', …' if each.held_count - 1 > len(names) else ''})"


_ASK = (
    "ask the member itself: give its address to the doctor, --status-url http://HOST:PORT (its "
    "--http-port), and see its log"
)
_CURES = {
    Kind.LAG_NOT_MOVING: (
        f"its handler hangs or is slow, or the member does not get on at all; {_ASK}. Where a "
        "handler takes that long, look for longer with --watch 30"
    ),
    Kind.OFFSETS_HELD: (
        f"they run, wait for a retry or are blocked; look again in a minute, or {_ASK}"
    ),
    Kind.POSITION_HELD: (
        "its key is blocked, or its handler hangs: mend the handler and restart, or give a "
        f"dead-letter topic (--dlq auto --dlq-create); which of the two it is: {_ASK}"
    ),
}


def _age(record: RecordFacts, now_ms: int) -> float | None:
    return None if record.at_ms is None else max(0.0, (now_ms - record.at_ms) / 1000)


def in_words(seconds: float) -> str:
    """Return a time for a person: ``12 s``, ``3 min``, ``5 h``, ``2 d``."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
