"""What happens in a soak and when: data, and a pure function of the seed.

Nothing here starts, waits or judges. A step is carried out by ``soak_run.py`` at its time; how the
machine answers is never the same twice, what is done to it always is.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from tests.chaos.pools import Pool

What = Literal[
    "start",  # a member joins
    "stop",  # SIGTERM
    "kill",  # SIGKILL
    "nap",  # SIGSTOP for less than the session
    "coma",  # SIGSTOP for longer
    "freeze broker",  # SIGSTOP of a broker
    "kill broker",  # SIGKILL of a broker, and a restart on the same data
    "stop in outage",  # SIGTERM to a member whose brokers are all dead
    "grow",  # partitions are added
    "big values",  # values of about 100 KB, and one record that takes longer than a stand-still may
]
Protocol = Literal["eager", "cooperative", "consumer"]

POOLS: tuple[Pool, ...] = ("thread", "thread", "asyncio", "batch")
"""Of members. What a process runs does not stand still when its member is made to."""

HARD: Final = {"kill", "coma", "freeze broker", "kill broker", "stop in outage"}
"""After these a record that was settled may run again."""

MAIN: Final = "main"
BLOCKED: Final = "blocked"
"""A topic without dead letters, where a record that always fails blocks its key."""

ATTEMPTS: Final = 4
"""So often a record is tried before it becomes a dead letter, or blocks its key."""

LONG_RECORD: Final = 40.0
BIG_VALUES_EVERY: Final = 300.0
"""Seconds, on average: a record of 40 s needs quiet around it."""

LEAST_FOR_THREE: Final = 150.0
"""Seconds; a shorter soak has one broker unless told."""


@dataclass(frozen=True)
class Step:
    """At ``at`` seconds ``what`` is done: to ``who``, for ``seconds``, or ``amount`` of it."""

    at: float
    what: What
    who: str = ""
    seconds: float = 0.0
    amount: int = 0

    def __str__(self) -> str:
        words = [self.what, self.who]
        words += [f"{self.seconds:.1f} s"] * (self.seconds > 0) + [str(self.amount)] * bool(
            self.amount
        )
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Plan:
    """How a member is made: what it reads, how many workers of what kind, how long a handler takes.

    In seconds.
    """

    name: str
    topic: str
    workers: int
    window: int
    pause: float
    pool: Pool = "thread"


@dataclass
class Scenario:
    """Everything that a seed decides."""

    seed: int
    seconds: float
    protocol: Protocol
    brokers: int
    copies: int
    partitions: int
    session: float
    keys: int
    exponent: float
    first: list[str]
    plans: dict[str, Plan] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def conf(self) -> dict[str, Any]:
        """Return the client's settings on top of what every chaos test sets."""
        strategy = {"eager": "range", "cooperative": "cooperative-sticky"}
        conf: dict[str, Any] = {
            "session.timeout.ms": int(self.session * 1000),
            # A broker that is only slow must not be taken for one that is away.
            "socket.timeout.ms": int(self.session * SOCKET_SHARE * 1000),
            # Added partitions are noticed within this.
            "topic.metadata.refresh.interval.ms": 5_000,
        }
        if self.protocol == "consumer":
            return conf | {
                "group.protocol": "consumer",
                "session.timeout.ms": None,
                "heartbeat.interval.ms": None,
            }
        return conf | {"partition.assignment.strategy": strategy[self.protocol]}

    def broker_settings(self) -> dict[str, str | int]:
        """Return what the brokers are told; under KIP-848 the session is theirs to say."""
        session = int(self.session * 1000)
        return {
            "group.consumer.min.session.timeout.ms": 2_000,
            "group.consumer.session.timeout.ms": session,
            "default.replication.factor": self.copies,
            "min.insync.replicas": max(1, self.copies - 1),
        }


SOCKET_SHARE = 3 / 8
"""For which part of a session a client waits for an answer."""

MOST_IN_WINDOW = 15.0
"""Seconds of work that a window holds at most: the queue of other partitions' records must not look
like a stand-still. Enough for a window to be full for so long that partitions are paused."""

MOST_MEMBERS = 5
LEAST_MEMBERS = 2
OFTEN: tuple[What, ...] = ("start", "start", "start", "stop", "stop", "stop")


class _Author:
    """Writes the steps, and knows who is there at each moment."""

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self.scenario = scenario
        self.rng = rng
        self.here = list(scenario.first)
        self.partitions = scenario.partitions
        self.at = 0.0
        self.clear_at = 0.0
        """When the last fault is over."""
        self._pace = 1.0 if scenario.seconds >= 60.0 else 0.6
        self._big_values_left = int((scenario.seconds + BIG_VALUES_EVERY / 2) // BIG_VALUES_EVERY)

    def write(self) -> None:
        """Deal from shuffled decks until the time is over; each begins with one of every kind."""
        deck: list[What] = []
        self.at = self.rng.uniform(4.0, 6.0)
        while self.at < self.scenario.seconds - 4.0:
            if not deck:
                often = list(OFTEN)
                deck = list(get_args(What))
                self.rng.shuffle(deck)
                self.rng.shuffle(often)
                deck += often
            what = next((each for each in deck if self._possible(each)), None)
            if what is None:
                deck = []
                continue
            deck.remove(what)
            self._deal(what)
            self.at = max(self.at, self.clear_at) + self.rng.uniform(3.0, 8.0) * self._pace

    def _possible(self, what: What) -> bool:
        readers = self._readers()
        left = self.scenario.seconds - self.at
        if what == "start":
            return len(readers) < MOST_MEMBERS
        if what in ("stop", "kill", "coma", "stop in outage"):
            if what in ("coma", "stop in outage") and left < self.scenario.session + 8.0:
                return False
            return len(readers) > LEAST_MEMBERS
        if what == "grow":
            return self.partitions < 2 * self.scenario.partitions
        if what == "big values":
            return self._big_values_left > 0 and left > LONG_RECORD + 35.0
        return left > (self.scenario.session if what == "nap" else 2 * self.scenario.session)

    def _readers(self) -> list[str]:
        return [name for name in self.here if self.scenario.plans[name].topic == MAIN]

    def _deal(self, what: What) -> None:
        rng, session = self.rng, self.scenario.session
        who, seconds, amount = "", 0.0, 0
        if what == "start":
            who = new_plan(self.scenario, rng, MAIN).name
            self.here.append(who)
        elif what in ("stop", "kill") and rng.random() < 0.2 and BLOCKED in self._topics():
            self._replace_the_other(what)
            return
        elif what in ("stop", "kill", "stop in outage", "nap", "coma"):
            who = rng.choice(self._readers())
            if what in ("stop", "kill", "stop in outage"):
                self.here.remove(who)
            left = self.scenario.seconds - self.at
            seconds = {
                "nap": rng.uniform(1.0, session - 3.0),
                "coma": session + rng.uniform(2.0, 5.0),
                "stop in outage": rng.choice([session, 45.0]) if left > 60.0 else session,
            }.get(what, 0.0)
        elif what in ("freeze broker", "kill broker"):
            who = str(rng.randint(1, self.scenario.brokers))
            seconds = self._outage(what)
        elif what == "grow":
            amount = self.partitions = self.partitions + rng.randint(1, 3)
        else:
            seconds = LONG_RECORD
        self.scenario.steps.append(Step(self.at, what, who, seconds, amount))
        self.clear_at = self.at + seconds
        if what == "big values":
            # A record that outlasts a deadline may run again, and then there is nothing to judge.
            # It waits for those that were written before it, too.
            self.clear_at += 30.0
            self._big_values_left -= 1

    def _outage(self, what: What) -> float:
        if what == "freeze broker":
            session = self.scenario.session
            return self.rng.choice(
                [self.rng.uniform(1.0, 4.0), self.rng.uniform(1.1, 1.6) * session]
            )
        if self.scenario.copies < self.scenario.brokers:
            # Long enough that what need not stand still is seen to.
            return min(45.0, (self.scenario.seconds - self.at) / 2)
        return self.rng.uniform(0.0, 3.0)

    def _topics(self) -> set[str]:
        return {self.scenario.plans[name].topic for name in self.here}

    def _replace_the_other(self, what: What) -> None:
        """Put another in the place of the one that reads the other topic."""
        who = next(name for name in self.here if self.scenario.plans[name].topic == BLOCKED)
        heir = new_plan(self.scenario, self.rng, BLOCKED).name
        self.scenario.steps += [Step(self.at, what, who), Step(self.at + 1.0, "start", heir)]
        self.here.remove(who)
        self.here.append(heir)
        self.clear_at = self.at + 1.0


def new_plan(scenario: Scenario, rng: random.Random, topic: str) -> Plan:
    """Make up another member of this topic, under a name of its own."""
    count = sum(plan.topic == topic for plan in scenario.plans.values())
    workers = rng.choice([4, 8, 16])
    pause = rng.choice([0.003, 0.01, 0.05, 0.12])
    window = min(rng.choice([1_000, 3_000, 6_000]), int(MOST_IN_WINDOW * workers / pause))
    name = f"{topic}-{count:02}"
    # By itself: one more choice changes nothing of what a seed has meant so far.
    pool = random.Random(f"{scenario.seed}, the pool of {name}").choice(POOLS)
    plan = Plan(name, topic, workers, window, pause, pool)
    scenario.plans[plan.name] = plan
    return plan


def scenario_of(
    seed: int,
    seconds: float,
    *,
    protocol: Protocol | None = None,
    brokers: int | None = None,
) -> Scenario:
    """Return what a soak of so many seconds with this seed does; pure.

    ``protocol`` and ``brokers`` replace what the seed would choose.
    """
    rng = random.Random(seed)
    protocols: list[Protocol] = ["eager", "cooperative", "consumer"]
    chosen = rng.choice(protocols)
    of_seed = rng.choice([1, 1, 3]) if seconds >= LEAST_FOR_THREE else 1
    brokers = brokers or of_seed
    scenario = Scenario(
        seed=seed,
        seconds=seconds,
        protocol=protocol or chosen,
        brokers=brokers,
        # Of three brokers each has the only copy of its partitions: when one is away, the others'
        # partitions are to go on.
        copies=1,
        partitions=rng.randint(4, 8),
        session=8.0,
        keys=rng.choice([50, 400, 3_000]),
        exponent=rng.uniform(0.7, 1.2),
        first=[],
    )
    for topic in (MAIN, MAIN, MAIN, BLOCKED):
        scenario.first.append(new_plan(scenario, rng, topic).name)
    _Author(scenario, rng).write()
    scenario.steps.sort(key=lambda step: step.at)
    return scenario


# --- what is written ---

ALWAYS = b"always-"
"""Handlers of such keys always fail; in the topic without dead letters the key is blocked."""

SOMETIMES = b"sometimes-"
LONG = b"long-"
HOT_FROM = 5
"""The first keys by rank count as hot: their handlers are quick, or nothing would get done."""


@dataclass(frozen=True)
class Wanted:
    """A record to be written; the producer chooses the partition where that is None."""

    key: bytes | None
    size: int
    partition: int | None


class Stream:
    """An endless stream of records of a topic, a pure function of the seed and the growth."""

    def __init__(self, scenario: Scenario, topic: str) -> None:
        self._rng = random.Random(f"{scenario.seed} {topic}")
        self._topic = topic
        self._partitions = [scenario.partitions if topic == MAIN else 2]
        ranks = range(1, scenario.keys + 1)
        total = 0.0
        self._cumulated = [total := total + 1 / rank**scenario.exponent for rank in ranks]
        self._blocking = 0
        self.big = 0
        """So many of the next values are big."""

    def grow(self, partitions: int) -> None:
        """The topic has so many partitions from now on."""
        self._partitions.append(partitions)

    def take(self, count: int) -> list[Wanted]:
        """Return the next records."""
        return [self._next() for _ in range(count)]

    def long_record(self) -> Wanted:
        """Return a record whose handler takes longer than any partition may stand still."""
        return self._wanted(LONG + b"%d" % self._rng.randrange(1_000_000))

    def _next(self) -> Wanted:
        dice = self._rng.random()
        if dice < 0.04:
            return Wanted(None, self._size(), None)
        if dice < 0.05:
            if self._topic == BLOCKED:
                # No more than this: what is blocked fills the window of its reader.
                self._blocking += 1
                if self._blocking > 60:
                    return self._wanted(b"calm")
            return self._wanted(ALWAYS + b"%d" % self._rng.randrange(40))
        if dice < 0.12:
            return self._wanted(SOMETIMES + b"%d" % self._rng.randrange(400))
        (rank,) = self._rng.choices(range(len(self._cumulated)), cum_weights=self._cumulated)
        kind = b"hot" if rank < HOT_FROM else b"key"
        # New partitions get keys of their own, so that no key is ever in two: between two
        # partitions Kafka has no order to keep.
        return self._wanted(b"%s-%d" % (kind, rank))

    def _wanted(self, key: bytes) -> Wanted:
        generation = self._rng.randrange(len(self._partitions))
        first = 0 if generation == 0 else self._partitions[generation - 1]
        among = self._partitions[generation] - first
        key += b"/%d" % generation
        return Wanted(key, self._size(), first + zlib.crc32(key) % among)

    def _size(self) -> int:
        if self.big > 0:
            self.big -= 1
            return self._rng.randrange(80_000, 120_000)
        return self._rng.choice([0, 20, 100, 100, 1_000])
