"""The user's options as one typed structure.

The structure is the single source for accepted values, the JSON schema, the environment's names and
the reference page. So each field carries its meaning (``description``), its unit and its flag
(``extra``) and its bounds. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from kafka_keyshared.config import http_options, worker_options
from kafka_keyshared.core.contract.retry_policy import PoisonPolicy
from kafka_keyshared.core.keys.extraction import NullKeys, UndecodablePolicy
from kafka_keyshared.core.offsets.commit import AUTHORIZATION_TIMEOUT
from kafka_keyshared.core.routing.filters import OnUnmatched
from kafka_keyshared.core.routing.modes import RoutingMode
from kafka_keyshared.core.subscription.settings import Delivery, OnEvict, worker_names
from kafka_keyshared.hashing import SLOTS, SlotFunction

WEEK = 7 * 86_400
"""Maximum in seconds of every configurable time."""

AUTO = "auto"
"""The dead-letter topic ``<topic>.dlq``, in places that take only text."""

DLQ_SUFFIX = ".dlq"
"""Suffix of a dead-letter topic, after the name of its source topic."""

_TO_ALL = "text is the name of a topic; give true without quotes, or 'auto', for '<topic>.dlq'"
_TO_NONE = "text is the name of a topic; give false without quotes, or leave it out"
_DLQ_MEANT = {"yes": _TO_ALL, "on": _TO_ALL, "true": _TO_ALL} | dict.fromkeys(
    ("no", "off", "false"), _TO_NONE
)
"""Words for yes and no in other formats. Here each would silently name a topic."""

_KEY = r"^(?:record|header:.+|json:(?:/.*)?|avro:.+)$"


class RetryOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options for the retries of a failed record."""

    attempts: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(
            description="Maximum number of attempts of a record, including the first.",
            extra={"flag": "--attempts"},
        ),
    ] = 5
    backoff: Annotated[
        Annotated[float, Meta(ge=0, le=WEEK)],
        Meta(description="Delay after the first failure.", extra={"unit": "s"}),
    ] = 0.1
    factor: Annotated[
        Annotated[float, Meta(ge=1, le=1e9)],
        Meta(description="Factor by which the delay grows with each further failure."),
    ] = 2.0
    backoff_max: Annotated[
        Annotated[float, Meta(ge=0, le=WEEK)],
        Meta(description="Maximum delay.", extra={"unit": "s"}),
    ] = 30.0
    jitter: Annotated[
        Annotated[float, Meta(ge=0, lt=1)],
        Meta(description="Random share by which each delay is longer or shorter."),
    ] = 0.2


class Backoff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retries of the errors of one class. What is not given is taken from the option ``retry``.

    ``first`` is the delay after the first failure, ``max`` the maximum delay, both in seconds. With
    ``forever`` such an error uses up no attempt, and the record runs again until it succeeds.
    """

    attempts: Annotated[int, Meta(ge=1)] | None = None
    first: Annotated[float, Meta(ge=0, le=WEEK)] | None = None
    factor: Annotated[float, Meta(ge=1, le=1e9)] | None = None
    max: Annotated[float, Meta(ge=0, le=WEEK)] | None = None
    jitter: Annotated[float, Meta(ge=0, lt=1)] | None = None
    forever: bool = False


never: Literal["never"] = "never"
"""In place of a back-off: the first failure uses up all attempts."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All options except the Kafka client's own configuration."""

    workers: Annotated[
        Annotated[int, Meta(ge=1)] | Annotated[str, Meta(pattern=worker_options.WORKERS)],
        Meta(
            description="Number of workers that run handlers, and the kind of their pool. Not set, "
            "a coroutine function gets `asyncio:1000`.",
            extra={"flag": "--workers", "allowed": worker_options.WORKERS_ALLOWED},
        ),
    ] = worker_options.THREADS
    dlq: Annotated[
        bool | Annotated[str, Meta(pattern=http_options.TOPIC)],
        Meta(
            description="Dead-letter topic: true or 'auto' is `<topic>.dlq`, a name is that topic, "
            "false is none.",
            extra={
                "flag": "--dlq",
                "allowed": "true, false, 'auto' or the name of a topic",
                "meant": _DLQ_MEANT,
            },
        ),
    ] = False
    dlq_create: Annotated[
        bool,
        Meta(
            description="Whether the start creates a missing dead-letter topic. If not, the start "
            "is refused.",
            extra={"flag": "--dlq-create"},
        ),
    ] = False
    dlq_format: Annotated[
        Literal["headers", "avro"],
        Meta(
            description="Format of a dead letter: the reason is in headers beside the record "
            "(headers), or in an Avro envelope around the record (avro)."
        ),
    ] = "headers"
    dlq_limit: Annotated[
        bool,
        Meta(
            description="Whether a partition stops when too many of its records become dead "
            "letters. It starts again with `app.lift_dlq_limit()` or a restart."
        ),
    ] = False
    dlq_limit_share: Annotated[
        Annotated[float, Meta(gt=0, le=1)],
        Meta(description="Share of dead letters above which `dlq_limit` stops a partition."),
    ] = 0.5
    dlq_limit_records: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(
            description="Number of the partition's last records that the share refers to.",
            extra={"unit": "records"},
        ),
    ] = 5_000
    dlq_limit_consecutive: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(
            description="Number of consecutive dead letters at which `dlq_limit` stops a "
            "partition, regardless of the share.",
            extra={"unit": "records"},
        ),
    ] = 1_000
    on_exhausted: Annotated[
        PoisonPolicy | None,
        Meta(
            description="Policy for a record whose attempts are used up: drop the record (drop), "
            "write a dead letter (dead_letter), block the key (block), block the key and write a "
            "dead letter (block_and_dlq), or send the record and all later records of its key to "
            "the dead-letter topic (divert). Not set: dead_letter with a dead-letter topic; block "
            "without one, and with the routing `exclusive`.",
            extra={"flag": "--on-exhausted"},
        ),
    ] = None
    retry: Annotated[RetryOptions, Meta(description="Retries of a failed record.")] = RetryOptions()
    retry_on: Annotated[
        dict[str, Backoff | Literal["never"]],
        Meta(
            description="Retries by the class of the error: a table for each, by its import path, "
            "with `attempts`, `first`, `factor`, `max`, `jitter` or `forever`; or `never`. In "
            "Python also the class itself.",
            extra={"allowed": "a table or 'never' for each import path of an exception class"},
        ),
    ] = {}
    wait_on: Annotated[
        list[str],
        Meta(
            description="Import paths of exception classes that show that a dependency is away. "
            "Their errors use up no attempt. When several keys fail with one, everything waits, "
            "and one record at a time is tried until it succeeds. In Python also the classes "
            "themselves."
        ),
    ] = []
    breaker: Annotated[
        bool,
        Meta(
            description="Whether everything also waits while most attempts fail with any one "
            "error, whatever the key."
        ),
    ] = False
    order_scope: Annotated[
        Literal["topic", "partition", "subscription"],
        Meta(description="Scope in which records of one key are in order."),
    ] = "topic"
    key: Annotated[
        Annotated[str, Meta(pattern=_KEY)],
        Meta(
            description="Source of a record's key: its own key (`record`), a header "
            "(`header:NAME`), a place in a JSON value (`json:/a/b`) or a field of an Avro value "
            "(`avro:field.path`). In Python also a function of the record.",
            extra={
                "flag": "--key",
                "allowed": "'record', 'header:NAME', 'json:/POINTER' or 'avro:FIELD'",
            },
        ),
    ] = "record"
    key_schema: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="Schema for `avro:`: a file with the schema of bare Avro, or a folder "
            "whose files `<id>.avsc` are the schemas of Confluent's wire format.",
            extra={"allowed": "the path of a file or a folder"},
        ),
    ] = None
    null_keys: Annotated[
        NullKeys,
        Meta(
            description="Handling of records with a null key: each is a lane of its own (any), all "
            "are one lane (one-lane), or each is undecodable (reject)."
        ),
    ] = "any"
    slot_function: Annotated[
        SlotFunction,
        Meta(
            description="Hash function that maps a key to its 16-bit slot: this package's own "
            "(mmh3), 32-bit FNV-1a (fnv1a), Pulsar's (pulsar) or Celeriant's (blake3_u16: keys of "
            "16 bytes, and the extra blake3). See `keyshared routing where`."
        ),
    ] = "mmh3"
    routing: Annotated[
        RoutingMode,
        Meta(
            description="Rule that assigns keys to workers: a ring (ring), slot ranges that you "
            "assign (sticky), or slot ranges that are halved as workers join (auto-split). Two "
            "rules ignore the key: one worker gets all records until it leaves (exclusive), or the "
            "worker with the fewest leases gets the next record (unordered).",
            extra={"flag": "--routing"},
        ),
    ] = "ring"
    ranges: Annotated[
        dict[str, str],
        Meta(
            description="For `sticky`: the slots of each worker by its name, both ends included, "
            "such as `0-10000,20001-30000`."
        ),
    ] = {}
    weights: Annotated[
        dict[str, Annotated[float, Meta(gt=0)]],
        Meta(
            description="For `ring`: the share of each worker by its name, relative to a worker "
            "without a weight."
        ),
    ] = {}
    filters: Annotated[
        dict[str, list[str]],
        Meta(
            description="Patterns of the keys that a worker takes, by its name, with `*` (any "
            "bytes) and `?` (one byte). A worker without patterns takes every key."
        ),
    ] = {}
    on_unmatched: Annotated[
        OnUnmatched | None,
        Meta(
            description="Policy for a record that is in no range or that no filter takes: settle "
            "it without running it (skip), hold it until a worker takes it (hold), or end the "
            "instance (error). Required if such records are possible.",
            extra={"flag": "--on-unmatched"},
        ),
    ] = None
    unblocking_interval: Annotated[
        Annotated[float, Meta(ge=0, le=WEEK)],
        Meta(
            description="When keys change workers, drained keys continue together, this long after "
            "the first of them. 0: each continues at once. Without effect on functions, whose "
            "workers share all keys.",
            extra={"flag": "--unblocking-interval", "unit": "s"},
        ),
    ] = 0.0
    new_workers_wait: Annotated[
        bool,
        Meta(
            description="Whether a joining worker gets new records only after all records received "
            "before it joined are settled. This is Pulsar's rule up to 3.x.",
            extra={"flag": "--new-workers-wait"},
        ),
    ] = False
    undecodable: Annotated[
        UndecodablePolicy | None,
        Meta(
            description="Policy for a record whose key cannot be read. Not set: dead_letter with a "
            "dead-letter topic, block without."
        ),
    ] = None
    window_records: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(
            description="Maximum number of received and unsettled records.",
            extra={"unit": "records"},
        ),
    ] = 10_000
    window_bytes: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(description="Maximum size of these records.", extra={"unit": "bytes"}),
    ] = 64 << 20
    window_share: Annotated[
        Annotated[float, Meta(gt=0, le=1)],
        Meta(
            description="Share of the window that records behind a hot key or a slow record may "
            "fill before their partition is held back. Records behind blocked keys may fill half "
            "of it. 1 is the whole window."
        ),
    ] = 0.5
    prefetch_records: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(
            description="Maximum number of records leased to one worker, running and next.",
            extra={"unit": "records"},
        ),
    ] = 1_000
    prefetch_bytes: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Maximum size (keys and values) of the records leased to one worker. A "
            "single record may be larger. Not set: no limit.",
            extra={"unit": "bytes"},
        ),
    ] = None
    one_in_flight_per_key: Annotated[
        bool,
        Meta(description="Whether a worker holds at most one record of each key at a time."),
    ] = False
    commit_interval: Annotated[
        Annotated[float, Meta(gt=0, le=WEEK)],
        Meta(description="Time between two commits while there is work.", extra={"unit": "s"}),
    ] = 1.0
    stop_timeout: Annotated[
        Annotated[float, Meta(gt=0, le=WEEK)],
        Meta(
            description="How long a stop waits for running records. The log names the records that "
            "are left, and they run again.",
            extra={"unit": "s"},
        ),
    ] = 25.0
    revoke_deadline: Annotated[
        Annotated[float, Meta(ge=0, le=WEEK)],
        Meta(
            description="How long a rebalance waits for running records of revoked partitions. At "
            "most half of `max.poll.interval.ms`, less 0.5 s.",
            extra={"unit": "s"},
        ),
    ] = 5.0
    authorization_timeout: Annotated[
        Annotated[float, Meta(gt=0, le=WEEK)] | None,
        Meta(
            description="How long the brokers may deny the group or every topic before the "
            "instance ends with status 1. While some topics are allowed, the instance continues. "
            "Not set: no limit.",
            extra={"unit": "s"},
        ),
    ] = AUTHORIZATION_TIMEOUT
    ack_timeout: Annotated[
        Annotated[float, Meta(gt=0, le=WEEK)] | None,
        Meta(
            description="How long a record may run. On a thread the record is then stuck; from a "
            "member it is taken back as a failed attempt. Not set: 30 s for `pull`, 60 s for "
            "processes, else no limit; a warning names the record after 30 s.",
            extra={"unit": "s"},
        ),
    ] = None
    on_stuck: Annotated[
        Literal["hold", "exit"],
        Meta(
            description="Effect of a stuck record: its lane stays closed (hold), or the instance "
            "ends (exit)."
        ),
    ] = "hold"
    shards: Annotated[
        Annotated[int, Meta(ge=1, le=SLOTS)] | None,
        Meta(
            description="Number of queues for the keys of functions, at least one for each worker. "
            "Not set: four for each worker, and at least 32."
        ),
    ] = None
    detach_after: Annotated[
        Annotated[float, Meta(ge=0, le=WEEK)] | None,
        Meta(
            description="How long a record of a function runs before the other records of its "
            "worker go to other workers. Not set: 0.05 s. 0: never. Not for handler classes, "
            "ranges or filters.",
            extra={"unit": "s"},
        ),
    ] = None
    on_evict: Annotated[
        OnEvict,
        Meta(
            description="Handling of the leases of a worker that could not be restarted: they run "
            "again at other workers (redeliver), or they count as settled and are lost (ack)."
        ),
    ] = "redeliver"
    http_port: http_options.HttpPort = None
    http_host: http_options.HttpHost = "127.0.0.1"
    http_token_file: http_options.TokenFile = None
    unready_when_unauthorized: http_options.UnreadyWhenUnauthorized = False
    console_port: http_options.ConsolePort = None
    console_host: http_options.ConsoleHost = "127.0.0.1"
    console_url: http_options.ConsoleUrl = None
    show_keys: http_options.ShowKeys = False
    unready_on_outage: http_options.UnreadyOnOutage = False
    group_view_topic: http_options.ViewTopic = None
    group_view_create: http_options.ViewCreate = False
    group_view_addresses: http_options.ViewAddresses = []
    group_view_interval: http_options.ViewInterval = 5.0
    partition_metrics: Annotated[
        bool, Meta(description="Whether metrics with one sample per partition are served.")
    ] = True
    tracing: Annotated[
        bool,
        Meta(
            description="Whether each call of a handler is an OpenTelemetry span, linked to the "
            "span that produced the record. It needs the extra `tracing`."
        ),
    ] = False
    delivery: Annotated[
        Delivery,
        Meta(
            description="Delivery guarantee: `at-least-once` retries and commits. `at-most-once` "
            "does neither, and a full worker drops new records. It suits records that are outdated "
            "before a retry."
        ),
    ] = "at-least-once"
    check_invariants: Annotated[
        bool,
        Meta(
            description="Whether all held records are checked against the rules of the contract "
            "twice a second. If a rule is broken, the instance ends without another commit."
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

    def dlq_topic(self, topic: str) -> str:
        """Return the dead-letter topic of a topic."""
        if isinstance(self.dlq, str) and self.dlq != AUTO:
            return self.dlq
        return f"{topic}{DLQ_SUFFIX}"
