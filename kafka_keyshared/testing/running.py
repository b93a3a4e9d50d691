"""An app that runs in a thread beside a test, with waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared import KeyShared
from kafka_keyshared.config import connection_conf, starts_at_beginning
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.instance_view import InstanceView

_LOOK_AGAIN = 0.5
_ASK = 10.0


@dataclass(frozen=True)
class _View:
    """The owner's state at its latest step; an immutable value, so that any thread may read it.

    ``skipped`` are partitions that began at their end, as long as no record at all has come.
    """

    settled: int = 0
    held: int = 0
    lanes: tuple[str, ...] = ()
    received: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    skipped: frozenset[TopicPartition] = frozenset()


class RunningApp:
    """An app that :func:`running` has started.

    Every wait raises ``AssertionError`` when it takes longer than ``timeout`` seconds. The message
    has the condition and the state of the app. A wait also fails at once when the app ends by
    itself.
    """

    def __init__(self, app: KeyShared, timeout: float) -> None:
        self.app = app
        self.timeout = timeout
        self.status: int | None = None
        self._error: BaseException | None = None
        self._over = False
        self._view = _View()
        # Partitions without a committed position.
        self._unstored: set[TopicPartition] = set()
        self._changed = threading.Condition()
        self._hooks = app.hooks
        app.hooks = replace(app.hooks, stepped=self._stepped)
        self._thread = threading.Thread(target=self._run, name="keyshared-app", daemon=True)
        self._thread.start()

    # --- the test's calls ---

    @property
    def settled(self) -> int:
        """The number of records that this run has settled: done, dropped or dead-lettered."""
        return self._view.settled

    @property
    def unsettled(self) -> int:
        """The number of records that were received and are not settled."""
        return self._view.held

    def wait_assigned(self) -> None:
        """Wait until the coordinator has assigned partitions to the app."""
        self._wait(lambda: bool(self._view.received), "the group has given the app no partitions")

    def wait_settled(self, count: int | None = None) -> None:
        """Wait until ``count`` records have settled in this run.

        Without a ``count``, wait until all records are settled that are in the app's partitions at
        the time of the call. A record whose key is blocked never settles.
        """
        if count is not None:
            self._wait(lambda: self._view.settled >= count, f"{count} records are not settled")
            return
        self.wait_assigned()
        ends = self._ends()

        def done() -> bool:
            view = self._view
            # A partition that was revoked since is settled by another member.
            here = {each: end for each, end in ends.items() if each in view.received}
            return (
                view.held == 0
                and view.skipped.isdisjoint(here)
                and all((view.received[e] or 0) >= n for e, n in here.items())
            )

        ahead = ", ".join(f"{each} to {end}" for each, end in sorted(ends.items()))
        self._wait(done, f"not everything is settled ({ahead})")

    def stop(self) -> int:
        """Stop the app as SIGTERM does, wait for its end and return its exit status.

        Raises the exception of ``app.run()``, if there was one.
        """
        self.app.stop()
        limit = self.app.options.stop_timeout + self.timeout
        self._thread.join(limit)
        if self._thread.is_alive():
            raise AssertionError(f"the app did not end within {limit:g} s; {self._shown()}")
        if self._error is not None:
            raise self._error
        return 1 if self.status is None else self.status

    # --- internals ---

    def _run(self) -> None:
        try:
            self.status = self.app.run()
        except BaseException as error:  # noqa: BLE001 - raised again where the test waits
            self._error = error
        finally:
            self.app.hooks = self._hooks
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _stepped(self, inside: InstanceView) -> None:
        if self._hooks.stepped is not None:
            self._hooks.stepped(inside)
        received = {each: state.received_end for each, state in inside.partitions.items()}
        for partition in received.keys() - self._view.received.keys():
            if inside.committed(partition) is None:
                self._unstored.add(partition)
        nothing = not inside.fetched and not starts_at_beginning(self.app.conf)
        view = _View(
            inside.settled(),
            inside.held(),
            tuple(
                f"key {closed.key!r} is {closed.state.value} after {closed.failures} attempts"
                + (
                    ""
                    if closed.last is None
                    else f" ({closed.last.error_type}: {closed.last.message:.200})"
                )
                for sub in inside.subscriptions.values()
                for closed in list(sub.closed.lanes.values())[:5]
            ),
            received,
            frozenset(each for each in self._unstored if nothing and received.get(each)),
        )
        if view != self._view:
            with self._changed:
                self._view = view
                self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + self.timeout
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                if self._over:
                    raise AssertionError(
                        f"the app has ended and {otherwise}: {self._ending()}"
                    ) from self._error
                if left <= 0:
                    raise AssertionError(f"after {self.timeout:g} s {otherwise}; {self._shown()}")
                self._changed.wait(min(left, _LOOK_AGAIN))

    def _ending(self) -> str:
        if self._error is not None:
            return f"run() raised {type(self._error).__name__}: {self._error}"
        report = self.app.report
        halted = self.app.instance.halted if self.app.instance is not None else None
        return ", ".join(
            each
            for each in (
                f"run() returned {self.status}",
                f"halted: {halted}" if halted else "",
                report.line() if report is not None else "",
            )
            if each
        )

    def _shown(self) -> str:
        view = self._view
        if not view.received:
            where = "it has no partitions"
        else:
            where = "received " + ", ".join(
                f"{each} up to {'nothing' if end is None else end}"
                for each, end in sorted(view.received.items())
            )
        hint = ""
        nothing_yet = view.skipped or None in view.received.values()
        if nothing_yet and not starts_at_beginning(self.app.conf):
            reset = self.app.conf.get("auto.offset.reset", "latest")
            hint = (
                f"; auto.offset.reset is {reset!r}, so a group without positions begins at the end"
            )
        lanes = "".join(f"; {each}" for each in view.lanes)
        return (
            f"the app: {view.settled} settled, {view.held} received and not settled, {where}"
            f"{lanes}{hint}"
        )

    def _ends(self) -> dict[TopicPartition, int]:
        conf = {**connection_conf(self.app.conf), "group.id": "keyshared-reader", "log_level": 2}
        reader = Consumer(conf)
        try:
            ends: dict[TopicPartition, int] = {}
            for each in self._view.received:
                bounds = reader.get_watermark_offsets(ClientPartition(*each), timeout=_ASK)
                if bounds is not None and bounds[1] > bounds[0]:
                    ends[each] = bounds[1]
            return ends
        finally:
            reader.close()


@contextmanager
def running(app: KeyShared, *, timeout: float = 30.0, exit_status: int = 0) -> Iterator[RunningApp]:
    """Run an app in a thread for the length of a ``with`` block.

    The block begins once the coordinator has assigned partitions to the app. At its end the app is
    stopped as by SIGTERM. If it does not end with ``exit_status``, ``AssertionError`` is raised, or
    the exception of ``app.run()``. An error of the block itself comes first. ``timeout`` is in
    seconds, for each wait.

    >>> with running(app) as run:  # doctest: +SKIP
    ...     run.wait_settled()
    """
    run = RunningApp(app, timeout)
    try:
        run.wait_assigned()
        yield run
    except BaseException:
        app.stop()
        run._thread.join(app.options.stop_timeout + timeout)
        raise
    status = run.stop()
    if status != exit_status:
        raise AssertionError(
            f"the app ended with status {status}, not {exit_status}: {run._ending()}"
        )
