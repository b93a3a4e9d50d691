"""An audited handler is the handler it was, and its ledger says when it ran and what came of it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message

from kafka_keyshared.model import Ack, DeadLetter, Drop, Record, Retry
from kafka_keyshared.observability.audit.ledger import Ended, MemoryLedger, Started
from kafka_keyshared.observability.audit.ledger_wrappers import audited


def message(offset: int = 5, key: bytes | None = b"k") -> Any:
    return Message(topic="t", partition=2, offset=offset, key=key, value=b"v")


async def nothing() -> None:
    """An awaitable that nobody awaits."""


def outcomes(ledger: MemoryLedger) -> list[str]:
    return [event.outcome for event in ledger.events if isinstance(event, Ended)]


RESULTS: list[tuple[object, str]] = [
    (None, "ok"),
    (Ack(), "ok"),
    ("something else", "ok"),
    (Drop(), "dropped"),
    (Retry(after=1), "failed"),
    (DeadLetter("why"), "failed"),
]


@pytest.mark.parametrize(("result", "outcome"), RESULTS, ids=str)
def test_a_result_passes_through_and_is_noted(result: object, outcome: str) -> None:
    ledger = MemoryLedger()
    assert audited(lambda record: result, ledger)(message()) is result
    assert outcomes(ledger) == [outcome]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("no"), "failed"),
        (KeyboardInterrupt(), "failed"),
        (SystemExit(3), "failed"),
        (Retry(), "failed"),
        (DeadLetter(), "failed"),
        (Drop(), "dropped"),
        (Ack(), "ok"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("style", ["def", "async def"])
def test_an_exception_passes_through_and_is_noted(
    error: BaseException, outcome: str, style: str
) -> None:
    ledger = MemoryLedger()

    def handler(record: Record) -> None:
        raise error

    async def handler_async(record: Record) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        if style == "def":
            audited(handler, ledger)(message())
        else:
            _drive(audited(handler_async, ledger), message())
    assert caught.value is error
    assert outcomes(ledger) == [outcome]


def _drive(handler: Callable[[Any], Any], record: Record) -> Any:
    """Run a coroutine that never waits, without a loop that treats KeyboardInterrupt specially."""
    coroutine = handler(record)
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    return stopped.value.value


def test_a_coroutine_out_of_a_plain_function_settles_nothing() -> None:
    ledger = MemoryLedger()
    forgotten = audited(lambda record: nothing(), ledger)(message())
    assert outcomes(ledger) == ["failed"]
    forgotten.close()


def test_the_start_names_the_record_and_precedes_the_call() -> None:
    ledger = MemoryLedger()
    seen: list[int] = []
    audited(lambda record: seen.append(len(ledger.events)), ledger)(message(7, None))
    start, end = ledger.events
    assert isinstance(start, Started)
    assert isinstance(end, Ended)
    assert (start.topic, start.partition, start.offset, start.key) == ("t", 2, 7, None)
    assert start.attempt == end.attempt
    assert start.at <= end.at
    assert seen == [1]


class Counting:
    """Counts what it handles."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.offsets: list[int | None] = []
        self.closed = False

    def handle(self, record: Record) -> str:
        """Note the offset."""
        self.offsets.append(record.offset())
        return "noted"

    def close(self) -> None:
        self.closed = True


def test_a_handler_class_stays_a_class_with_state_per_instance() -> None:
    ledger = MemoryLedger()
    wrapped = audited(Counting, ledger)
    one, two = wrapped(), wrapped()
    assert one.handle(message(1)) == "noted"
    two.handle(message(2))
    one.handle(message(3))
    one.close()
    assert (one.offsets, two.offsets) == ([1, 3], [2])
    assert (one.closed, two.closed, wrapped.made) == (True, False, 2)
    assert isinstance(one, Counting)
    assert (wrapped.__name__, wrapped.__doc__) == ("Counting", Counting.__doc__)
    assert wrapped.handle.__doc__ == "Note the offset."
    assert outcomes(ledger) == ["ok", "ok", "ok"]


class Awaiting:
    async def handle(self, record: Record) -> str:
        await asyncio.sleep(0)
        return "done"


class Free:
    @staticmethod
    def handle(record: Record) -> int:
        return record.offset()


def test_an_async_handler_stays_async() -> None:
    ledger = MemoryLedger()

    async def handler(record: Record) -> str:
        await asyncio.sleep(0)
        return "done"

    wrapped = audited(handler, ledger)
    assert inspect.iscoroutinefunction(wrapped)
    assert asyncio.run(wrapped(message())) == "done"
    of_class = audited(Awaiting, ledger)
    assert inspect.iscoroutinefunction(of_class.handle)
    assert asyncio.run(of_class().handle(message())) == "done"
    assert outcomes(ledger) == ["ok", "ok"]


def test_a_static_handle_works_too() -> None:
    ledger = MemoryLedger()
    assert audited(Free, ledger)().handle(message(9)) == 9
    assert outcomes(ledger) == ["ok"]


def test_a_class_without_handle_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"dict has no method handle\(record\)"):
        audited(dict, MemoryLedger())


class CalledAndAwaited:
    """An object that is called like a coroutine function."""

    async def __call__(self, record: Record) -> str:
        await asyncio.sleep(0)
        return "late"


def test_an_object_with_an_async_call_stays_async() -> None:
    ledger = MemoryLedger()
    call = audited(CalledAndAwaited(), ledger)
    assert inspect.iscoroutinefunction(call)
    assert asyncio.run(call(message())) == "late"
    assert outcomes(ledger) == ["ok"]
