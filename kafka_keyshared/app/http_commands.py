"""Orders received over HTTP, carried out by calls of the app."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from kafka_keyshared.app.commands import Orderable
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.model import TopicPartition, counted, some
from kafka_keyshared.observability.web.command_list import (
    DeadLetterOrder,
    DropOrder,
    FilterOrder,
    LaneOrderRequest,
    LettersOrder,
    LimitOrder,
    LogLevelOrder,
    PauseOrder,
    QuiesceOrder,
    RangeOrder,
    ReplayOrder,
    ResumeOrder,
    ScaleOrder,
    SlotOrder,
    UnblockOrder,
)
from kafka_keyshared.observability.web.commands import Acting, read_token

Did: TypeAlias = tuple[str, dict[str, Any]]
"""The result as text, and its details."""


def acting_on(app: Orderable, token_file: str | None, *, keys: bool) -> Acting | None:
    """Return what accepts orders with the token in that file; None without a file.

    ``keys`` says whether an answer may name keys that the order did not name.
    """
    if token_file is None:
        return None
    return Acting(read_token(token_file), lambda order: carry_out(app, order, keys=keys))


def carry_out(app: Orderable, order: Any, *, keys: bool) -> Did:
    """Carry out the order; pass on the app's errors."""
    if isinstance(order, LaneOrderRequest):
        return _lane(app, order, keys=keys)
    if isinstance(order, LettersOrder | ReplayOrder):
        from kafka_keyshared.app import (
            dlq_commands,  # it imports Avro, which most programs do not need
        )

        if isinstance(order, ReplayOrder):
            return dlq_commands.replay(app, order)
        return dlq_commands.newest(app, order, keys=keys)
    return _DO[type(order)](app, order)


def _fetching(app: Orderable, order: PauseOrder | ResumeOrder) -> Did:
    do = app.pause if isinstance(order, PauseOrder) else app.resume
    held = _names(do(topics=order.topics, partitions=order.partitions))
    return f"paused by hand: {some(held)}", {"paused": held}


def _quiesce(app: Orderable, order: QuiesceOrder) -> Did:
    """Pause, then flush. After a timeout the app stays paused, and the error says so."""
    held = _names(app.pause())
    try:
        positions = app.flush(order.timeout)
    except (TimeoutError, KeySharedError) as error:
        more = f"{error}; the partitions stay paused until resumed"
        raise type(error)(more) from None
    committed = {str(each): at for each, at in sorted(positions.items())}
    what = f"paused by hand: {some(held)}; the fetched records have ended and are committed"
    return what, {"paused": held, "committed": committed}


def _slots(app: Orderable, order: RangeOrder | SlotOrder) -> Did:
    if isinstance(order, SlotOrder):
        first = last = order.slot
        take_over = True
    else:
        first, last, take_over = order.first, order.last, order.take_over
    ranges = app.assign_range(
        first,
        last,
        order.worker,
        take_over=take_over,
        timeout=order.timeout,
        subscription=order.subscription,
    )
    which = f"slot {first:,}" if first == last else f"slots {first:,} to {last:,}"
    owner = "without a worker" if order.worker is None else f"assigned to {order.worker}"
    return f"{which}: {owner}", {"ranges": dict(ranges)}


_KEY = re.compile(r" \(key b.*\)(?=, [a-z_-]+: )", re.DOTALL)
"""Matches a key in the text that names a lane.

The last such place in the text is the key's end, since a key may contain any bytes.
"""


def _lane(app: Orderable, order: LaneOrderRequest, *, keys: bool) -> Did:
    """Decide about a lane. Leave a key out of the answer if the caller may not see it."""
    do, done = {
        UnblockOrder: (app.unblock, "is unblocked"),
        DropOrder: (app.drop, "is dropped"),
        DeadLetterOrder: (app.dead_letter, "goes to the dead-letter topic"),
    }[type(order)]
    known = keys or order.key is not None
    try:
        told = do(order.key, at=order.at, subscription=order.subscription)
    except KeySharedError as error:
        if known:
            raise
        raise type(error)(_KEY.sub("", str(error))) from None
    return told if known else f"{order.at} {done}", {"at": order.at}


def _log_level(app: Orderable, order: LogLevelOrder) -> Did:
    del app  # the log belongs to the process
    name, level = order.logger, order.level
    logger = logging.getLogger(name)
    before = logging.getLevelName(logger.getEffectiveLevel()).lower()
    logger.setLevel(level.upper())
    what = f"{name}: log level {level}"
    return what, {"logger": name, "level": level, "before": before}


def _scale(app: Orderable, order: ScaleOrder) -> Did:
    names = app.scale(order.workers, order.timeout, subscription=order.subscription)
    return f"the instance has {counted(order.workers, 'worker')}", {"workers": list(names)}


def _filter(app: Orderable, order: FilterOrder) -> Did:
    found = app.set_filters(
        order.worker, order.patterns, timeout=order.timeout, subscription=order.subscription
    )
    return f"{order.worker}: filters changed", {"filters": dict(found)}


def _lift(app: Orderable, order: LimitOrder) -> Did:
    del order
    lifted = _names(app.lift_dlq_limit())
    return f"resumed behind their dead-letter limit: {some(lifted)}", {"lifted": lifted}


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return [str(each) for each in partitions]


_DO: Mapping[type[Any], Callable[[Orderable, Any], Did]] = {
    PauseOrder: _fetching,
    ResumeOrder: _fetching,
    QuiesceOrder: _quiesce,
    ScaleOrder: _scale,
    RangeOrder: _slots,
    SlotOrder: _slots,
    FilterOrder: _filter,
    LimitOrder: _lift,
    LogLevelOrder: _log_level,
}
