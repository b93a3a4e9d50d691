"""Checks of ``keyshared doctor`` on a group, its members and its protocol."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kafka_keyshared.model import TopicPartition, counted, some
from kafka_keyshared.observability.doctor.findings import (
    Check,
    CheckStatus,
    DoctorFinding,
    FindingKind,
    conclude,
)

DEFAULT_ASSIGNORS = "range,roundrobin"

REBALANCING = frozenset({"PREPARING_REBALANCING", "COMPLETING_REBALANCING"})
"""States of a classic group in which no member has partitions. In KIP-848 members continue."""

_NO_TOPICS: Mapping[str, int] = MappingProxyType({})


class GroupFacts(NamedTuple):
    """A consumer group: its state, kind (classic, consumer), assignor and members, as described.

    ``idle`` are the members without partitions, ``owners`` the owner of each partition.
    """

    state: str
    kind: str
    assignor: str
    members: tuple[str, ...]
    may: frozenset[str] | None = None
    idle: tuple[str, ...] = ()
    owners: Mapping[TopicPartition, str] = MappingProxyType({})

    @property
    def rebalancing(self) -> bool:
        """Return whether a rebalance is in progress, so that no member reads."""
        return bool(self.members) and self.state.upper() in REBALANCING


def group(
    name: str, facts: GroupFacts, conf: Mapping[str, Any], counts: Mapping[str, int] = _NO_TOPICS
) -> Check:
    """Check that this instance could join the group as it is, and that all members work.

    ``counts`` has the number of partitions of each topic.
    """
    members = len(facts.members)
    if facts.state.upper() in ("DEAD", "UNKNOWN") and not members:
        seen = f"{name}: new, no member has joined it yet"
    else:
        how = ", ".join(filter(None, (facts.kind.lower(), facts.assignor)))
        seen = (
            f"{name}: {facts.state.lower()} ({how or 'no protocol'}), {counted(members, 'member')}"
        )
    findings = []
    if facts.may is not None and "READ" not in facts.may:
        why = f"this user may not join group {name!r}"
        findings.append(
            DoctorFinding(
                FindingKind.GROUP_DENIED, CheckStatus.FAIL, why, f"allow READ on group {name}"
            )
        )
    if facts.rebalancing:
        findings.append(_rebalancing(facts))
    if members:
        findings += _same_protocol(facts, conf)
        findings += _idle(facts, counts)
    return conclude("group", seen, findings)


def _rebalancing(facts: GroupFacts) -> DoctorFinding:
    who = some(facts.members)
    why = (
        f"a rebalance is in progress, and no member reads ({who}): the group waits for every "
        "member to join; a killed member stays until its session.timeout.ms (45 s) is over, a "
        "busy one until it polls"
    )
    cure = (
        "run the doctor again in a minute; if it finds the same, check which member does not answer"
    )
    return DoctorFinding(FindingKind.GROUP_REBALANCING, CheckStatus.WARN, why, cure)


def _same_protocol(facts: GroupFacts, conf: Mapping[str, Any]) -> list[DoctorFinding]:
    kind = str(conf.get("group.protocol") or "classic").lower()
    who = some(facts.members)
    if facts.kind.lower() not in (kind, "unknown", ""):
        why = f"the group is active with group.protocol={facts.kind.lower()} ({who}), ours: {kind}"
        cure = "set the same group.protocol, or stop the other members"
        return [DoctorFinding(FindingKind.OTHER_GROUP_PROTOCOL, CheckStatus.WARN, why, cure)]
    own = str(conf.get("partition.assignment.strategy") or DEFAULT_ASSIGNORS)
    names = [name.strip() for name in own.split(",")]
    if kind == "classic" and facts.assignor and facts.assignor not in names:
        why = (
            f"the group is active with the assignor {facts.assignor!r} ({who}), ours: {own}; the "
            "broker refuses a member that shares none with the others"
        )
        cure = f"set partition.assignment.strategy={facts.assignor}, or stop the other members"
        return [DoctorFinding(FindingKind.OTHER_ASSIGNOR, CheckStatus.WARN, why, cure)]
    return []


def _idle(facts: GroupFacts, counts: Mapping[str, int]) -> list[DoctorFinding]:
    """Return a finding about members without partitions, once the group is stable."""
    # During a rebalance no member has any.
    if not facts.idle or facts.state.upper() != "STABLE":
        return []
    members, partitions = len(facts.members), sum(counts.values()) or len(facts.owners)
    idle = f"{len(facts.idle)} of {counted(members, 'member')}"
    why = f"{idle} have no partition ({some(facts.idle)})"
    there = counted(partitions, "partition") + (f" of {some(counts)}" if counts else "")
    if members > partitions:
        why += f": only {there} can be assigned, each to one member"
        cure = (
            f"run {counted(partitions, 'member')} and give each more workers, as in --workers 32, "
            "because workers need no further partitions; or keep the others as a reserve"
        )
    elif facts.assignor == "range":
        why += (
            f" although there are {there}: the assignor range assigns each topic "
            "separately, always to the same members first"
        )
        cure = "give all members -X partition.assignment.strategy=roundrobin"
    else:
        why += f" although there are {there}"
        cure = "check which topics these members subscribe to, and whether those exist"
    return [DoctorFinding(FindingKind.MEMBER_WITHOUT_PARTITIONS, CheckStatus.WARN, why, cure)]
