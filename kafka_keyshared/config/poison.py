"""What becomes of poison, as the core's settings have it, and where its letters go."""

from __future__ import annotations

from kafka_keyshared.core.retry_policy import PoisonPolicy
from kafka_keyshared.core.routing.modes import RoutingMode

AUTO = "auto"
"""As a dead-letter topic: ``<topic>.dlq``, for places where there is only text."""

DLQ_SUFFIX = ".dlq"
"""What such a topic is called behind the name of its source."""


_TO_ALL = "text is the name of a topic; give true without quotes, or 'auto', for '<topic>.dlq'"
_TO_NONE = "text is the name of a topic; give false without quotes, or leave it out"
DLQ_MEANT = {"yes": _TO_ALL, "on": _TO_ALL, "true": _TO_ALL} | dict.fromkeys(
    ("no", "off", "false"), _TO_NONE
)
"""What stands for yes and no elsewhere would be a topic of that name, and nobody would notice."""


def poison_of(poison: PoisonPolicy | None, dlq: bool | str, routing: RoutingMode) -> PoisonPolicy:
    """Return the policy: with an exclusive routing nothing runs behind what was not done."""
    in_order = routing == "exclusive"
    return poison or ("block" if dlq is False or in_order else "dead_letter")


def dlq_topic_of(dlq: bool | str, topic: str) -> str:
    """Return the dead-letter topic of a topic."""
    if isinstance(dlq, str) and dlq != AUTO:
        return dlq
    return f"{topic}{DLQ_SUFFIX}"
