"""The log line that describes a starting app."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_keyshared.config import Options
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.model import counted

WORKERS_ARE = {
    "thread": "thread",
    "process": "process",
    "asyncio": "coroutine",
    "pull": "member",
    "split": "member",
}

ORDER = {"exclusive": "one order for everything", "unordered": "no order"}


def banner(
    group: str, topics: Sequence[str], options: Options, subscription: SubscriptionSettings
) -> str:
    """Return the line. In a split consumer the loops decide about failed records."""
    failed = f"{counted(options.retry.attempts, 'attempt')}, then {subscription.on_exhausted}"
    if subscription.dlq:
        failed += f" to {', '.join(sorted({options.dlq_topic(each) for each in topics}))}"
    if options.pool == "split":
        failed = "the loops settle records"
    commits = f"commit every {options.commit_interval:g} s"
    if not subscription.at_least_once:
        commits, failed = (
            "nothing is committed",
            "failed records, and records for full workers, are dropped",
        )
    workers = options.coroutines or len(subscription.workers)
    return (
        f"group {group} · topics {', '.join(topics)} · "
        f"{counted(workers, WORKERS_ARE[options.pool])} · "
        f"{ORDER.get(options.routing, f'order per key and {options.order_scope}')} · "
        f"{commits} · {failed}"
    )
