"""Shared parts of measured processes: client settings, protocol, run of the app.

A child reads its task as JSON from standard input and writes lines of JSON to standard output. The
first line is ``"ready"`` if the parent waits for it. The last line is the result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from kafka_keyshared.config import client_conf

if TYPE_CHECKING:
    from kafka_keyshared.app.keyshared import KeyShared
    from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
    from kafka_keyshared.runtime.instance_view import InstanceView
    from kafka_keyshared.runtime.loop import Loop

Side = Literal["bare", "keyshared"]
T = TypeVar("T")

COMMIT_INTERVAL = 1.0
IDLE_LIMIT = 60.0
READY = "ready"

SEED = 20130101
"""Seed of everything random: the same on every run."""


class Stalled(Exception):  # noqa: N818 - names the event
    """Nothing arrived, no further record settled, or the run did not end as it must."""


class ReadTask(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The topic, the client and the side to measure: the beginning of every task."""

    side: Side
    bootstrap: str
    topic: str
    group: str
    workers: str = "thread:8"


def conf_for(reading: ReadTask, **settings: Any) -> dict[str, Any]:
    """Return the configuration of the client: the package's own defaults, on both sides alike.

    So the bench measures the layer, and not the effect of its defaults on the client.
    """
    return client_conf(
        {
            "bootstrap.servers": reading.bootstrap,
            "group.id": reading.group,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )


def read_task(kind: type[T]) -> T:
    """Return the task on standard input."""
    return msgspec.json.decode(sys.stdin.buffer.read(), type=kind)


def tell_parent(what: Any) -> None:
    """Write one line of JSON for the parent."""
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


def ready_with(partitions: int) -> Callable[[str, Sequence[Any]], None]:
    """Return a rebalance hook that writes ``"ready"`` once that many partitions are assigned."""

    def rebalanced(what: str, assigned: Sequence[Any]) -> None:
        if what == "assigned" and len(assigned) == partitions:
            tell_parent(READY)

    return rebalanced


def run_app(
    reading: ReadTask,
    conf: Mapping[str, Any],
    handler: Callable[[Any], Any],
    stepped: Callable[[KeyShared, InstanceView], None],
    *,
    rebalanced: Callable[[str, Sequence[Any]], None] | None = None,
    **options: Any,
) -> Loop:
    """Run the package until ``stepped``, called after every round of it, stops it.

    Returns the loop that ran. Raises :class:`Stalled` when it did not stop cleanly with its last
    commit acknowledged.
    """
    # Imported here, so that the bare side does not load it.
    from kafka_keyshared.app.hooks import Hooks
    from kafka_keyshared.app.keyshared import KeyShared

    app = KeyShared(
        conf,
        [reading.topic],
        workers=reading.workers,
        commit_interval=COMMIT_INTERVAL,
        hooks=Hooks(stepped=lambda view: stepped(app, view), rebalanced=rebalanced),
        **options,
    )
    app.handler(handler)
    status = app.run()
    instance, report = app.instance, app.report
    if instance is None or report is None:
        raise Stalled("the run ended before its first step")
    if status or not report.commit_accepted:
        raise Stalled(
            f"the run ended with status {status} and {settled(instance.core)} records settled: "
            f"{report.line()}"
        )
    return instance.loop


def settled(core: Dispatcher | InstanceView) -> int:
    """Return how many records the measured app has done so far."""
    return core.subscriptions["default"].counts.ok


class StallDetector:
    """Notices when a count stops changing."""

    def __init__(self) -> None:
        self._count = 0
        self._moved = time.monotonic()

    def still_for(self, count: int) -> float:
        """Return for how many seconds the count has not changed."""
        now = time.monotonic()
        if count != self._count:
            self._count, self._moved = count, now
        return now - self._moved

    def check(self, count: int, what: str) -> None:
        """Raise :class:`Stalled` if the count has not changed for a minute."""
        if self.still_for(count) > IDLE_LIMIT:
            raise Stalled(f"nothing {what} for {IDLE_LIMIT:g} s after {count} records")
