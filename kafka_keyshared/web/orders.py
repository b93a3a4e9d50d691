"""The orders that an instance takes over HTTP: what each is called, and what it has to say.

Each is a value made of JSON; a field that it does not have is refused, and so is what is out of
bounds. ``timeout`` is in seconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from kafka_keyshared.core.metadata import DEFAULT_SUBSCRIPTION
from kafka_keyshared.hashing import SLOTS

Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=300)]
Partition: TypeAlias = tuple[str, Annotated[int, Meta(ge=0, le=2**31 - 1)]]


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every order is."""


class PauseOrder(Order, frozen=True, kw_only=True):
    """Nothing more is to be fetched from these; without either from anything."""

    topics: tuple[str, ...] | None = None
    partitions: tuple[Partition, ...] | None = None


class ResumeOrder(Order, frozen=True, kw_only=True):
    """These are to be fetched again; without either everything."""

    topics: tuple[str, ...] | None = None
    partitions: tuple[Partition, ...] | None = None


class DrainOrder(Order, frozen=True, kw_only=True):
    """Nothing more is to be fetched, what was fetched is to run to its end and be committed."""

    timeout: Seconds = 30.0


class ScaleOrder(Order, frozen=True, kw_only=True):
    """There are to be so many workers."""

    workers: Annotated[int, Meta(ge=1, le=10_000)]
    timeout: Seconds = 30.0
    subscription: str = DEFAULT_SUBSCRIPTION


class RangeOrder(Order, frozen=True, kw_only=True):
    """A worker is to have these slots, both ends included; None for the worker: nobody."""

    first: int
    last: int
    worker: str | None
    take_over: bool = False
    timeout: Seconds = 30.0
    subscription: str = DEFAULT_SUBSCRIPTION


class SlotOrder(Order, frozen=True, kw_only=True):
    """A slot is to be a worker's, whoever has it now; None for the worker: nobody's."""

    slot: Annotated[int, Meta(ge=0, lt=SLOTS)]
    worker: str | None
    timeout: Seconds = 30.0
    subscription: str = DEFAULT_SUBSCRIPTION


class FilterOrder(Order, frozen=True, kw_only=True):
    """A worker is to take the keys that one of these patterns takes; without one every key."""

    worker: str
    patterns: tuple[str, ...]
    timeout: Seconds = 30.0
    subscription: str = DEFAULT_SUBSCRIPTION


class LaneOrder(Order, frozen=True, kw_only=True):
    """What is to become of a closed lane.

    It is named by ``at``, the place of its first record such as ``orders-3@17``, or by its ``key``.
    """

    at: str = ""
    key: str | None = None
    subscription: str = DEFAULT_SUBSCRIPTION


class ReleaseOrder(LaneOrder, frozen=True, kw_only=True):
    """The lane is to go on: what blocks it runs again, what was diverted is so no more."""


class DropOrder(LaneOrder, frozen=True, kw_only=True):
    """The record that keeps the lane closed is to be given up: settled, counted, not kept."""


class DeadLetterOrder(LaneOrder, frozen=True, kw_only=True):
    """The record that keeps the lane closed is to go to the dead-letter topic."""


class LimitOrder(Order, frozen=True, kw_only=True):
    """The partitions are to go on that their dead-letter limit has stopped."""


class LettersOrder(Order, frozen=True, kw_only=True):
    """The newest dead letters of this group are to be listed; nothing changes.

    ``dlq`` is the dead-letter topic, which need not be named where there is one.
    """

    dlq: str = ""
    most: Annotated[int, Meta(ge=1, le=500)] = 100


class ReplayOrder(Order, frozen=True, kw_only=True):
    """Dead letters of this group are to go back where they came from, each key in its order.

    Without ``execute`` it is only said what would be sent. ``at`` is where one of them stands,
    PARTITION:OFFSET; without it all are meant. One that was replayed ``max_replays`` times is left
    alone. ``rate`` is in letters a second.
    """

    dlq: str = ""
    at: Annotated[str, Meta(pattern=r"^(\d{1,9}:\d{1,18})?$")] = ""
    execute: bool = False
    max_replays: Annotated[int, Meta(ge=1, le=1_000)] = 3
    rate: Annotated[float, Meta(gt=0)] | None = None
    timeout: Seconds = 30.0


class LogLevelOrder(Order, frozen=True, kw_only=True):
    """The log of the package, or of a part of it, is to have lines of this level on."""

    level: Literal["debug", "info", "warning", "error", "critical"]
    logger: Annotated[str, Meta(pattern=r"^kafka_keyshared(\.[a-z_]+)*$", max_length=100)] = (
        "kafka_keyshared"
    )


class Verb(NamedTuple):
    """A verb: the order that it takes, and in words what is done."""

    order: type[Any]
    text: str


VERBS: dict[str, Verb] = {
    "pause": Verb(PauseOrder, "Fetch nothing more from topics or partitions, or from anything."),
    "resume": Verb(ResumeOrder, "Fetch again from what was paused by hand."),
    "drain": Verb(DrainOrder, "Pause everything, let what was fetched end, and commit it."),
    "scale": Verb(ScaleOrder, "Bring it to so many workers."),
    "assign": Verb(RangeOrder, "Give a worker a range of slots (routing sticky)."),
    "move": Verb(SlotOrder, "Give a worker one slot, whoever has it (routing sticky)."),
    "filter": Verb(FilterOrder, "Give a worker other filters."),
    "release": Verb(ReleaseOrder, "Let a closed lane go on."),
    "drop": Verb(DropOrder, "Give up the record that keeps a lane closed."),
    "dead-letter": Verb(DeadLetterOrder, "Send that record to the dead-letter topic."),
    "lift-dlq-limit": Verb(LimitOrder, "Let partitions go on behind their dead-letter limit."),
    "letters": Verb(LettersOrder, "List the newest dead letters of this group."),
    "replay": Verb(ReplayOrder, "Say which dead letters would be sent back, or send them."),
    "log-level": Verb(LogLevelOrder, "Have the log say more, or less."),
}


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an order that was carried out: in words, and what there is to know of it."""

    verb: str
    done: str
    result: dict[str, Any]


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an order that was not: why. Nothing has changed, unless it says so."""

    refused: str
