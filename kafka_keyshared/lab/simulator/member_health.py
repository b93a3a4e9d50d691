"""Diagnosis of an outage by a simulated member."""

from __future__ import annotations

from kafka_keyshared.core.status.builder import take
from kafka_keyshared.core.status.environment import StatusInputs
from kafka_keyshared.lab.simulator.member import Member
from kafka_keyshared.observability.diagnosis.causes import OUTAGES
from kafka_keyshared.observability.diagnosis.judge import diagnose


def names_an_outage(member: Member, wall: float) -> frozenset[str]:
    """Return the subscriptions for which a member's diagnosis says that most attempts fail.

    Findings for a topic or a partition only are left out.
    """
    core, pool = member.instance.core, member.pool
    around = StatusInputs(
        wall=wall,
        started_at=0.0,
        phase="running",
        joined=True,
        group="group",
        pool="",
        polled_at=None,
        poll_used=0.0,
        log_ends={},
    )
    status = take(core, pool.progress(), wall, around)
    return frozenset(
        each.subscription
        for each in diagnose(status).findings
        if each.code in OUTAGES and not each.topic
    )
