"""Poison policy and dead-letter topics, derived from the options."""

from __future__ import annotations

from kafka_keyshared.core.contract.retry_policy import PoisonPolicy
from kafka_keyshared.core.routing.modes import RoutingMode

AUTO = "auto"
"""The dead-letter topic ``<topic>.dlq``, in places that take only text."""

DLQ_SUFFIX = ".dlq"
"""Suffix of a dead-letter topic, after the name of its source topic."""


_TO_ALL = "text is the name of a topic; give true without quotes, or 'auto', for '<topic>.dlq'"
_TO_NONE = "text is the name of a topic; give false without quotes, or leave it out"
DLQ_MEANT = {"yes": _TO_ALL, "on": _TO_ALL, "true": _TO_ALL} | dict.fromkeys(
    ("no", "off", "false"), _TO_NONE
)
"""Words for yes and no in other formats. Here each would silently name a topic."""


def poison_of(
    on_exhausted: PoisonPolicy | None, dlq: bool | str, routing: RoutingMode
) -> PoisonPolicy:
    """Return the policy. With exclusive routing nothing may run after an unfinished record."""
    in_order = routing == "exclusive"
    return on_exhausted or ("block" if dlq is False or in_order else "dead_letter")


def dlq_topic_of(dlq: bool | str, topic: str) -> str:
    """Return the dead-letter topic of a topic."""
    if isinstance(dlq, str) and dlq != AUTO:
        return dlq
    return f"{topic}{DLQ_SUFFIX}"
