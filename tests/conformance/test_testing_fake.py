"""A handler has the same fate in the public fake and in a real app over an embedded Kafka."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka.serialization import StringDeserializer

from kafka_keyshared import Ack, DeadLetter, Drop, KeyShared, Record, Retry
from kafka_keyshared.testing import EmbeddedKafka, HandlerTest, record, running

PARTITIONS = 2
Pair = tuple[str | None, str | bytes | None]
Where = tuple[int, int]


class TransientError(Exception):
    """Goes away."""


@dataclass
class Fate:
    """What became of records, as far as both can tell: by partition and offset, or by key."""

    calls: dict[Where, int] = field(default_factory=dict)
    order: dict[bytes, list[Where]] = field(default_factory=dict)
    letters: dict[Where, tuple[bytes, bytes, bytes]] = field(default_factory=dict)
    settled: int = 0
    unsettled: int = 0


@dataclass(frozen=True)
class Scenario:
    """A handler, its records and its options."""

    name: str
    make: Callable[[], Any]
    pairs: list[Pair]
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def by_word(given: Record) -> Any:
    """Do what the value says, the same at each attempt."""
    match given.value():
        case b"bad" | "bad":
            raise ValueError("cannot read it")
        case b"exit":
            raise SystemExit(2)
        case b"raised":
            raise DeadLetter("raised")
        case b"letter":
            return DeadLetter("returned")
        case b"drop":
            return Drop()
        case b"raise-drop":
            raise Drop
        case b"ack":
            return Ack
        case b"skip":
            raise TransientError("not worth another attempt")
        case b"later":
            return deferred(given)
    return None


async def deferred(_: Record) -> None: ...


def recovering() -> Any:
    """Fail a record's first attempts, as many as its value says."""
    left: dict[Where, int] = {}
    lock = threading.Lock()

    def handle(given: Record) -> Any:
        with lock:
            place = (given.partition(), given.offset())
            left.setdefault(place, int(given.value() or b"0"))
            left[place] -= 1
            if left[place] < 0:
                return None
        if given.offset() % 2:
            return Retry(after=0.01)
        raise TransientError("again")

    return handle


class Instances:
    """A class whose instances see every record of a key, in order."""

    def __init__(self) -> None:
        self.last: dict[tuple[bytes, int], int] = {}

    def handle(self, given: Record) -> None:
        if given.key() is None:
            return  # goes to any instance
        if given.value() == b"bad":
            raise ValueError(f"after {self.last.get((given.key(), given.partition()))}")
        self.last[given.key(), given.partition()] = given.offset()


def mixed(words: list[str], count: int, keys: int = 6) -> list[Pair]:
    chance = random.Random(7)
    return [
        (None if chance.random() < 0.1 else f"key-{chance.randrange(keys)}", chance.choice(words))
        for _ in range(count)
    ]


QUICK = {"attempts": 3, "backoff": 0.005}
EVERY_WORD = ["ok", "ok", "ack", "drop", "raise-drop", "bad", "letter", "raised", "exit", "later"]
SCENARIOS = [
    Scenario("verdicts", lambda: by_word, mixed(EVERY_WORD, 120), {"dlq": True, "retry": QUICK}),
    Scenario(
        "no dead letters",
        lambda: by_word,
        mixed(EVERY_WORD, 60),
        # What stands behind a blocked record of the other partition would be chance.
        {"retry": QUICK, "order_scope": "partition"},
    ),
    Scenario(
        "null keys are refused",
        lambda: by_word,
        mixed(["ok", "bad"], 60),
        {"dlq": True, "retry": QUICK, "null_keys": "reject"},
    ),
    Scenario(
        "poison is dropped",
        lambda: by_word,
        mixed(["ok", "bad"], 60),
        {"on_exhausted": "drop", "retry": QUICK},
    ),
    Scenario(
        "exceptions that skip the attempts",
        lambda: by_word,
        mixed(["ok", "skip", "bad"], 60),
        {"dlq": True, "retry": QUICK, "dead_letter_on": (TransientError,)},
    ),
    Scenario(
        "recovers",
        recovering,
        mixed(["0", "0", "1", "2", "4"], 80),
        {"dlq": True, "retry": {**QUICK, "attempts": 4}},
    ),
    Scenario(
        "a class",
        lambda: Instances,
        mixed(["ok", "ok", "ok", "bad"], 80),
        {"dlq": True, "retry": QUICK},
    ),
    Scenario(
        "partition scope, one lease a key",
        lambda: by_word,
        mixed(["ok", "ok", "bad"], 80),
        {"dlq": True, "retry": QUICK, "order_scope": "partition", "one_in_flight_per_key": True},
    ),
    Scenario(
        "decoded values",
        lambda: by_word,
        [("a", "ok"), ("a", b"\xff"), ("a", "bad"), ("b", "ok")],
        {"dlq": True, "retry": QUICK, "value_deserializer": StringDeserializer("utf_8")},
    ),
]


def noted(handler: Any, fate: Fate) -> Any:
    """Return the handler with each call noted."""
    lock = threading.Lock()
    calls: Counter[Where] = Counter()
    order: dict[bytes, list[Where]] = defaultdict(list)
    fate.calls, fate.order = calls, order

    def note(given: Record) -> None:
        place = (given.partition(), given.offset())
        with lock:
            calls[place] += 1
            if given.key() is not None:
                # Between partitions the order is that of arrival, which is nobody's to say.
                order[given.key() + b"@%d" % given.partition()].append(place)

    if isinstance(handler, type):

        class Noted(handler):  # type: ignore[misc]
            def handle(self, given: Record) -> Any:
                note(given)
                return super().handle(given)

        return Noted

    def handle(given: Record) -> Any:
        note(given)
        return handler(given)

    return handle


def letters_of(messages: list[Any]) -> dict[Where, tuple[bytes, bytes, bytes]]:
    found = {}
    for each in messages:
        headers = dict(each.headers())
        place = int(headers["keyshared.source.partition"]), int(headers["keyshared.source.offset"])
        names = ("attempts", "error.type", "error.message")
        found[place] = tuple(headers[f"keyshared.{name}"] for name in names)
    return found


def in_the_fake(scenario: Scenario, placed: list[tuple[Where, Pair]]) -> Fate:
    fate = Fate()
    records = [
        record(key, value, topic="orders", partition=partition, offset=offset)
        for (partition, offset), (key, value) in placed
    ]
    with HandlerTest(noted(scenario.make(), fate), workers=3, **scenario.options) as test:
        results = test.run(records)
    fate.letters = letters_of([each.dead_letter for each in results if each.dead_letter])
    fate.unsettled = sum(each.outcome in ("blocked", "waiting") for each in results)
    fate.settled = len(results) - fate.unsettled
    if "value_deserializer" not in scenario.options:  # an attempt then may fail before the call
        for each in results:
            place = (each.record.partition(), each.record.offset())
            assert each.attempts == fate.calls.get(place, 0)
    return fate


def in_kafka(scenario: Scenario, kafka: EmbeddedKafka, expected: Fate) -> Fate:
    fate = Fate()
    app = KeyShared(kafka.conf("mine"), ["orders"], workers=3, **scenario.options)
    app.handler(noted(scenario.make(), fate))
    with running(app, timeout=60) as run:
        if not expected.unsettled:
            run.wait_settled()
        else:
            run.wait_settled(expected.settled)
            # What is blocked has had its attempts only after the last delay.
            run._wait(lambda: fate.calls == expected.calls, "not every attempt was made")
        fate.settled, fate.unsettled = run.settled, run.unsettled
    fate.letters = letters_of(kafka.records("orders.dlq", at_least=len(expected.letters)))
    return fate


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as cluster:
        cluster.create_topic("orders", PARTITIONS)
        cluster.create_topic("orders.dlq", 1)
        yield cluster


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_handler_has_the_same_fate(scenario: Scenario, kafka: EmbeddedKafka) -> None:
    places: list[Where] = []
    for number, pair in enumerate(scenario.pairs):
        places += kafka.produce("orders", [pair], partition=number % PARTITIONS)
    fake = in_the_fake(scenario, list(zip(places, scenario.pairs, strict=True)))
    real = in_kafka(scenario, kafka, fake)
    assert real.calls == fake.calls
    assert real.order == fake.order
    assert real.letters == fake.letters
    assert (real.settled, real.unsettled) == (fake.settled, fake.unsettled)
    assert fake.settled + fake.unsettled == len(scenario.pairs)


def test_the_scenarios_are_about_something() -> None:
    """Each way in which a record can end is met, and not by every record."""
    fates = {
        each.name: in_the_fake(each, [((n % 2, n // 2), p) for n, p in enumerate(each.pairs)])
        for each in SCENARIOS
    }
    assert sum(bool(each.letters) for each in fates.values()) >= 5
    assert fates["no dead letters"].unsettled > 5
    assert max(fates["recovers"].calls.values()) == 4
    assert all(each.settled > 1 for each in fates.values())
