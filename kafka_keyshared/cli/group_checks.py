"""What ``keyshared doctor`` looks at of a group: whether this instance fits in, and who is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka_keyshared.cli.findings import Check, Finding, Kind, Status, conclude
from kafka_keyshared.model import counted, some

DEFAULT_ASSIGNORS = "range,roundrobin"


class GroupFacts(NamedTuple):
    """A consumer group: its state, kind (classic, consumer), assignor and members, as described."""

    state: str
    kind: str
    assignor: str
    members: tuple[str, ...]
    may: frozenset[str] | None = None


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
        findings.append(Finding(Kind.GROUP_DENIED, Status.FAIL, why, f"allow READ on group {name}"))
    if members:
        findings += _same_protocol(facts, conf)
    return conclude("group", seen, findings)


def _same_protocol(facts: GroupFacts, conf: Mapping[str, Any]) -> list[Finding]:
    kind = str(conf.get("group.protocol") or "classic").lower()
    who = some(facts.members)
    if facts.kind.lower() not in (kind, "unknown", ""):
        why = f"the group is active with group.protocol={facts.kind.lower()} ({who}), ours: {kind}"
        cure = "set the same group.protocol, or stop the other members"
        return [Finding(Kind.OTHER_GROUP_PROTOCOL, Status.WARN, why, cure)]
    own = str(conf.get("partition.assignment.strategy") or DEFAULT_ASSIGNORS)
    names = [name.strip() for name in own.split(",")]
    if kind == "classic" and facts.assignor and facts.assignor not in names:
        why = (
            f"the group is active with the assignor {facts.assignor!r} ({who}), ours: {own}; the "
            "broker refuses a member that shares none with the others"
        )
        cure = f"set partition.assignment.strategy={facts.assignor}, or stop the other members"
        return [Finding(Kind.OTHER_ASSIGNOR, Status.WARN, why, cure)]
    return []
