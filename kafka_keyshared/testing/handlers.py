"""Runs a handler without Kafka, threads or waiting, by the rules that it will live under.

Routing, order, retries, verdicts and dead letters are decided by the package's own core, and the
handler is called by the thread pool's own code. Only time is made up: a delay passes at once, when
there is nothing else left to run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any, Literal, Self, TypeAlias

from kafka_keyshared import KeyShared
from kafka_keyshared.clock import Clock
from kafka_keyshared.core import commands as cmd
from kafka_keyshared.core import events as ev
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.dispositions import Failure
from kafka_keyshared.core.lanes import ClosedLane, LaneState
from kafka_keyshared.dlq.envelope import headers_of
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.handling.handlers import Made
from kafka_keyshared.handling.outputs import handing_out
from kafka_keyshared.model import Output, Record, TopicPartition, partition_of
from kafka_keyshared.pools.actor import Mail
from kafka_keyshared.pools.inline import Inline, InlinePool
from kafka_keyshared.testing.records import TOPIC, Content, ReceivedRecord, moved, record

Outcome: TypeAlias = Literal["done", "dropped", "dead_lettered", "blocked", "waiting"]
Input: TypeAlias = "ReceivedRecord | tuple[Content, Content]"


@dataclass(frozen=True)
class Result:
    """What became of one record.

    ``outcome`` is ``done``, ``dropped`` or ``dead_lettered`` when it is settled; ``blocked`` when
    it failed for good and keeps its key closed, ``waiting`` when it stands behind such a one.
    ``attempts`` says how many attempts it had, ``called_at`` when, in seconds of made-up time since
    the first record; ``failures`` how those attempts ended that failed, and ``error`` what was
    raised last. A record whose key cannot be read has no attempt. ``dead_letter`` is what would
    have been written, and where to, with its headers; ``outputs`` is what the handler has handed
    out.
    """

    record: ReceivedRecord
    outcome: Outcome
    attempts: int
    called_at: tuple[float, ...] = ()
    failures: tuple[Failure, ...] = ()
    error: BaseException | None = field(default=None, compare=False)
    dead_letter: ReceivedRecord | None = None
    outputs: tuple[Output, ...] = ()

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
    failures: list[Failure] = field(default_factory=list)
    error: BaseException | None = None
    dropped: bool = False
    dead_letter: ReceivedRecord | None = None
    outputs: tuple[Output, ...] = ()


class _Lives:
    """What has become of each record of an app, by its place."""

    def __init__(self, app: KeyShared) -> None:
        self._app = app
        self._known: dict[tuple[TopicPartition, int], _Life] = {}
        self.interrupt: BaseException | None = None

    def begin(self, given: ReceivedRecord) -> None:
        self._known[partition_of(given), given.offset()] = _Life(given)

    def of(self, given: Any) -> _Life:
        return self._known[partition_of(given), given.offset()]

    def note(self, item: Mail, record_of: Callable[[int, int], Record]) -> None:
        if isinstance(item, ev.Failed):
            self.of(record_of(item.slice, item.index)).failures.append(item.failure)
        elif isinstance(item, ev.Ended):
            for index in item.dropped:
                self.of(record_of(item.slice, index)).dropped = True

    def written(self, publish: cmd.Publish) -> None:
        source = publish.record
        life = self.of(source)
        life.dead_letter = record(
            source.key(),
            source.value(),
            headers=headers_of(publish, str(self._app.conf["group.id"])),
            topic=self._app.options.dlq_topic(source.topic()),
            timestamp=source.timestamp()[1],
        )
        if not life.failures:
            life.failures.append(publish.last)  # its key could not be read


class _Drive(Inline):
    """Drives the core, and notes what it says of each record."""

    def __init__(
        self,
        core: Dispatcher,
        pool: InlinePool,
        mailbox: SimpleQueue[Any],
        clock: Callable[[], float],
        wait: Callable[[float], None],
        *,
        lives: _Lives,
    ) -> None:
        super().__init__(core, pool, mailbox, clock, wait)
        self._lives = lives

    def turn(self) -> bool:
        moved_on = super().turn()
        interrupt, self._lives.interrupt = self._lives.interrupt, None
        if interrupt is not None:
            raise interrupt
        return moved_on

    def hear(self, mail: Iterable[Mail]) -> None:
        known = list(mail)
        for item in known:
            self._lives.note(item, self._record_of)
        super().hear(known)

    def _record_of(self, id_: int, index: int) -> Record:
        return self.core.leased(id_).slice.records[index]

    def publish(self, publish: cmd.Publish) -> None:
        self._lives.written(publish)
        self.answer(ev.DeadLettered(publish))


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
        if not app.options.serial:
            raise ConfigError(
                f"workers={app.options.workers!r}: the members of such an app ask for records, and "
                "there is no handler to call; call your own code with record(...)"
            )
        self.app = app
        self.calls: list[ReceivedRecord] = []
        """The records in the order in which the handler was called with them."""
        self.now = 0.0
        self._lives = _Lives(app)
        self._ends: dict[TopicPartition, int] = {}
        settings = replace(app.subscription, retry=app.subscription.retry._replace(jitter=0.0))
        mailbox: SimpleQueue[Any] = SimpleQueue()
        specs = [replace(each, make=self._watched(each.make)) for each in app.worker_specs()]
        pool = InlinePool(specs, mailbox, Clock(lambda: self.now))
        core = Dispatcher([settings])
        self._drive = _Drive(core, pool, mailbox, lambda: self.now, self._pass, lives=self._lives)
        pool.start(core.lanes)

    def _pass(self, until: float) -> None:
        self.now = max(self.now, until)

    # --- what a test says ---

    def run(self, records: Iterable[Input]) -> list[Result]:
        """Let the handler have these records; return what became of each, in their order.

        Each is made by :func:`~kafka_keyshared.testing.record`, or a (key, value) pair. They are
        there all at once, like a fetched chunk. Offsets have to rise within a partition: a record
        whose offset does not is moved behind the one before it, so that ``record(...)`` without an
        offset will do. What an earlier call left blocked stays so.
        """
        given = [self._placed(each) for each in records]
        self._drive.run(given)
        subscriptions = self._drive.core.subscriptions.values()
        unsettled = {id(each) for sub in subscriptions for each in sub.waiting()}
        unsettled.update(id(each) for each in self._drive.ahead)
        return [self._result(each, settled=id(each) not in unsettled) for each in given]

    def close(self) -> None:
        """End the workers: every handler's ``close()`` is called, where there is one."""
        self._drive.workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- records in ---

    def _placed(self, given: Input) -> ReceivedRecord:
        made = record(*given) if isinstance(given, tuple) else given
        partition = partition_of(made)
        if partition not in self._ends:
            self._drive.tell(ev.Assigned({partition: ev.StartPoint(made.offset())}))
        following = self._ends.get(partition, 0)
        if made.offset() < following:
            made = moved(made, following)
        self._ends[partition] = made.offset() + 1
        self._lives.begin(made)
        return made

    # --- what happened ---

    def _watched(self, make: Callable[[], Made]) -> Callable[[], Made]:
        """Return what makes the same handler, of which each call is noted."""

        def hand_out(given: Record, outputs: Sequence[Output]) -> None:
            self._lives.of(given).outputs = tuple(outputs)

        def make_watched() -> Made:
            made = make()
            handle = made.handle

            def watched(given: ReceivedRecord) -> Any:
                life = self._lives.of(given)
                # Sums of delays such as 0.1 and 0.2 would else be compared to 0.30000000000000004.
                life.called_at.append(round(self.now, 6))
                self.calls.append(given)
                try:
                    return handle(given)
                except BaseException as error:
                    life.error = error
                    if isinstance(error, _interrupts()):
                        self._lives.interrupt = error
                    raise

            return made._replace(handle=handing_out(watched, hand_out))

        return make_watched

    def _result(self, given: ReceivedRecord, *, settled: bool) -> Result:
        life = self._lives.of(given)
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
            life.outputs,
        )

    def _blocked_by(self, given: ReceivedRecord) -> ClosedLane | None:
        """Return the lane that the record itself keeps closed."""
        for sub in self._drive.core.subscriptions.values():
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
