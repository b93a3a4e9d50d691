"""Release and adoption of a handler's state by slot.

Both run in the worker's thread.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_keyshared.core.contract.commands import Adopt, Release
from kafka_keyshared.core.contract.events import Released
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import counted

log = log_of("kafka_keyshared.pool")


def hand_over(
    name: str, made: Made, item: Release | Adopt, in_child: Callable[[], bool]
) -> Released | None:
    """Have a worker's handler release or adopt the state of slots; return the answer to post.

    An exception of the handler is logged. In a child that the handler has forked, it is raised
    instead.
    """
    error = state = None
    try:
        if isinstance(item, Release):
            state = None if made.release is None else made.release(tuple(item.slots))
        elif made.adopt is not None:
            made.adopt(tuple(item.slots), item.state)
    except BaseException as raised:
        if in_child():
            raise
        what = "release" if isinstance(item, Release) else "adopt"
        log.exception(
            "%s: %s() of the handler failed, for %s; keys there begin without their state",
            name,
            what,
            counted(len(item.slots), "slot"),
            extra={"worker": name},
        )
        error = f"{type(raised).__name__}: {raised}"
    if isinstance(item, Adopt):
        return None
    return Released(item.subscription, item.worker, item.number, state, error)
