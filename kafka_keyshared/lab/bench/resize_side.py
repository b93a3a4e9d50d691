"""Measured side of ``bench scale``'s resize: the thread count changes under load.

Run as ``python -m kafka_keyshared.lab.bench.resize_side`` with the task as JSON on standard input.
The result is one line of JSON on standard output.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from kafka_keyshared.lab.bench.child import (
    IDLE_LIMIT,
    ReadTask,
    StallDetector,
    Stalled,
    conf_for,
    read_task,
    run_app,
    settled,
    tell_parent,
)
from kafka_keyshared.lab.bench.paced import NS_PER_MS

if TYPE_CHECKING:
    from kafka_keyshared.app.keyshared import KeyShared
    from kafka_keyshared.runtime.instance_view import InstanceView


class ResizeTask(ReadTask, kw_only=True, forbid_unknown_fields=True):
    """The run of one side: ``app.scale(after)`` after ``warm`` records on ``before`` threads."""

    records: int
    warm: int
    before: int
    after: int
    sleep_ms: float


class ResizeTimes(msgspec.Struct, kw_only=True):
    """The effect of the call. Times are milliseconds from the call of ``app.scale()``.

    ``first_ms`` is when the first record started on a new thread. ``every_ms`` is when each new
    thread had started one. ``call_ms`` is when the call returned. ``drained_slots`` counts slots
    that had to wait for records of a former owner.
    """

    first_ms: float
    every_ms: float
    call_ms: float
    drained_slots: int
    new_threads: int


class Starts:
    """Notes when each thread started its first record. Any thread may note it, without a lock."""

    def __init__(self, sleep_ms: float) -> None:
        self.first: dict[int, int] = {}
        self._seconds = sleep_ms / 1e3

    def handle(self, _record: Any) -> None:
        """Note the thread, and sleep."""
        now = time.monotonic_ns()
        self.first.setdefault(threading.get_ident(), now)
        time.sleep(self._seconds)


class ScaleCall:
    """The call of ``app.scale()``, on a separate thread as with any caller."""

    def __init__(self, app: KeyShared, starts: Starts, after: int) -> None:
        self._app, self._starts, self._after = app, starts, after
        self._old = frozenset(starts.first)
        self._error: Exception | None = None
        self._called = self._returned = 0
        self._thread = threading.Thread(target=self._call, daemon=True)
        self._thread.start()

    def _call(self) -> None:
        self._called = time.monotonic_ns()
        try:
            self._app.scale(self._after, IDLE_LIMIT)
        except Exception as error:  # noqa: BLE001 - raised in result(), on the main thread
            self._error = error
        self._returned = time.monotonic_ns()

    def new(self) -> list[int]:
        """Return when each thread without a record before the call started its first one."""
        return [at for thread, at in self._starts.first.copy().items() if thread not in self._old]

    @property
    def failed(self) -> bool:
        """Whether the call was refused or timed out."""
        return self._error is not None

    @property
    def over(self) -> bool:
        """Whether the call has returned and each new thread has started a record."""
        return bool(self._returned) and len(self.new()) >= self._after - len(self._old)

    def result(self, drained: int) -> ResizeTimes:
        """Return the figures. Raises the error of the call."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        new = self.new()
        return ResizeTimes(
            first_ms=(min(new) - self._called) / NS_PER_MS,
            every_ms=(max(new) - self._called) / NS_PER_MS,
            call_ms=(self._returned - self._called) / NS_PER_MS,
            drained_slots=drained,
            new_threads=len(new),
        )


def run(task: ResizeTask) -> ResizeTimes:
    """Run the package until each new thread has started a record. The rest stays undone.

    Raises :class:`Stalled` if the backlog ends before that.
    """
    starts, patience = Starts(task.sleep_ms), StallDetector()
    orders: list[ScaleCall] = []
    ended: list[ScaleCall] = []
    drained = 0

    def stepped(app: KeyShared, view: InstanceView) -> None:
        nonlocal drained
        done = settled(view)
        draining = view.subscriptions["default"].draining
        drained = max(drained, draining.count + draining.cleared_total)
        if not orders:
            if done >= task.warm and len(starts.first) >= task.before:
                orders.append(ScaleCall(app, starts, task.after))
        elif orders[0].over or orders[0].failed:
            ended.append(orders[0])
            app.stop()
        if done >= task.records or patience.still_for(done) > IDLE_LIMIT:
            app.stop()

    run_app(task, conf_for(task), starts.handle, stepped)
    # If the backlog ends first, the call is refused because the app stops.
    if not ended:
        raise Stalled(
            f"the {task.records} records ended before each new thread had one; give more records"
        )
    return ended[0].result(drained)


def main() -> int:
    """Run the task on standard input."""
    tell_parent(run(read_task(ResizeTask)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
