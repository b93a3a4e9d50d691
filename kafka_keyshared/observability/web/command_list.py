"""Orders that an instance accepts over HTTP: names and fields.

Each is a value decoded from JSON. An unknown field or a value out of bounds is refused. ``timeout``
is in seconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from kafka_keyshared.core.offsets.commit_metadata import DEFAULT_SUBSCRIPTION
from kafka_keyshared.hashing import SLOTS

Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=300)]
Partition: TypeAlias = tuple[str, Annotated[int, Meta(ge=0, le=2**31 - 1)]]


class OrderRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all orders."""


class PauseOrder(OrderRequest, frozen=True, kw_only=True):
    """Pause fetching of these topics and partitions; without either, of all."""

    topics: tuple[str, ...] | None = None
    partitions: tuple[Partition, ...] | None = None


class ResumeOrder(OrderRequest, frozen=True, kw_only=True):
    """Resume fetching of these topics and partitions; without either, of all."""

    topics: tuple[str, ...] | None = None
    partitions: tuple[Partition, ...] | None = None


class QuiesceOrder(OrderRequest, frozen=True, kw_only=True):
    """Pause all partitions, finish the fetched records, and commit them."""

    timeout: Seconds = 30.0


class ScaleOrder(OrderRequest, frozen=True, kw_only=True):
    """Change the number of workers."""

    workers: Annotated[int, Meta(ge=1, le=10_000)]
    timeout: Seconds = 30.0
    subscription: str = DEFAULT_SUBSCRIPTION


class RangeOrder(OrderRequest, frozen=True, kw_only=True):
    """Give a worker these slots, both ends included. A worker of None leaves them unassigned."""

    first: int
    last: int
    worker: str | None
    take_over: bool = False
    timeout: Seconds = 30.0
    subscription: str = DEFAULT_SUBSCRIPTION


class SlotOrder(OrderRequest, frozen=True, kw_only=True):
    """Give a worker a slot, regardless of its owner. A worker of None leaves it unassigned."""

    slot: Annotated[int, Meta(ge=0, lt=SLOTS)]
    worker: str | None
    timeout: Seconds = 30.0
    subscription: str = DEFAULT_SUBSCRIPTION


class FilterOrder(OrderRequest, frozen=True, kw_only=True):
    """Let a worker take the keys that match one of these patterns; without patterns every key."""

    worker: str
    patterns: tuple[str, ...]
    timeout: Seconds = 30.0
    subscription: str = DEFAULT_SUBSCRIPTION


class LaneOrderRequest(OrderRequest, frozen=True, kw_only=True):
    """The base of orders for a closed key.

    The key is named by ``at``, the place of its first record such as ``orders-3@17``, or by its
    ``key``.
    """

    at: str = ""
    key: str | None = None
    subscription: str = DEFAULT_SUBSCRIPTION


class UnblockOrder(LaneOrderRequest, frozen=True, kw_only=True):
    """Unblock the key: its blocked record runs again, or it is no longer diverted."""


class DropOrder(LaneOrderRequest, frozen=True, kw_only=True):
    """Drop the record that keeps the key closed: it is settled and counted, not kept."""


class DeadLetterOrder(LaneOrderRequest, frozen=True, kw_only=True):
    """Send the record that keeps the key closed to the dead-letter topic."""


class LimitOrder(OrderRequest, frozen=True, kw_only=True):
    """Resume the partitions that their dead-letter limit has stopped."""


class LettersOrder(OrderRequest, frozen=True, kw_only=True):
    """List the newest dead letters of this group; nothing changes.

    ``dlq`` is the dead-letter topic. It need not be named if the app has exactly one.
    """

    dlq: str = ""
    most: Annotated[int, Meta(ge=1, le=500)] = 100


class ReplayOrder(OrderRequest, frozen=True, kw_only=True):
    """Replay dead letters of this group to their source topics, each key in its order.

    Without ``execute`` the answer only lists the letters. ``at`` is the position of one of them,
    PARTITION:OFFSET; without it all are meant. A letter that was replayed ``max_replays`` times is
    left alone. ``rate`` is in letters per second.
    """

    dlq: str = ""
    at: Annotated[str, Meta(pattern=r"^(\d{1,9}:\d{1,18})?$")] = ""
    execute: bool = False
    max_replays: Annotated[int, Meta(ge=1, le=1_000)] = 3
    rate: Annotated[float, Meta(gt=0)] | None = None
    timeout: Seconds = 30.0


class LogLevelOrder(OrderRequest, frozen=True, kw_only=True):
    """Set the minimum level of the package's log, or of a part of it."""

    level: Literal["debug", "info", "warning", "error", "critical"]
    logger: Annotated[str, Meta(pattern=r"^kafka_keyshared(\.[a-z_]+)*$", max_length=100)] = (
        "kafka_keyshared"
    )


class Verb(NamedTuple):
    """A verb: the order that it takes, and a description."""

    order: type[Any]
    text: str


VERBS: dict[str, Verb] = {
    "pause": Verb(PauseOrder, "Pause fetching of topics and partitions, or of all."),
    "resume": Verb(ResumeOrder, "Resume fetching of what was paused by hand."),
    "quiesce": Verb(QuiesceOrder, "Pause all, finish the fetched records, and commit."),
    "scale": Verb(ScaleOrder, "Change the number of workers."),
    "assign": Verb(RangeOrder, "Assign a range of slots to a worker (routing sticky)."),
    "move": Verb(
        SlotOrder, "Assign one slot to a worker, regardless of its owner (routing sticky)."
    ),
    "filter": Verb(FilterOrder, "Set the key filters of a worker."),
    "unblock": Verb(UnblockOrder, "Unblock a closed key."),
    "drop": Verb(DropOrder, "Drop the record that keeps a key closed."),
    "dead-letter": Verb(DeadLetterOrder, "Send that record to the dead-letter topic."),
    "lift-dlq-limit": Verb(
        LimitOrder, "Resume the partitions that their dead-letter limit stopped."
    ),
    "letters": Verb(LettersOrder, "List the newest dead letters of this group."),
    "replay": Verb(ReplayOrder, "Plan a replay of dead letters, or execute it."),
    "log-level": Verb(LogLevelOrder, "Set the log level."),
}


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an executed order: a text and the result."""

    verb: str
    done: str
    result: dict[str, Any]


class OrderRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a refused order: the reason. Nothing has changed, unless it says so."""

    refused: str
