"""What becomes of poison, as the core's settings have it, and where its letters go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_keyshared.core.dlq_limit import DlqLimit
from kafka_keyshared.core.retry_policy import PoisonPolicy

if TYPE_CHECKING:
    from kafka_keyshared.config.options import Options

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


def poison_of(options: Options) -> PoisonPolicy:
    """Return the policy: with an exclusive routing nothing runs behind what was not done."""
    in_order = options.routing == "exclusive"
    return options.poison or ("block" if options.dlq is False or in_order else "dead_letter")


def dlq_topic_of(options: Options, topic: str) -> str:
    """Return the dead-letter topic of a topic."""
    if isinstance(options.dlq, str) and options.dlq != AUTO:
        return options.dlq
    return f"{topic}{DLQ_SUFFIX}"


def dlq_limit_of(options: Options) -> DlqLimit | None:
    """Return when too much is dead-lettered, None where nothing is too much."""
    if not options.dlq_limit:
        return None
    return DlqLimit(options.dlq_limit_share, options.dlq_limit_records, options.dlq_limit_in_a_row)
