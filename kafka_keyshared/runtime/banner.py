"""The line that says what runs."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_keyshared.config import Options
from kafka_keyshared.core.settings import SubscriptionSettings

WORKERS_ARE = {"thread": "threads", "pull": "members", "split": "members"}


def banner(
    group: str, topics: Sequence[str], options: Options, subscription: SubscriptionSettings
) -> str:
    """Return it. Who divides a loop decides in it what becomes of a record that fails."""
    failed = f"{options.retry.attempts} attempts, then {subscription.poison}"
    if subscription.dlq:
        failed += f" to {', '.join(sorted({options.dlq_topic(each) for each in topics}))}"
    if options.pool == "split":
        failed = "the loops say what is done"
    return (
        f"group {group} · topics {', '.join(topics)} · "
        f"{len(subscription.workers)} {WORKERS_ARE[options.pool]} · "
        f"order per key and {options.order_scope} · "
        f"commit every {options.commit_interval:g} s · {failed}"
    )
