"""What `keyshared routing filter` makes of the status of an instance."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kafka_keyshared.cli.routing_orders import Filtering, planned_filters
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.status import SubscriptionStatus
from tests.support.core_harness import Harness
from tests.support.core_status import status_of


def seen(**changed: Any) -> SubscriptionStatus:
    """An instance with two workers of which none filters, or with something else about it."""
    return msgspec.structs.replace(
        status_of(Harness(SubscriptionSettings(workers=("worker-0", "worker-1")))).subscriptions[0],
        **changed,
    )


def asked(worker: str, *patterns: str) -> Filtering:
    return Filtering(worker, patterns, 1.0)


def test_the_first_that_filters_leaves_every_key_to_the_others() -> None:
    before, after = planned_filters(seen(), asked("worker-1", "ship-*"))
    assert before == {"worker-0": [], "worker-1": []}
    assert after == {"worker-0": [], "worker-1": ["ship-*"]}


def test_who_is_away_may_be_given_others() -> None:
    filters = {"worker-0": ("a*",), "worker-1": (), "later": ("b*",)}
    _, after = planned_filters(seen(filters=filters), asked("later", "c?", "d"))
    assert after == {"worker-0": ["a*"], "worker-1": [], "later": ["c?", "d"]}


def test_keys_that_would_be_nobodys_are_refused_unless_it_is_said_what_follows() -> None:
    filters = {"worker-0": ("a*",), "worker-1": ()}
    words = "no worker takes every key, each of worker-0, worker-1 has filters: give on_unmatched="
    with pytest.raises(KeySharedError, match=words):
        planned_filters(seen(filters=filters), asked("worker-1", "b*"))
    _, after = planned_filters(seen(filters=filters, on_unmatched="hold"), asked("worker-1", "b*"))
    assert after["worker-1"] == ["b*"]


def test_with_ranges_a_worker_that_filters_leaves_its_slots_to_nobody() -> None:
    ranges = {"worker-0": "0-32767", "worker-1": "32768-65535"}
    with pytest.raises(KeySharedError, match=r"no worker without filters has the slots 32768\.\."):
        planned_filters(seen(routing="sticky", ranges=ranges), asked("worker-1", "b*"))


def test_a_worker_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    words = "there is no worker 'w'; give one of worker-0, worker-1, or let"
    with pytest.raises(KeySharedError, match=words):
        planned_filters(seen(), asked("w", "b*"))


@pytest.mark.parametrize("routing", ["exclusive", "unordered"])
def test_where_no_key_is_looked_at_nobody_filters(routing: str) -> None:
    with pytest.raises(KeySharedError, match=f"the instance has routing='{routing}'"):
        planned_filters(seen(routing=routing), asked("worker-0", "b*"))
