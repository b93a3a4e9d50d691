"""The settings of one subscription and their validation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kafka_keyshared.core.contract.dlq_limit import DlqLimit
from kafka_keyshared.core.contract.retry_policy import (
    NEED_DLQ,
    PoisonPolicy,
    RetryPolicy,
    refuse_for_exclusive,
)
from kafka_keyshared.core.keys.extraction import (
    DerivedKeys,
    KeyOf,
    NullKeys,
    OwnKeys,
    UndecodablePolicy,
    of_length,
)
from kafka_keyshared.core.keys.fixed_lanes import NoLanes, OneLane
from kafka_keyshared.core.records.lane_identity import OrderScope
from kafka_keyshared.core.records.window import Window
from kafka_keyshared.core.routing.modes import KEYLESS_MODES, SHARED_MODES, RoutingSettings
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOT_FUNCTIONS, SLOT_KEY_BYTES, SLOTS, SlotFunction


def worker_names(count: int) -> tuple[str, ...]:
    """Return ``count`` worker names, the same in every kind of pool. The ring hashes the names."""
    return tuple(f"worker-{index}" for index in range(count))


SHARDS_LEAST = 32
SHARDS_EACH = 4
"""Shards for each worker that takes batches, besides those of single slots. Each chunk goes to all
of them, and each costs the owner some 2 us."""

DETACH_AFTER = 0.05
"""Default run time in seconds after which a record is detached."""

OnEvict: TypeAlias = Literal["redeliver", "ack"]
"""Handling of an evicted worker's leases. With ``redeliver`` they run again at other workers. With
``ack`` they count as settled and are lost (the rule of Danube's Key-Shared dispatcher)."""


Delivery: TypeAlias = Literal["at-least-once", "at-most-once"]
"""The delivery guarantee. ``at-least-once`` retries and commits. ``at-most-once`` does neither, and
a full worker drops new records (:mod:`kafka_keyshared.core.leasing.drop_when_full`)."""


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """The settings of one subscription. Times are in seconds.

    ``on_exhausted`` is the policy for used-up attempts. ``dlq`` says whether there is a dead-letter
    topic. A partition whose dead letters exceed ``dlq_limit`` is stopped (None: no limit). With
    ``breaker`` the subscription waits while most attempts fail with one error, and with ``wait_on``
    while attempts fail with errors of a dependency (:attr:`.Failure.waits`).
    ``prefetch_records`` and ``prefetch_bytes`` limit the leases of one worker, running and next.
    With ``one_in_flight_per_key`` at most one record of a lane is leased; without it, many records
    of a lane may wait at its one worker.

    With ``individually`` a worker's records settle one by one and in any order, as a pull member's
    do. Its slices have at most ``slice_records`` records. More than one needs a pool that reports
    records as they end, and no ack timeout. Without ``individually`` a worker is serial.
    ``call_records`` is how many records a call of the handler takes.

    ``unblocking_interval`` lets drained slots open together, that many seconds after the first of
    them; 0 opens each at once. With ``new_workers_wait`` a joining worker gets no new records until
    all records that were received before it joined are settled. This is the rule of Pulsar 3.x,
    which PIP-379 has replaced.

    ``instances`` says that each worker has its own instance of a handler class, which may keep
    state. ``hands_over`` says that the state is by slot: one worker releases it, another adopts it.

    With ``pooled`` no worker owns keys: each takes any ready shard
    (:mod:`kafka_keyshared.core.workers.shards`). A record that runs for ``detach_after`` is then
    detached, and its worker's other records go to other workers
    (:mod:`kafka_keyshared.core.failures.detaching`). The value 0 means never, None the default.
    ``shards`` is the number of shards; None for four per worker and at least 32.

    ``key_of`` is None for the record's own key; ``slot_function`` is a name of
    :data:`~kafka_keyshared.hashing.SLOT_FUNCTIONS`. ``undecodable`` None means ``dead_letter``
    where there is a dead-letter topic, else ``block``.

    ``delivery`` is the delivery guarantee (:data:`Delivery`).
    """

    name: str = "default"
    workers: tuple[str, ...] = ("worker-0",)
    routing: RoutingSettings = field(default_factory=RoutingSettings)
    order_scope: OrderScope = "topic"
    key_of: KeyOf | None = None
    null_keys: NullKeys = "any"
    slot_function: SlotFunction = "mmh3"
    undecodable: UndecodablePolicy | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    on_exhausted: PoisonPolicy = "block"
    dlq: bool = False
    dlq_limit: DlqLimit | None = None
    breaker: bool = False
    wait_on: bool = False
    window_records: int = 10_000
    window_bytes: int = 64 << 20
    window_share: float = 0.5
    prefetch_records: int = 1_000
    prefetch_bytes: int | None = None
    one_in_flight_per_key: bool = False
    individually: bool = False
    slice_records: int = 1
    call_records: int = 1
    ack_timeout: float | None = None
    warn_after: float = 30.0
    exit_when_stuck: bool = False
    delivery: Delivery = "at-least-once"
    unblocking_interval: float = 0.0
    new_workers_wait: bool = False
    hands_over: bool = False
    instances: bool = False
    on_evict: OnEvict = "redeliver"
    pooled: bool = False
    detach_after: float | None = None
    shards: int | None = None

    @property
    def at_least_once(self) -> bool:
        """Return whether records are retried and committed."""
        return self.delivery == "at-least-once"

    @property
    def shard_count(self) -> int:
        """Return the number of shards, where workers share them."""
        if self.shards is not None:
            return self.shards
        return min(SLOTS, max(SHARDS_LEAST, SHARDS_EACH * len(self.workers)))

    @property
    def detaches(self) -> float | None:
        """Return the seconds after which a record is detached; None to never detach."""
        if not self.shares or self.individually:
            return None
        return DETACH_AFTER if self.detach_after is None else self.detach_after or None

    @property
    def shares(self) -> bool:
        """Whether workers share the waiting records, so that no worker owns keys.

        Workers with slots or filters set by the user do not share, nor do workers with state.
        """
        declared = self.routing.mode not in SHARED_MODES or self.routing.filters
        stays = declared or self.hands_over or self.instances or self.new_workers_wait
        return self.pooled and self.at_least_once and not stays

    def keys(self) -> OwnKeys:
        """Return the reader of record keys."""
        if self.routing.mode == "exclusive":
            return OneLane()
        if self.routing.mode == "unordered":
            return NoLanes()
        key_of = self.key_of
        if self.slot_function in SLOT_KEY_BYTES:
            key_of = of_length(key_of, SLOT_KEY_BYTES[self.slot_function])
        if key_of is None:
            return OwnKeys(self.order_scope, self.null_keys, SLOT_FUNCTIONS[self.slot_function])
        return DerivedKeys(
            key_of,
            self.order_scope,
            self.null_keys,
            undecodable_is_null=self.undecodable == "null_key",
            window_records=self.window_records,
            slot=SLOT_FUNCTIONS[self.slot_function],
            extracted=self.key_of is not None,
        )

    def when_undecodable(self) -> UndecodablePolicy:
        """Return the policy for a record whose key cannot be read."""
        if not self.at_least_once:
            return self.undecodable or "drop"
        return self.undecodable or ("dead_letter" if self.dlq else "block")

    def check(self) -> None:
        """Raise :class:`ConfigError` for the first invalid setting."""
        self.retry.check()
        if self.slot_function not in SLOT_FUNCTIONS:
            raise ConfigError(
                f"subscription {self.name!r}: slot_function={self.slot_function!r}: give one of "
                f"{', '.join(map(repr, SLOT_FUNCTIONS))}"
            )
        SLOT_FUNCTIONS[self.slot_function](b"")  # refuses one whose package is missing
        Window(self.window_records, self.window_bytes)  # refuses a window that holds nothing
        if not 0 < self.window_share <= 1:
            raise ConfigError(
                f"subscription {self.name!r}: window_share={self.window_share!r}: give the part of "
                "the window that one key may fill: more than 0, and at most 1 for all of it"
            )
        if self.on_exhausted in NEED_DLQ and not self.dlq:
            raise ConfigError(
                f"subscription {self.name!r}: on_exhausted={self.on_exhausted!r} needs a "
                "dead-letter topic; give dlq=True or dlq='name'"
            )
        if self.dlq_limit is not None:
            self.dlq_limit.check(f"subscription {self.name!r}")
            if not self.dlq:
                raise ConfigError(
                    f"subscription {self.name!r}: dlq_limit without a dead-letter topic limits "
                    "nothing; give dlq=True or dlq='name', or leave it out"
                )
        if self.undecodable == "dead_letter" and not self.dlq:
            raise ConfigError(
                f"subscription {self.name!r}: undecodable='dead_letter' needs a dead-letter topic; "
                "give dlq=True or dlq='name'"
            )
        if self.undecodable == "null_key" and self.null_keys == "reject":
            raise ConfigError(
                f"subscription {self.name!r}: undecodable='null_key' and null_keys='reject' send "
                "such a record from one to the other; choose what becomes of it in one of them"
            )
        self._check_routing()
        self._check_sharing()
        if self.prefetch_bytes is not None and self.prefetch_bytes < 1:
            raise ConfigError(
                f"subscription {self.name!r}: prefetch_bytes={self.prefetch_bytes}:"
                " give at least 1, or None for any number"
            )
        if self.slice_records < 1 or (self.slice_records > 1 and self.ack_timeout is not None):
            raise ConfigError(
                f"subscription {self.name!r}: slice_records={self.slice_records}: give at least 1, "
                "and 1 with an ack timeout, which ends records and not slices"
            )
        if self.prefetch_records < 1:
            raise ConfigError(
                f"subscription {self.name!r}: prefetch_records={self.prefetch_records}: "
                "give at least 1"
            )

    def _check_sharing(self) -> None:
        if self.shards is not None and self.shares:
            workers = len(self.workers)
            if not workers <= self.shards <= SLOTS:
                raise ConfigError(
                    f"subscription {self.name!r}: shards={self.shards} and {workers} workers: give "
                    f"at least as many shards as workers, and at most {SLOTS}, or leave it out"
                )
        if self.detach_after and self.detaches is None:
            raise ConfigError(
                f"subscription {self.name!r}: detach_after={self.detach_after:g}: a record is "
                "detached where workers share what waits: functions on threads or in processes, "
                "with routing='ring', 'auto-split' or 'unordered', without filters, "
                "new_workers_wait or delivery='at-most-once'; leave detach_after out, or give 0"
            )

    def _check_routing(self) -> None:
        mode = self.routing.mode
        try:
            self.routing.check(self.workers)
        except ConfigError as error:
            raise ConfigError(f"subscription {self.name!r}: {error}") from error
        if mode == "exclusive":
            refuse_for_exclusive(self.on_exhausted, f"subscription {self.name!r}")
        if mode == "unordered" and self.hands_over:
            raise ConfigError(
                f"subscription {self.name!r}: routing='unordered', and a handler with release() "
                "and adopt(): a key runs at any worker, so its state has no owner to follow; leave "
                "the two methods out, or choose another routing"
            )
        if self.routing.filters:
            refuse_filters(self)
        elif mode in ("exclusive", "sticky") and not self.at_least_once:
            raise ConfigError(_WAITS.format(self.name, mode, ""))
        keyed = {
            "key": self.key_of is not None,
            "null_keys": self.null_keys != "any",
            "slot_function": self.slot_function != "mmh3",
        }
        if mode in KEYLESS_MODES and any(keyed.values()):
            given = " and ".join(name for name, is_given in keyed.items() if is_given)
            raise ConfigError(
                f"subscription {self.name!r}: {given} and routing={mode!r}: it looks at no key; "
                f"leave {given} out, or choose another routing"
            )


_WAITS = (
    "subscription {!r}: delivery='at-most-once' and routing={!r}{}: records would "
    "have to wait for a worker, and with this delivery no record waits; leave one of the two out"
)


def refuse_filters(settings: SubscriptionSettings) -> None:
    """Raise :class:`ConfigError` if the workers of this subscription cannot filter."""
    if settings.hands_over:
        raise ConfigError(
            f"subscription {settings.name!r}: filters, and a handler with release() and adopt(): "
            "with filters a slot may have several workers, so its state has no single owner; "
            "leave the filters or the two methods out"
        )
    if not settings.at_least_once:
        raise ConfigError(_WAITS.format(settings.name, settings.routing.mode, " with filters"))
