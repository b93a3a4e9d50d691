"""Runs a handler without Kafka, threads or waiting, by the rules that it will live under.

Routing, order, retries, verdicts and dead letters are decided by the package's own core, and the
handler is called by the thread pool's own code. Only time is made up: a delay passes at once, when
there is nothing else left to run.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, Literal, Self, TypeAlias

from kafka_keyshared import KeyShared
from kafka_keyshared.core import events as ev
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.lanes import ClosedLane, LaneState
from kafka_keyshared.dlq.envelope import headers_of
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.handling.handlers import Made
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition, partition_of
from kafka_keyshared.testing.inline import InlinePool
from kafka_keyshared.testing.records import TOPIC, Content, ReceivedRecord, moved, record

log = log_of("kafka_keyshared.testing")

Outcome: TypeAlias = Literal["done", "dropped", "dead_lettered", "blocked", "waiting"]
Input: TypeAlias = "ReceivedRecord | tuple[Content, Content]"

_CHUNK = 2_000


@dataclass(frozen=True)
class Result:
    """What became of one record.

    ``outcome`` is ``done``, ``dropped`` or ``dead_lettered`` when it is settled; ``blocked`` when
    it failed for good and keeps its key closed, ``waiting`` when it stands behind such a one.
    ``attempts`` says how many attempts it had, ``called_at`` when, in seconds of made-up time since
    the first record; ``failures`` how those attempts ended that failed, and ``error`` what was
    raised last. A record whose key cannot be read has no attempt. ``dead_letter`` is what would
    have been written, and where to, with its headers.
    """

    record: ReceivedRecord
    outcome: Outcome
    attempts: int
    called_at: tuple[float, ...] = ()
    failures: tuple[ev.Failure, ...] = ()
    error: BaseException | None = field(default=None, compare=False)
    dead_letter: ReceivedRecord | None = None

    @property
    def reason(self) -> str:
        """Why its last attempt failed, such as ``ValueError: no such customer``; else empty."""
        if not self.failures:
            return ""
        last = self.failures[-1]
        return f"{last.error_type}: {last.message}" if last.message else last.error_type


@dataclass
class _Life:
    """What has happened to a record so far."""

    record: ReceivedRecord
    called_at: list[float] = field(default_factory=list)
    failures: list[ev.Failure] = field(default_factory=list)
    error: BaseException | None = None
    dropped: bool = False
    dead_letter: ReceivedRecord | None = None


class HandlerTest:
    """A handler, the settings it runs under, and time that passes by itself.

    ``handler`` is a function or a class, as for :meth:`KeyShared.handler`; or an app with its
    handler and all its settings. ``options`` are what :class:`KeyShared` takes (retry, dlq,
    dead_letter_on, value_deserializer and so on). Unlike there, one worker is the default, so that
    a handler class has one instance. Delays are exact, without jitter; a dead letter is
    acknowledged at once.

    Raises :class:`~kafka_keyshared.errors.ConfigError` for whatever an app would refuse. A context
    manager: at its end the handler's ``close()`` is called, where there is one.
    """

    def __init__(self, handler: Callable[..., Any] | KeyShared, **options: Any) -> None:
        app = handler if isinstance(handler, KeyShared) else _app_of(handler, options)
        if app is handler and options:
            raise ConfigError(
                f"HandlerTest(app, {', '.join(options)}=…): the app has its options; leave them out"
            )
        if app.options.pool != "thread":
            raise ConfigError(
                f"workers={app.options.workers!r}: the members of such an app ask for records, and "
                "there is no handler to call; call your own code with record(...)"
            )
        self.app = app
        self.calls: list[ReceivedRecord] = []
        """The records in the order in which the handler was called with them."""
        self.now = 0.0
        self._lives: dict[tuple[TopicPartition, int], _Life] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._ahead: deque[ReceivedRecord] = deque()
        self._interrupt: BaseException | None = None
        self._halted: str | None = None
        settings = replace(app.subscription, retry=app.subscription.retry._replace(jitter=0.0))
        self._core = Dispatcher([settings])
        self._mailbox: SimpleQueue[Any] = SimpleQueue()
        specs = [replace(each, make=self._watched(each.make)) for each in app.worker_specs()]
        self._pool = InlinePool(specs, self._mailbox)
        self._acts: dict[type[Any], Callable[[Any], object]] = {
            ev.Lease: lambda command: self._pool.submit(command.slice),
            ev.Fence: self._pool.fence,
            ev.Recall: lambda c: self._tell(self._pool.recall(c.subscription, c.worker)),
            ev.Publish: self._publish,
            ev.Pause: lambda command: self._paused.update(command.partitions),
            ev.Resume: lambda command: self._paused.difference_update(command.partitions),
            ev.Notice: lambda command: log.log(command.level, "%s", command.text),
            ev.Halt: self._halt,
            ev.AssignAt: lambda _: None,
        }
        self._pool.start()

    # --- what a test says ---

    def run(self, records: Iterable[Input]) -> list[Result]:
        """Let the handler have these records; return what became of each, in their order.

        Each is made by :func:`~kafka_keyshared.testing.record`, or a (key, value) pair. They are
        there all at once, like a fetched chunk. Offsets have to rise within a partition: a record
        whose offset does not is moved behind the one before it, so that ``record(...)`` without an
        offset will do. What an earlier call left blocked stays so.
        """
        given = [self._placed(each) for each in records]
        self._ahead.extend(given)
        self._drive()
        unsettled = {
            id(each) for sub in self._core.subscriptions.values() for each in sub.waiting()
        }
        unsettled.update(id(each) for each in self._ahead)
        return [self._result(each, settled=id(each) not in unsettled) for each in given]

    def close(self) -> None:
        """End the workers: every handler's ``close()`` is called, where there is one."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- records in ---

    def _placed(self, given: Input) -> ReceivedRecord:
        made = record(*given) if isinstance(given, tuple) else given
        partition = partition_of(made)
        if partition not in self._ends:
            self._tell(ev.Assigned({partition: ev.StartPoint(made.offset())}))
        following = self._ends.get(partition, 0)
        if made.offset() < following:
            made = moved(made, following)
        self._ends[partition] = made.offset() + 1
        self._lives[partition, made.offset()] = _Life(made)
        return made

    def _fetch(self) -> bool:
        """Give the core what it has room for; say whether it took anything."""
        room = min(self._core.room(), _CHUNK)
        chunk: list[ReceivedRecord] = []
        held: deque[ReceivedRecord] = deque()
        while self._ahead and len(chunk) < room:
            following = self._ahead.popleft()
            (held if partition_of(following) in self._paused else chunk).append(following)
        self._ahead.extendleft(reversed(held))
        if chunk:
            ends = {partition_of(each): each.offset() + 1 for each in chunk}
            self._tell(ev.Fetched(chunk, ends))
        return bool(chunk)

    # --- one step after the other ---

    def _drive(self) -> None:
        while True:
            moved_on = self._fetch()
            self._pool.work()
            moved_on = self._serve() or moved_on
            if self._interrupt is not None:
                interrupt, self._interrupt = self._interrupt, None
                raise interrupt
            if self._halted is not None:
                raise KeySharedError(f"the instance would stop here: {self._halted}")
            if moved_on:
                continue
            due = self._core.next_due()
            if due is None:
                return
            self.now = max(self.now, due)
            self._tell(ev.Flush())

    def _serve(self) -> bool:
        reports: list[ev.Report] = []
        answers: list[ev.DeadLettered] = []
        while True:
            try:
                item = self._mailbox.get_nowait()
            except Empty:
                break
            if isinstance(item, ev.DeadLettered):
                answers.append(item)
                continue
            self._note(item)
            reports.append(item)
        if reports:
            self._tell(ev.Reported(reports))
        for answer in answers:
            self._tell(answer)
        return bool(reports or answers)

    def _tell(self, event: ev.Event) -> None:
        for command in self._core.handle(event, self.now):
            self._acts[type(command)](command)

    def _halt(self, command: ev.Halt) -> None:
        self._halted = command.reason

    def _publish(self, publish: ev.Publish) -> None:
        source = publish.record
        life = self._life(source)
        life.dead_letter = record(
            source.key(),
            source.value(),
            headers=headers_of(publish, str(self.app.conf["group.id"])),
            topic=self.app.options.dlq_topic(source.topic()),
            timestamp=source.timestamp()[1],
        )
        if not life.failures:
            life.failures.append(publish.last)  # its key could not be read
        self._mailbox.put(ev.DeadLettered(publish))

    # --- what happened ---

    def _life(self, of: Any) -> _Life:
        return self._lives[partition_of(of), of.offset()]

    def _note(self, report: ev.Report) -> None:
        if isinstance(report, ev.Failed):
            self._life(report.record).failures.append(report.failure)
        elif isinstance(report, ev.Ended):
            for each in report.slice.dropped:
                self._life(each).dropped = True

    def _watched(self, make: Callable[[], Made]) -> Callable[[], Made]:
        """Return what makes the same handler, of which each call is noted."""

        def make_watched() -> Made:
            handle, close = make()

            def watched(given: ReceivedRecord) -> Any:
                life = self._life(given)
                # Sums of delays such as 0.1 and 0.2 would else be compared to 0.30000000000000004.
                life.called_at.append(round(self.now, 6))
                self.calls.append(given)
                try:
                    return handle(given)
                except BaseException as error:
                    life.error = error
                    if isinstance(error, _interrupts()):
                        self._interrupt = error
                    raise

            return watched, close

        return make_watched

    def _result(self, given: ReceivedRecord, *, settled: bool) -> Result:
        life = self._life(given)
        outcome: Outcome = "done"
        if not settled:
            closed = self._blocked_by(given)
            outcome = "waiting" if closed is None else "blocked"
            if closed is not None and closed.last is not None and not life.failures:
                life.failures.append(closed.last)  # its key could not be read
        elif life.dead_letter is not None:
            outcome = "dead_lettered"
        elif life.dropped or len(life.failures) == len(life.called_at):
            outcome = "dropped"
        return Result(
            given,
            outcome,
            len(life.called_at),
            tuple(life.called_at),
            tuple(life.failures),
            life.error,
            life.dead_letter,
        )

    def _blocked_by(self, given: ReceivedRecord) -> ClosedLane | None:
        """Return the lane that the record itself keeps closed."""
        for sub in self._core.subscriptions.values():
            for closed in sub.closed.lanes.values():
                if closed.head is given and closed.state is LaneState.BLOCKED:
                    return closed
        return None


def _app_of(handler: Callable[..., Any], options: Mapping[str, Any]) -> KeyShared:
    # Nothing connects before it runs, and it never does.
    conf = {"bootstrap.servers": "nowhere.invalid:9092", "group.id": "keyshared-test"}
    app = KeyShared(conf, [TOPIC], **{"workers": 1, **options})
    app.handler(handler)
    return app


def run_handler(
    handler: Callable[..., Any] | KeyShared, records: Iterable[Input], **options: Any
) -> list[Result]:
    """Run a handler over records once; return what became of each.

    ``options`` are those of :class:`HandlerTest`.

    >>> [paid] = run_handler(lambda record: None, [("customer-1", b"paid")])
    >>> paid.outcome, paid.attempts
    ('done', 1)
    """
    with HandlerTest(handler, **options) as test:
        return test.run(records)


def _interrupts() -> tuple[type[BaseException], ...]:
    """What ends a test when a handler raises it: Ctrl-C, and the outcomes of pytest.

    An app would call any of them a failed attempt.
    """
    pytest: Any = sys.modules.get("pytest")
    outcomes: Sequence[Any] = () if pytest is None else (pytest.fail, pytest.skip, pytest.exit)
    return (KeyboardInterrupt, *(each.Exception for each in outcomes))
