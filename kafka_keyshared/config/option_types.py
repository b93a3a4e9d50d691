"""Options as keyword arguments, for type checkers and editors (PEP 692).

:class:`~kafka_keyshared.config.Options` documents the meaning, bounds and default of each. A test
keeps the two in step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from kafka_keyshared.config.options import Backoff, RetryOptions
from kafka_keyshared.core.contract.retry_policy import PoisonPolicy
from kafka_keyshared.core.keys.extraction import NullKeys, UndecodablePolicy
from kafka_keyshared.core.routing.filters import OnUnmatched
from kafka_keyshared.core.routing.modes import RoutingMode
from kafka_keyshared.core.subscription.settings import Delivery, OnEvict
from kafka_keyshared.hashing import SlotFunction

ErrorClass: TypeAlias = type[BaseException] | tuple[type[BaseException], ...] | str
"""Key of ``retry_on``: exception classes, or the import path of one."""


class HandlingOptions(TypedDict, total=False):
    """All options except the number and kind of the workers."""

    dlq: bool | str
    dlq_create: bool
    dlq_format: Literal["headers", "avro"]
    dlq_limit: bool
    dlq_limit_share: float
    dlq_limit_records: int
    dlq_limit_consecutive: int
    on_exhausted: PoisonPolicy | None
    retry: RetryOptions | Mapping[str, float]
    retry_on: Mapping[ErrorClass, Backoff | Literal["never"]]
    wait_on: Sequence[ErrorClass]
    breaker: bool
    order_scope: Literal["topic", "partition", "subscription"]
    key: str | Callable[[Any], Any]
    key_schema: str | None
    null_keys: NullKeys
    slot_function: SlotFunction
    routing: RoutingMode
    ranges: dict[str, str]
    weights: dict[str, float]
    filters: dict[str, list[str]]
    on_unmatched: OnUnmatched | None
    unblocking_interval: float
    new_workers_wait: bool
    undecodable: UndecodablePolicy | None
    window_records: int
    window_bytes: int
    window_share: float
    prefetch_records: int
    prefetch_bytes: int | None
    one_in_flight_per_key: bool
    commit_interval: float
    stop_timeout: float
    revoke_deadline: float
    authorization_timeout: float | None
    ack_timeout: float | None
    on_stuck: Literal["hold", "exit"]
    shards: int | None
    detach_after: float | None
    on_evict: OnEvict
    http_port: int | None
    http_host: str
    http_token_file: str | None
    unready_when_unauthorized: bool
    console_port: int | None
    console_host: str
    console_url: str | None
    show_keys: bool
    unready_on_outage: bool
    group_view_topic: str | None
    group_view_create: bool
    group_view_addresses: list[str]
    group_view_interval: float
    partition_metrics: bool
    check_invariants: bool
    delivery: Delivery
    tracing: bool


class GivenOptions(HandlingOptions, total=False):
    """All options."""

    workers: int | str
