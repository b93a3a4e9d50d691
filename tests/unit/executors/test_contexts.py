"""The context of each call of a handler: what it sees, and who sees what it sets."""

from __future__ import annotations

import decimal
import gc
import weakref
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from kafka_keyshared.clock import Clock
from kafka_keyshared.config.keys import from_callable
from kafka_keyshared.core.contract.commands import StartWorker
from kafka_keyshared.core.contract.events import SliceEnded
from kafka_keyshared.executors.batches.pool import BatchPool
from kafka_keyshared.executors.contexts import Contexts
from kafka_keyshared.executors.handling.batching import BatchRule
from kafka_keyshared.executors.handling.handlers import maker
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.model import Drop
from tests.support.records import record
from tests.support.slices import slice_of

WAIT = 30.0

SET_BY: ContextVar[str] = ContextVar("set_by", default="nobody")
CONSTRUCTOR: ContextVar[str] = ContextVar("constructor", default="nothing")


class Scope:
    """Has tags that are changed in place, and forks, as the scope of the Sentry SDK."""

    def __init__(self, tags: dict[str, str]) -> None:
        self.tags = tags

    def fork(self) -> Scope:
        return Scope(dict(self.tags))


SCOPE: ContextVar[Scope] = ContextVar("scope")


@pytest.fixture
def scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scope, "__module__", "sentry_sdk.scope")


@pytest.mark.usefixtures("scopes")
def test_values_that_are_changed_in_place_are_copied_for_each_call() -> None:
    def program() -> Contexts:
        SET_BY.set("program")
        decimal.getcontext().prec = 9
        SCOPE.set(Scope({"service": "billing"}))
        return Contexts(copy_context())

    def call(customer: str) -> tuple[str, int, dict[str, str]]:
        seen = (SET_BY.get(), decimal.getcontext().prec, dict(SCOPE.get().tags))
        SET_BY.set(customer)
        decimal.getcontext().prec = 5
        SCOPE.get().tags["customer"] = customer
        return seen

    contexts = Context().run(program)
    assert not contexts.shares_nothing
    for customer in ("a", "b"):
        seen = contexts.new().run(call, customer)
        assert seen == ("program", 9, {"service": "billing"})


def test_a_base_without_such_values_is_copied_and_no_more() -> None:
    contexts = Context().run(lambda: Contexts(copy_context()))
    assert contexts.shares_nothing
    assert list(contexts.new()) == []


class Handler:
    """Sets something as it is made, and in each call."""

    def __init__(self, seen: list[tuple[str, ...]]) -> None:
        self.seen = seen
        CONSTRUCTOR.set("constructor")

    def handle(self, given: Any) -> None:
        self.seen.append((SET_BY.get(), CONSTRUCTOR.get()))
        SET_BY.set("handler")
        CONSTRUCTOR.set("handler")


def thread_pool(spec: WorkerSpec, mailbox: SimpleQueue[Any]) -> Any:
    return ThreadPool([spec], mailbox, Clock())


def batch_pool(spec: WorkerSpec, mailbox: SimpleQueue[Any]) -> Any:
    return BatchPool([spec], mailbox, Clock(), BatchRule(1))


@pytest.mark.parametrize("make", [thread_pool, batch_pool])
def test_each_worker_sees_what_the_program_and_the_constructor_set_also_a_later_one(
    make: Callable[[WorkerSpec, SimpleQueue[Any]], Any],
) -> None:
    seen: list[tuple[str, ...]] = []
    mailbox: SimpleQueue[Any] = SimpleQueue()

    def program() -> Any:
        SET_BY.set("program")

        class Made(Handler):
            def __init__(self) -> None:
                super().__init__(seen)

        return make(WorkerSpec("default", 0, "worker-0", maker(Made)), mailbox)

    pool = Context().run(program)
    pool.start()
    for worker in (0, 1):
        if worker:
            pool.add(StartWorker("default", 1, "worker-1"))
        for offset in range(2):
            pool.submit(slice_of(record(offset, "a"), worker=worker))
            assert isinstance(mailbox.get(timeout=WAIT), SliceEnded)
    assert pool.stop(WAIT) == []
    assert seen == [("program", "constructor")] * 4
    assert SET_BY.get() == "nobody"


def test_what_a_key_function_sets_no_other_call_of_it_sees() -> None:
    seen = []

    def key(given: Any) -> bytes:
        seen.append(SET_BY.get())
        SET_BY.set("key function")
        return bytes(given.key())

    key_of = from_callable(key)
    assert [key_of(record(offset, "a")) for offset in range(2)] == [b"a", b"a"]
    assert seen == ["nobody", "nobody"]
    assert SET_BY.get() == "nobody"


class Incomparable:
    """As an array: whether two are the same is no single answer."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("make", "contexts_made"),
    [(object, 2), (Incomparable, 2), (lambda: 1.5, 1)],
    ids=["other", "odd", "equal"],
)
def test_of_what_one_call_sets_the_next_sees_what_was_there_before(
    make: Callable[[], object], contexts_made: int
) -> None:
    variable: ContextVar[object] = ContextVar("variable")
    ours = make()

    def program() -> Contexts:
        variable.set(ours)
        return Contexts(copy_context())

    contexts = Context().run(program)
    made: list[Context] = []
    contexts.new = partial(_noting, made, contexts.new)
    seen: list[object] = []

    def handle(record: int) -> None:
        seen.append(variable.get())
        if record == 2:
            variable.set(make())
        if record == 3:
            variable.reset(variable.set("for a while"))

    assert contexts.call_each(handle, iter(range(6))) is None
    assert list(map(id, seen)) == [id(ours)] * 6
    assert len(made) == contexts_made


def _noting(made: list[Context], new: Callable[[], Context]) -> Context:
    made.append(new())
    return made[-1]


def test_the_record_whose_call_raises_is_named_and_the_next_call_goes_on_behind_it() -> None:
    contexts = Context().run(lambda: Contexts(copy_context()))
    todo = iter(range(5))

    def handle(record: int) -> object:
        return Drop if record == 1 else 1 / (record - 3)

    raised = [contexts.call_each(handle, todo) for _ in range(3)]
    assert [None if each is None else (each[0], type(each[1])) for each in raised] == [
        (1, Drop),
        (3, ZeroDivisionError),
        None,
    ]


@pytest.mark.parametrize("changed_in_place", [False, True])
@pytest.mark.parametrize("way", ["raised", "returned"])
def test_what_a_call_has_raised_is_in_no_cycle(changed_in_place: bool, way: str) -> None:
    """Or each failure would leave its frames, with their records, to the cyclic collector."""
    base = Context()
    if changed_in_place:
        base.run(decimal.setcontext, decimal.Context())
    contexts = Contexts(base)
    assert contexts.shares_nothing is not changed_in_place
    seen: list[weakref.ref[BaseException]] = []

    def handle(number: int) -> object:
        error = Drop(str(number))
        seen.append(weakref.ref(error))
        if way == "raised":
            try:
                raise error
            finally:
                del error
        return error

    def go_through(todo: Iterator[int]) -> None:
        while (ended := contexts.call_each(handle, todo)) is not None:
            assert isinstance(ended[1], Drop)
            del ended

    gc.disable()
    try:
        go_through(iter(range(3)))
        assert [each() for each in seen] == [None] * 3
    finally:
        gc.enable()
