"""What ``keyshared doctor`` looks at on a cluster, one function per check, over small facts.

Nothing here asks anybody: :mod:`.doctor` gathers the facts and these functions judge them.
A check that fails says why and what to do; so does one that only warns.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafka_keyshared.runtime.patterns import BadPatternError, matching

METADATA_BYTES = 4_096
"""What a settled set in the commit metadata may take: the broker's default limit."""

FUTURE_SECONDS = 5.0
"""How far clocks may be apart before it is worth a word."""

DEFAULT_ASSIGNORS = "range,roundrobin"
_FROM_START = ("earliest", "smallest", "beginning")


class Status(enum.StrEnum):
    """How a check ended; ``skipped``: nothing is known, because it could not be looked at."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


class Check(NamedTuple):
    """A check: what was seen, and for ``warn`` and ``fail`` why that matters and what to do."""

    name: str
    status: Status
    seen: str
    why: str = ""
    cure: str = ""


class Finding(NamedTuple):
    """Something that is not as it should be."""

    status: Status
    why: str
    cure: str


class TopicFacts(NamedTuple):
    """A topic. What the cluster does not tell is None; ``may`` names the operations allowed."""

    name: str
    partitions: int
    max_message_bytes: int | None = None
    cleanup: str | None = None
    may: frozenset[str] | None = None


class GroupFacts(NamedTuple):
    """A consumer group: its state, kind (classic, consumer), assignor and members, as described."""

    state: str
    kind: str
    assignor: str
    members: tuple[str, ...]
    may: frozenset[str] | None = None


class PartitionFacts(NamedTuple):
    """A partition's log, from ``first`` to before ``end``, and the group's committed position."""

    topic: str
    partition: int
    first: int
    end: int
    committed: int | None


def conclude(name: str, seen: str, findings: Iterable[Finding]) -> Check:
    """Return the check with the worst status of its findings, and all their reasons."""
    found = list(findings)
    if not found:
        return Check(name, Status.OK, seen)
    worst = Status.FAIL if any(each.status is Status.FAIL for each in found) else Status.WARN
    why = "; ".join(dict.fromkeys(each.why for each in found))
    cure = "; ".join(dict.fromkeys(each.cure for each in found))
    return Check(name, worst, seen, why, cure)


def is_healthy(checks: Iterable[Check]) -> bool:
    """Say whether no check failed."""
    return all(check.status is not Status.FAIL for check in checks)


# --- topics, group, positions ---


def topics(wanted: Sequence[str], there: Mapping[str, TopicFacts]) -> Check:
    """Judge whether every topic is there, and every pattern matches something."""
    findings: list[Finding] = []
    seen: list[str] = []
    for name in wanted:
        if name.startswith("^"):
            found = _pattern(name, there, findings)
            seen.append(
                f"{name}: {counted(len(found), 'topic')} ({some(found)})" if found else f"{name}: 0"
            )
        elif name in there:
            seen.append(f"{name}: {counted(there[name].partitions, 'partition')}")
            if (may := there[name].may) is not None and "READ" not in may:
                why = f"this user may not read {name!r}"
                findings.append(Finding(Status.FAIL, why, f"allow READ on topic {name}"))
        else:
            seen.append(f"{name}: not there")
            why = f"topic {name!r} does not exist, or this user may not see it"
            cure = f"create it or mend the name; there are: {some(sorted(there))}"
            findings.append(Finding(Status.FAIL, why, cure))
    return conclude("topics", ", ".join(seen), findings)


def _pattern(pattern: str, there: Mapping[str, TopicFacts], findings: list[Finding]) -> list[str]:
    try:
        found = matching(pattern, there)
    except BadPatternError as error:
        findings.append(Finding(Status.FAIL, str(error), "mend the pattern"))
        return []
    if not found:
        why = f"pattern {pattern!r} matches no topic: nothing would be read until one is made"
        cure = f"mend the pattern or create a topic; there are: {some(sorted(there))}"
        findings.append(Finding(Status.WARN, why, cure))
    return found


def group(name: str, facts: GroupFacts, conf: Mapping[str, Any]) -> Check:
    """Judge whether this instance could join the group as it is."""
    members = len(facts.members)
    if facts.state.upper() in ("DEAD", "UNKNOWN") and not members:
        seen = f"{name}: new, nobody has joined it yet"
    else:
        how = ", ".join(filter(None, (facts.kind.lower(), facts.assignor)))
        seen = (
            f"{name}: {facts.state.lower()} ({how or 'no protocol'}), {counted(members, 'member')}"
        )
    findings = []
    if facts.may is not None and "READ" not in facts.may:
        why = f"this user may not join group {name!r}"
        findings.append(Finding(Status.FAIL, why, f"allow READ on group {name}"))
    if members:
        findings += _same_protocol(facts, conf)
    return conclude("group", seen, findings)


def _same_protocol(facts: GroupFacts, conf: Mapping[str, Any]) -> list[Finding]:
    kind = str(conf.get("group.protocol") or "classic").lower()
    who = some(facts.members)
    if facts.kind.lower() not in (kind, "unknown", ""):
        why = f"the group is active with group.protocol={facts.kind.lower()} ({who}), ours: {kind}"
        return [Finding(Status.WARN, why, "set the same group.protocol, or stop the other members")]
    own = str(conf.get("partition.assignment.strategy") or DEFAULT_ASSIGNORS)
    names = [name.strip() for name in own.split(",")]
    if kind == "classic" and facts.assignor and facts.assignor not in names:
        why = (
            f"the group is active with the assignor {facts.assignor!r} ({who}), ours: {own}; the "
            "broker refuses a member that shares none with the others"
        )
        cure = f"set partition.assignment.strategy={facts.assignor}, or stop the other members"
        return [Finding(Status.WARN, why, cure)]
    return []


def positions(partitions: Sequence[PartitionFacts], conf: Mapping[str, Any]) -> Check:
    """Tell the lag of each topic, and judge where partitions without a position would start."""
    from_start = str(conf.get("auto.offset.reset", "latest")).lower() in _FROM_START
    seen, findings = [], []
    for topic in dict.fromkeys(each.topic for each in partitions):
        own = [each for each in partitions if each.topic == topic]
        new = [each for each in own if each.committed is None]
        lag = sum(max(0, each.end - each.committed) for each in own if each.committed is not None)
        text = f"lag {lag:,}" if len(new) < len(own) else "nothing committed"
        if new:
            start = "beginning" if from_start else "end"
            count = sum(each.end - each.first for each in new)
            many = f"{len(new)} of {counted(len(own), 'partition')}, {counted(count, 'record')},"
            text += f" ({many} start at the {start})"
            # A group of its own start is new; one that lost a few positions skips records unseen.
            if count and not from_start and len(new) < len(own):
                why = (
                    f"{topic}: {len(new)} partitions have no committed position and start at "
                    f"their end: {count:,} records in them would never be read"
                )
                cure = "set auto.offset.reset=earliest, or commit positions for these partitions"
                findings.append(Finding(Status.WARN, why, cure))
        seen.append(f"{topic}: {text}")
    return conclude("positions", "; ".join(seen), findings)


def retention(partitions: Sequence[PartitionFacts]) -> Check:
    """Judge whether what the group has yet to read is still there."""
    findings = []
    known = [each for each in partitions if each.committed is not None]
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
            findings.append(Finding(Status.FAIL, why, cure))
        elif committed > each.end:
            why = (
                f"{where}: the committed position {committed:,} is behind the end {each.end:,} of "
                "the log: the topic was made anew or has lost records"
            )
            cure = "reset the group's offsets for this topic"
            findings.append(Finding(Status.FAIL, why, cure))
    return conclude("retention", f"{counted(len(known), 'committed position')} looked at", findings)


# --- dead letters, commit metadata, clock ---


def dead_letters(
    pairs: Iterable[tuple[TopicFacts, str]],
    there: Mapping[str, TopicFacts],
    *,
    consumed: Iterable[str],
    create: bool,
) -> Check:
    """Judge whether each source's dead letters can be written to the topic that is meant."""
    findings: list[Finding] = []
    seen: dict[str, str] = {}
    read = set(consumed)
    for source, name in pairs:
        dlq = there.get(name)
        if name in read:
            why = f"{name!r} is consumed here too: its records would come back as dead letters"
            findings.append(Finding(Status.FAIL, why, "name another topic, or mend the pattern"))
        if dlq is None:
            seen[name] = f"{name}: not there" + (", would be made at start" if create else "")
            if not create:
                why = f"dead-letter topic {name!r} does not exist"
                findings.append(Finding(Status.FAIL, why, "create it, or give --dlq-create"))
            continue
        seen[name] = f"{name}: {counted(dlq.partitions, 'partition')}"
        findings += _can_take(dlq, source)
    return conclude("dlq", ", ".join(seen.values()), findings)


def _can_take(dlq: TopicFacts, source: TopicFacts) -> list[Finding]:
    findings = []
    if dlq.may is not None and "WRITE" not in dlq.may:
        why = f"this user may not write to {dlq.name!r}"
        findings.append(Finding(Status.FAIL, why, f"allow WRITE on topic {dlq.name}"))
    most, needed = dlq.max_message_bytes, source.max_message_bytes
    if most is not None and needed is not None and most < needed:
        why = (
            f"{dlq.name!r} takes records of {most:,} bytes at most, {source.name!r} has them up to "
            f"{needed:,}: a larger one could not be dead-lettered and its key would wait"
        )
        cure = f"set max.message.bytes of {dlq.name} to {needed} and 100,000 more for the headers"
        findings.append(Finding(Status.WARN, why, cure))
    if dlq.cleanup is not None and "compact" in dlq.cleanup:
        why = (
            f"{dlq.name!r} is compacted: a dead letter replaces the earlier one of its key, and "
            "one without a key is refused"
        )
        findings.append(Finding(Status.WARN, why, f"set cleanup.policy=delete on {dlq.name}"))
    return findings


def commit_metadata(limits: Mapping[str, int]) -> Check:
    """Judge whether every broker takes the settled set that travels in a commit's metadata."""
    seen = f"offset.metadata.max.bytes {', '.join(map(str, sorted(set(limits.values()))))}"
    small = [address for address, limit in limits.items() if limit < METADATA_BYTES]
    why = (
        f"{some(small)}: commits above that are refused and sent again without their settled set, "
        "so that more records run again after a crash or rebalance"
    )
    cure = f"set offset.metadata.max.bytes={METADATA_BYTES} on the brokers"
    return conclude("metadata", seen, [Finding(Status.WARN, why, cure)] if small else [])


def clock(newest: Mapping[str, int], now_ms: int) -> Check:
    """Judge whether the newest record of a topic comes from the future of this machine.

    ``newest`` has milliseconds since 1970 by topic. A clock that is behind ours cannot be told from
    a quiet topic.
    """
    ahead = {topic: (at - now_ms) / 1000 for topic, at in newest.items()}
    most = max(ahead.values())
    seen = "the newest record is " + (
        f"{most:,.1f} s in the future" if most > 0 else f"{-most:,.0f} s old"
    )
    findings = [
        Finding(
            Status.WARN,
            f"{topic}: a record was written {seconds:,.0f} s from now: this machine's clock is "
            "behind, or a producer's is ahead",
            "set both by NTP; times in dead letters and logs are wrong until then",
        )
        for topic, seconds in ahead.items()
        if seconds > FUTURE_SECONDS
    ]
    return conclude("clock", seen, findings)


def counted(count: int, what: str) -> str:
    """Return a number of things in words: ``1 topic``, ``2,000 topics``."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def some(names: Iterable[str], most: int = 5) -> str:
    """Return the first few names, and how many there are beyond."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return (", ".join(every[:most]) or "none") + more
