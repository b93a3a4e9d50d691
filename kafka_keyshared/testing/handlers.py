"""Runs of a handler without Kafka, threads or waiting, by production rules.

The package's own core decides on routing, order, retries, verdicts and dead letters. The code of
the app's pool calls the handler: one record after the other, in batches, or as coroutines. Only
time is simulated: a delay passes at once when no other work is left. An awaited call of a coroutine
takes real time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import Any, Literal, Self, TypeAlias

from kafka_keyshared import KeyShared
from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.lanes.closed import ClosedLane, LaneState
from kafka_keyshared.dlq.envelope import headers_of
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.executors.command_interpreter import Mail
from kafka_keyshared.executors.coroutines.asyncio_batch_worker import CallWorker
from kafka_keyshared.executors.coroutines.asyncio_pool import MakeWorker
from kafka_keyshared.executors.coroutines.asyncio_record_worker import TaskWorker
from kafka_keyshared.executors.coroutines.task_frames import awaitable
from kafka_keyshared.executors.handling.batching import for_all, outcomes_of
from kafka_keyshared.executors.handling.handlers import Made, awaits
from kafka_keyshared.executors.handling.outputs import handing_out
from kafka_keyshared.executors.inline.driver import Inline, InlineBatches, InlinePool, InlineWorkers
from kafka_keyshared.executors.inline.inline_loop import InlineTasks
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.model import Output, Record, TopicPartition, name_of, partition_of
from kafka_keyshared.testing.records import TOPIC, Content, ReceivedRecord, moved, record

ATTEMPTS_MOST = 1_000
"""Attempts of a record after which a test ends: with real time it would go on forever."""

Outcome: TypeAlias = Literal["done", "dropped", "dead_lettered", "blocked", "waiting"]
Input: TypeAlias = "ReceivedRecord | tuple[Content, Content]"


@dataclass(frozen=True)
class Result:
    """The result of one record.

    ``outcome`` is ``done``, ``dropped`` or ``dead_lettered`` when the record is settled. It is
    ``blocked`` when the record failed for good and keeps its key closed. It is ``waiting`` when the
    record is behind such a one.

    ``attempts`` is the number of attempts. ``called_at`` has their times, in seconds of simulated
    time since the first record. ``failures`` has the failed attempts, and ``error`` the last
    exception. A record whose key cannot be read has no attempt. ``dead_letter`` is the dead letter
    with its topic and headers. ``outputs`` are the outputs of the handler.
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
        """The reason of the last failure, such as ``ValueError: no such customer``, else empty."""
        if not self.failures:
            return ""
        last = self.failures[-1]
        return f"{last.error_type}: {last.message}" if last.message else last.error_type


@dataclass
class _RecordLife:
    """The history of a record so far. ``called`` means since the last report about it."""

    record: ReceivedRecord
    called_at: list[float] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    error: BaseException | None = None
    dropped: bool = False
    dead_letter: ReceivedRecord | None = None
    outputs: tuple[Output, ...] = ()
    called: bool = False

    def void(self) -> None:
        """Discard its last call."""
        self.called_at.pop()
        self.called = False


class _Lives:
    """The history of each record of an app, by its place."""

    def __init__(self, app: KeyShared) -> None:
        self._app = app
        self._known: dict[tuple[TopicPartition, int], _RecordLife] = {}
        self.interrupt: BaseException | None = None

    def begin(self, given: ReceivedRecord) -> None:
        self._known[partition_of(given), given.offset()] = _RecordLife(given)

    def of(self, given: Any) -> _RecordLife:
        return self._known[partition_of(given), given.offset()]

    def note(self, item: Mail, record_of: Callable[[int, int], Record]) -> None:
        if isinstance(item, ev.Failed):
            life = self.of(record_of(item.slice, item.index))
            life.failures.append(item.failure)
            life.called = False
            if len(life.failures) >= ATTEMPTS_MOST:
                self.interrupt = KeySharedError(
                    f"{name_of(life.record)} has failed {ATTEMPTS_MOST:,} times and is tried again "
                    "without a limit; have the handler succeed in the test, or raise something else"
                )
        elif isinstance(item, ev.SetAside):
            # In a call with several records, this one is behind a failed record of its key.
            if (life := self.of(record_of(item.slice, item.index))).called:
                life.void()
        elif isinstance(item, ev.SliceEnded | ev.SomeEnded):
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
    """Drives the core, and notes its decisions on each record."""

    def __init__(
        self,
        core: Dispatcher,
        pool: InlineWorkers,
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
        self.answer(ev.DeadLetterAnswer(publish))


class HandlerTest:
    """A handler, its settings, and simulated time.

    ``handler`` is a function, a coroutine function or a class, as for :meth:`KeyShared.handler`. It
    may also be an app with its handler, including one of ``batch_handler``, and all its settings.
    ``options`` are those of :class:`KeyShared` (retry, dlq, dead_letter_on, value_deserializer and
    so on). Unlike there, one worker is the default, so that a handler class has one instance.
    Delays are exact, without jitter. A dead letter is acknowledged at once. A batch call waits for
    no further record. Coroutines run on their own event loop, in the thread that calls :meth:`run`.

    Raises :class:`~kafka_keyshared.errors.ConfigError` for any setting that an app would refuse. A
    context manager: at its end it calls the handler's ``close()``, if there is one.
    """

    def __init__(self, handler: Callable[..., Any] | KeyShared, **options: Any) -> None:
        app = handler if isinstance(handler, KeyShared) else _app_of(handler, options)
        if app is handler and options:
            raise ConfigError(
                f"HandlerTest(app, {', '.join(options)}=…): the app has its options; leave them out"
            )
        if app.options.pool in ("pull", "split"):
            raise ConfigError(
                f"workers={app.options.workers!r}: the members of such an app ask for records, and "
                "there is no handler to call; call your own code with record(...)"
            )
        self.app = app
        self.calls: list[ReceivedRecord] = []
        """The records in the order in which the handler was called with them."""
        self.batches: list[list[ReceivedRecord]] = []
        """The calls of a batch handler in their order, each with its records."""
        self.now = 0.0
        self._lives = _Lives(app)
        self._ends: dict[TopicPartition, int] = {}
        # In the given order, if possible. Nothing can happen while an outage is waited for.
        settings = replace(app.subscription, pooled=False, breaker=False, wait_on=False)
        mailbox: SimpleQueue[Any] = SimpleQueue()
        specs = [replace(each, make=self._watched(each.make)) for each in app.worker_specs()]
        pool = _pool_of(app, specs, mailbox, Clock(lambda: self.now, chance=lambda: 0.5))
        core = Dispatcher([settings])
        self._drive = _Drive(core, pool, mailbox, lambda: self.now, self._pass, lives=self._lives)
        pool.start(core.lanes)

    def _pass(self, until: float) -> None:
        self.now = max(self.now, until)

    # --- the test's calls ---

    def run(self, records: Iterable[Input]) -> list[Result]:
        """Run the handler over these records; return the result of each, in their order.

        Each is made by :func:`~kafka_keyshared.testing.record`, or is a (key, value) pair. All are
        available at once, like a fetched chunk. Offsets must ascend within a partition. A record
        whose offset does not is moved behind the one before it, so ``record(...)`` needs no offset.
        Records that an earlier call left blocked stay blocked.
        """
        given = [self._placed(each) for each in records]
        self._drive.run(given)
        subscriptions = self._drive.core.subscriptions.values()
        unsettled = {id(each) for sub in subscriptions for each in sub.unsettled.waiting()}
        unsettled.update(id(each) for each in self._drive.ahead)
        return [self._result(each, settled=id(each) not in unsettled) for each in given]

    def close(self) -> None:
        """End the workers: call the ``close()`` of every handler that has one."""
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

    # --- events ---

    def _watched(self, make: Callable[[], Made]) -> Callable[[], Made]:
        """Return a factory of the same handler, with each call noted."""

        def hand_out(given: Record, outputs: Sequence[Output]) -> None:
            self._lives.of(given).outputs = tuple(outputs)

        def make_watched() -> Made:
            made = make()
            if self.app.batches is not None:
                return made._replace(handle=self._watch(made.handle, self._in_batch))
            watched = self._watch(made.handle, self._in_call)
            return made._replace(handle=handing_out(watched, hand_out))

        return make_watched

    def _watch(
        self, handle: Callable[[Any], Any], call: Callable[[Any], AbstractContextManager[list[Any]]]
    ) -> Callable[[Any], Any]:
        """Return the same handler, with each call inside a ``call``, which gets its answer."""
        if self.app.options.coroutines is None:

            def watched(given: Any) -> Any:
                with call(given) as answer:
                    answer.append(handle(given))
                return answer[0]

            return watched
        awaited = awaitable(handle)

        async def watched_async(given: Any) -> Any:
            with call(given) as answer:
                answer.append(await awaited(given))
            return answer[0]

        return watched_async

    def _begin(self, given: ReceivedRecord) -> _RecordLife:
        life = self._lives.of(given)
        # Otherwise tests would compare sums of delays such as 0.1 and 0.2 with 0.30000000000000004.
        life.called_at.append(round(self.now, 6))
        life.called = True
        self.calls.append(given)
        return life

    @contextmanager
    def _in_call(self, given: ReceivedRecord) -> Iterator[list[Any]]:
        """Note a call with one record."""
        life = self._begin(given)
        try:
            yield []
        except BaseException as error:
            life.error = error
            self._note_interrupt(error)
            raise

    @contextmanager
    def _in_batch(self, given: list[ReceivedRecord]) -> Iterator[list[Any]]:
        """Note a call with several records.

        If the call fails as a whole, it is no attempt of any of them. Each is then called alone.
        """
        self.batches.append(list(given))
        lives = [self._begin(each) for each in given]
        answer: list[Any] = []
        try:
            yield answer
            for life, outcome in zip(lives, outcomes_of(answer[0], len(given)), strict=True):
                life.error = outcome or life.error
        except BaseException as error:
            for life in lives:
                if len(lives) > 1 and not for_all(error):
                    life.void()
                else:
                    life.error = error
            self._note_interrupt(error)
            raise

    def _note_interrupt(self, error: BaseException) -> None:
        if isinstance(error, _interrupts()):
            self._lives.interrupt = error

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
    # An app connects only when it runs, and this one never does.
    conf = {"bootstrap.servers": "nowhere.invalid:9092", "group.id": "keyshared-test"}
    workers = {} if awaits(handler) else {"workers": 1}
    app = KeyShared(conf, [TOPIC], **{**workers, **options})
    app.handler(handler)
    return app


def _pool_of(
    app: KeyShared, specs: list[WorkerSpec], mailbox: SimpleQueue[Any], clock: Clock
) -> InlineWorkers:
    """Return the pool of the app, in its inline form, which runs in the caller's thread."""
    rule, coroutines = app.batches, app.options.coroutines
    if coroutines is not None:
        make: MakeWorker = partial(TaskWorker, told_within=0.0)
        if rule is not None:
            make = partial(CallWorker, rule._replace(wait=0.0))
        return InlineTasks(specs, mailbox, clock, limit=coroutines, make=make)
    if rule is not None:
        return InlineBatches(specs, mailbox, clock, rule)
    return InlinePool(specs, mailbox, clock)


def run_handler(
    handler: Callable[..., Any] | KeyShared, records: Iterable[Input], **options: Any
) -> list[Result]:
    """Run a handler over records once; return the result of each.

    ``options`` are those of :class:`HandlerTest`.

    >>> [paid] = run_handler(lambda record: None, [("customer-1", b"paid")])
    >>> paid.outcome, paid.attempts
    ('done', 1)
    """
    with HandlerTest(handler, **options) as test:
        return test.run(records)


def _interrupts() -> tuple[type[BaseException], ...]:
    """Return the exceptions of a handler that end the test: Ctrl-C, and the outcomes of pytest.

    An app would count any of them as a failed attempt.
    """
    pytest: Any = sys.modules.get("pytest")
    outcomes: Sequence[Any] = () if pytest is None else (pytest.fail, pytest.skip, pytest.exit)
    return (KeyboardInterrupt, *(each.Exception for each in outcomes))
