"""User options in one typed structure, and their conversion to core settings.

The structure is the single source for accepted values, the JSON schema, the environment's names and
the reference page. So each field carries its meaning (``description``), its unit and its flag
(``extra``) and its bounds. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from kafka_keyshared.config import group_view_options, http_options, worker_options
from kafka_keyshared.config.dead_letter_options import DLQ_MEANT, dlq_topic_of, poison_of
from kafka_keyshared.config.reliability_checks import refuse_what_needs_tracking
from kafka_keyshared.config.retry_options import WEEK, RetryOptions
from kafka_keyshared.config.routing_options import key_of, routing_settings
from kafka_keyshared.core.contract.dlq_limit import DlqLimit
from kafka_keyshared.core.contract.retry_policy import PoisonPolicy, RetryPolicy
from kafka_keyshared.core.keys.extraction import NullKeys, UndecodablePolicy
from kafka_keyshared.core.offsets.commit import CommitPolicy
from kafka_keyshared.core.offsets.denials import AUTHORIZATION_TIMEOUT
from kafka_keyshared.core.routing.filters import OnUnmatched
from kafka_keyshared.core.routing.modes import RoutingMode
from kafka_keyshared.core.subscription.settings import OnEvict, SubscriptionSettings, worker_names
from kafka_keyshared.hashing import SLOTS, SlotFunction

_KEY = r"^(?:record|header:.+|json:(?:/.*)?|avro:.+)$"


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All options except the Kafka client's own configuration."""

    workers: Annotated[
        Annotated[int, Meta(ge=1)] | Annotated[str, Meta(pattern=worker_options.WORKERS)],
        Meta(
            description="How many workers run handlers, and in what pool. Not given, a "
            "coroutine function has `asyncio:1000`.",
            extra={"flag": "--workers", "allowed": worker_options.WORKERS_ALLOWED},
        ),
    ] = worker_options.THREADS
    dlq: Annotated[
        bool | Annotated[str, Meta(pattern=group_view_options.TOPIC)],
        Meta(
            description="Where dead letters go: true or 'auto' is the topic `<topic>.dlq`, a name "
            "is that topic, false nowhere.",
            extra={
                "flag": "--dlq",
                "allowed": "true, false, 'auto' or the name of a topic",
                "meant": DLQ_MEANT,
            },
        ),
    ] = False
    dlq_create: Annotated[
        bool,
        Meta(
            description="Make the dead-letter topic when it is missing; otherwise the start is "
            "refused.",
            extra={"flag": "--dlq-create"},
        ),
    ] = False
    dlq_format: Annotated[
        Literal["headers", "avro"],
        Meta(
            description="How a dead letter says what happened: in headers beside the record, or "
            "in an Avro envelope around it."
        ),
    ] = "headers"
    dlq_limit: Annotated[
        bool,
        Meta(
            description="Whether a partition is stopped when too many of its records go to the "
            "dead-letter topic, until `app.lift_dlq_limit()` or a restart."
        ),
    ] = False
    dlq_limit_share: Annotated[
        Annotated[float, Meta(gt=0, le=1)],
        Meta(description="More than this share of a partition's last records is too many."),
    ] = 0.5
    dlq_limit_records: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(description="Of so many last records.", extra={"unit": "records"}),
    ] = 5_000
    dlq_limit_in_a_row: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(
            description="So many in a row are too many, whatever their share.",
            extra={"unit": "records"},
        ),
    ] = 1_000
    poison: Annotated[
        PoisonPolicy | None,
        Meta(
            description="What becomes of a record whose attempts are used up: it is dropped, dead-"
            "lettered, or blocks its key (block); block_and_dlq writes a dead letter too, divert "
            "sends all that follow of its key there. Not set: dead_letter with a dead-letter "
            "topic, block without, and with `exclusive`.",
            extra={"flag": "--poison"},
        ),
    ] = None
    retry: Annotated[RetryOptions, Meta(description="When a failed record runs again.")] = (
        RetryOptions()
    )
    order_scope: Annotated[
        Literal["topic", "partition", "subscription"],
        Meta(description="Records of one key are in order within this."),
    ] = "topic"
    key: Annotated[
        Annotated[str, Meta(pattern=_KEY)],
        Meta(
            description="What the key of a record is: its own (`record`), a header "
            "(`header:NAME`), a place in a value of JSON (`json:/a/b`) or a field of a value of "
            "Avro (`avro:field.path`). In Python also a function of the record.",
            extra={
                "flag": "--key",
                "allowed": "'record', 'header:NAME', 'json:/POINTER' or 'avro:FIELD'",
            },
        ),
    ] = "record"
    key_schema: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="For `avro:`: a file with the schema of bare Avro, or a folder whose files "
            "`<id>.avsc` are the schemas of Confluent's wire format.",
            extra={"allowed": "the path of a file or a folder"},
        ),
    ] = None
    null_keys: Annotated[
        NullKeys,
        Meta(
            description="What a null key means: each such record for itself (any), all of them in "
            "order (one-lane), or undecodable (reject)."
        ),
    ] = "any"
    slot_function: Annotated[
        SlotFunction,
        Meta(
            description="Which 16 bits of a key's hash are its slot: the layer's own (mmh3), those "
            "of 32-bit FNV-1a (fnv1a), Pulsar's (pulsar) or Celeriant's (blake3_u16: keys of 16 "
            "bytes, and the extra blake3). See `keyshared routing where`."
        ),
    ] = "mmh3"
    routing: Annotated[
        RoutingMode,
        Meta(
            description="How keys find their workers: by a ring (ring), by ranges of slots that "
            "you assign (sticky) or that are halved as workers come (auto-split); not by key: one "
            "worker after the other has everything (exclusive), or whoever has least gets the next "
            "record (unordered).",
            extra={"flag": "--routing"},
        ),
    ] = "ring"
    ranges: Annotated[
        dict[str, str],
        Meta(
            description="For `sticky`: by the worker's name the slots that are its own, both ends "
            "included, as in `0-10000,20001-30000`."
        ),
    ] = {}
    weights: Annotated[
        dict[str, Annotated[float, Meta(gt=0)]],
        Meta(
            description="For `ring`: by the worker's name how many times the part of another one "
            "it gets."
        ),
    ] = {}
    filters: Annotated[
        dict[str, list[str]],
        Meta(
            description="By the worker's name which keys it takes, as patterns with `*` (any "
            "bytes) and `?` (one). A worker without takes every key."
        ),
    ] = {}
    on_unmatched: Annotated[
        OnUnmatched | None,
        Meta(
            description="What becomes of a record that is in no range, or that no filter takes: "
            "settled without having been run (skip), held until a worker takes it (hold), or the "
            "end of the instance (error). It must be given where that can happen.",
            extra={"flag": "--on-unmatched"},
        ),
    ] = None
    unblocking_interval: Annotated[
        Annotated[float, Meta(ge=0, le=WEEK)],
        Meta(
            description="When keys change workers, those whose last record has ended where they "
            "were go on together, so long after the first of them. 0: each at once. Of functions "
            "workers share all keys, and none changes workers.",
            extra={"flag": "--unblocking-interval", "unit": "s"},
        ),
    ] = 0.0
    new_workers_wait: Annotated[
        bool,
        Meta(
            description="Whether a worker that joins gets nothing that came later until everything "
            "is settled that was received before: Pulsar's rule up to 3.x.",
            extra={"flag": "--new-workers-wait"},
        ),
    ] = False
    undecodable: Annotated[
        UndecodablePolicy | None,
        Meta(
            description="What becomes of a record whose key cannot be read. Not set: dead_letter "
            "with a dead-letter topic, block without."
        ),
    ] = None
    window_records: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(
            description="The most records that are received and not settled.",
            extra={"unit": "records"},
        ),
    ] = 10_000
    window_bytes: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(description="The most bytes of such records.", extra={"unit": "bytes"}),
    ] = 64 << 20
    window_share: Annotated[
        Annotated[float, Meta(gt=0, le=1)],
        Meta(
            description="The part of the window that what waits for a hot key or a slow record may "
            "fill until its partition is held back; half of that behind blocked keys. 1 is all."
        ),
    ] = 0.5
    leases_per_worker: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(
            description="The most records that one worker holds, running or next.",
            extra={"unit": "records"},
        ),
    ] = 1_000
    lease_bytes_per_worker: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="The most bytes (keys and values) of what one worker holds; a single "
            "record may have more. Not set: any number.",
            extra={"unit": "bytes"},
        ),
    ] = None
    max_leases_per_key: Annotated[
        Literal[1] | None,
        Meta(
            description="1: a worker holds one record of a key at a time. Not set: as many as fit."
        ),
    ] = None
    commit_interval: Annotated[
        Annotated[float, Meta(gt=0, le=WEEK)],
        Meta(description="How often is committed while there is work.", extra={"unit": "s"}),
    ] = 1.0
    stop_timeout: Annotated[
        Annotated[float, Meta(gt=0, le=WEEK)],
        Meta(
            description="How long a stop waits for running records; those left are named and run "
            "again.",
            extra={"unit": "s"},
        ),
    ] = 25.0
    revoke_deadline: Annotated[
        Annotated[float, Meta(ge=0, le=WEEK)],
        Meta(
            description="How long a rebalance waits for running records of partitions that go. At "
            "most half of `max.poll.interval.ms`, less 0.5 s.",
            extra={"unit": "s"},
        ),
    ] = 5.0
    authorization_timeout: Annotated[
        Annotated[float, Meta(gt=0, le=WEEK)] | None,
        Meta(
            description="How long the brokers may refuse everything (the group, or every topic) "
            "before the instance ends with status 1. While some topics are allowed it does not "
            "end. Not set: it waits for ever.",
            extra={"unit": "s"},
        ),
    ] = AUTHORIZATION_TIMEOUT
    ack_timeout: Annotated[
        Annotated[float, Meta(gt=0, le=WEEK)] | None,
        Meta(
            description="How long a record may run: on a thread it is stuck then, from a member it "
            "is taken, a failed attempt. Not set: 30 s for `pull`, 60 s for processes, else for "
            "ever; a warning names it after 30 s.",
            extra={"unit": "s"},
        ),
    ] = None
    on_stuck: Annotated[
        Literal["hold", "exit"],
        Meta(description="What a stuck record does: hold its lane, or end the instance."),
    ] = "hold"
    shards: Annotated[
        Annotated[int, Meta(ge=1, le=SLOTS)] | None,
        Meta(
            description="How many queues the keys of functions are divided into, at least one for "
            "each worker. Not set: four for each and at least 32."
        ),
    ] = None
    detach_after: Annotated[
        Annotated[float, Meta(ge=0, le=WEEK)] | None,
        Meta(description=worker_options.DETACHES, extra={"unit": "s"}),
    ] = None
    on_evict: Annotated[
        OnEvict,
        Meta(
            description="What becomes of what a worker has in hand that could not be restarted: it "
            "runs again at the others (redeliver), or it counts as done and is lost (ack)."
        ),
    ] = "redeliver"
    http_port: http_options.HttpPort = None
    http_host: http_options.HttpHost = "127.0.0.1"
    http_token_file: http_options.TokenFile = None
    unready_when_unauthorized: http_options.UnreadyWhenUnauthorized = False
    console_port: http_options.ConsolePort = None
    console_host: http_options.ConsoleHost = "127.0.0.1"
    console_url: group_view_options.ConsoleUrl = None
    show_keys: http_options.ShowKeys = False
    unready_on_outage: http_options.UnreadyOnOutage = False
    group_view_topic: group_view_options.ViewTopic = None
    group_view_create: group_view_options.ViewCreate = False
    group_view_addresses: group_view_options.ViewAddresses = []
    group_view_interval: group_view_options.ViewInterval = 5.0
    partition_metrics: Annotated[
        bool, Meta(description="Whether metrics with one sample per partition are served.")
    ] = True
    tracing: Annotated[bool, Meta(description=worker_options.TRACED)] = False
    reliable: Annotated[
        bool,
        Meta(
            description="false: nothing is retried or committed, and a worker that is full drops "
            "what comes for it. For what is out of date sooner than it could be made up for."
        ),
    ] = True
    check_invariants: Annotated[
        bool,
        Meta(
            description="Whether all that is held is checked against the rules of the contract "
            "twice a second; when one does not hold, the instance ends without another commit."
        ),
    ] = False

    @property
    def pool(self) -> str:
        """Return how workers run: ``thread``, ``process``, ``asyncio``, or as members.

        Members are those of ``pull`` and ``split``.

        Raises :class:`ConfigError` for anything else.
        """
        return worker_options.pool_of(self.workers)

    @property
    def serial(self) -> bool:
        """Return whether each worker calls a handler with one record after the other."""
        return self.pool in worker_options.SERIAL

    @property
    def time_limit(self) -> float | None:
        """Return the maximum seconds that a record may run; None for no limit."""
        return self.ack_timeout or worker_options.ACK_TIMEOUTS[self.pool]

    @property
    def coroutines(self) -> int | None:
        """Return the number of concurrent records on an event loop; None: they run elsewhere."""
        return worker_options.coroutines_of(self.workers)

    def worker_names(self) -> tuple[str, ...]:
        """Return ``worker-0`` to ``worker-(n-1)``. Raise :class:`ConfigError` for no worker."""
        return worker_names(worker_options.ring_workers(self.workers))

    def subscription(self, name: str = "default") -> SubscriptionSettings:
        """Return the core's settings of a subscription with these options."""
        if not self.reliable:
            refuse_what_needs_tracking(self, Options())
        settings = SubscriptionSettings(
            name=name,
            workers=self.worker_names(),
            routing=routing_settings(self),
            order_scope=self.order_scope,
            key_of=key_of(self),
            null_keys=self.null_keys,
            slot_function=self.slot_function,
            undecodable=self.undecodable,
            retry=RetryPolicy(**msgspec.structs.asdict(self.retry)),
            poison=poison_of(self.poison, self.dlq, self.routing),
            dlq=self.dlq is not False,
            dlq_limit=self._dlq_limit(),
            window_records=self.window_records,
            window_bytes=self.window_bytes,
            window_share=self.window_share,
            leases_per_worker=worker_options.leases_of(self.workers, self.leases_per_worker),
            lease_bytes_per_worker=self.lease_bytes_per_worker,
            max_leases_per_key=self.max_leases_per_key
            or (1 if self.pool == worker_options.PULL else None),
            individually=not self.serial,
            slice_records=worker_options.slice_records(self.workers, self.time_limit),
            ack_timeout=self.time_limit,
            exit_when_stuck=self.on_stuck == "exit",
            reliable=self.reliable,
            unblocking_interval=self.unblocking_interval,
            new_workers_wait=self.new_workers_wait,
            on_evict=self.on_evict,
            detach_after=self.detach_after,
            shards=self.shards,
            pooled=self.pool in worker_options.SHARED,
        )
        settings.check()
        return settings

    def _dlq_limit(self) -> DlqLimit | None:
        """Return the limit of dead letters, None without one."""
        if not self.dlq_limit:
            return None
        return DlqLimit(self.dlq_limit_share, self.dlq_limit_records, self.dlq_limit_in_a_row)

    def commit_policy(self) -> CommitPolicy:
        """Return the commit policy."""
        policy = CommitPolicy(interval=self.commit_interval)
        policy.check()
        return policy

    def dlq_topic(self, topic: str) -> str:
        """Return the dead-letter topic of a topic."""
        return dlq_topic_of(self.dlq, topic)
