"""The execution of a replay plan, with durable progress.

Dead letters are sent in lane order. A dead letter is sent when the one before it in its lane is
acknowledged. So each lane has at most one dead letter in flight, and a refused one stops only its
own lane. The topic is read from front to back. A dead letter that is read before its turn is held
in memory, up to :data:`HELD_BYTES`. One that does not fit is left for the next reading. Each
reading sends at least the first remaining dead letter of every lane, so the replay ends. At most
:data:`BATCH` dead letters are sent but not yet in the journal. That many may repeat after a crash.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kafka_keyshared.dlq.envelope import REPLAYS, Headers
from kafka_keyshared.dlq.letter import Letter, LetterPlace
from kafka_keyshared.dlq.replay_plan import PASSED, STOPPED, ReplayPlan, State

BATCH = 500
HELD_BYTES = 32 << 20
JOURNAL_AFTER = 0.5
"""Seconds that an acknowledged dead letter waits to be journaled together with others."""

ANSWERS_AFTER_STOP = 20.0
"""Seconds that a stopped replay waits for the answers to sent dead letters."""

RECORD_OVERHEAD = 500
"""Approximate bytes that a held dead letter takes beside its key and value."""

_WAIT = 0.1


class LetterRefusal(NamedTuple):
    """The reason for a refusal. ``everywhere``: every other dead letter would be refused too."""

    why: str
    everywhere: bool


class Sender(Protocol):
    """Sends records and reports their outcome, only from inside :meth:`serve`."""

    def send(
        self, letter: Letter, headers: Headers, tell: Callable[[LetterRefusal | None], None]
    ) -> None:
        """Send the record of a dead letter."""

    def serve(self, timeout: float) -> None:
        """Wait for answers, at most ``timeout`` seconds."""


class Keeper(Protocol):
    """Durable storage of the replay progress."""

    def add(self, letters: Iterable[tuple[LetterPlace, int]]) -> None:
        """Store the marks, and return when they are durable."""


@dataclass(slots=True)
class ReplayOutcome:
    """The outcome of a plan.

    ``why`` counts the reasons of refusals, and ``examples`` has some of their places. ``halted`` is
    the reason for an early end.
    """

    replayed: int = 0
    refused: int = 0
    behind: int = 0
    gone: int = 0
    left: int = 0
    why: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[LetterPlace, str]] = field(default_factory=list)
    halted: str | None = None

    @property
    def whole(self) -> bool:
        """Whether every dead letter of the plan was replayed or is deleted."""
        return not (self.refused or self.behind or self.left)


def headers_for(letter: Letter) -> Headers:
    """Return the headers of a replayed record: its own, and the increased replay count."""
    replays = letter.told.replays if letter.told else 0
    return [*letter.headers, (REPLAYS, str(replays + 1).encode())]


class Replay:
    """One execution of a plan.

    ``read`` yields the dead letters of the topic from its beginning, again at each call.
    ``stopped`` is called before each dead letter. ``rate`` is in dead letters per second. After a
    stop, the replay waits for answers at most ``patience`` seconds.
    """

    def __init__(
        self,
        plan: ReplayPlan,
        sender: Sender,
        keeper: Keeper,
        *,
        rate: float | None = None,
        stopped: Callable[[], bool] = lambda: False,
        held_bytes: int = HELD_BYTES,
        patience: float = ANSWERS_AFTER_STOP,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._sender = sender
        self._keeper = keeper
        self._gap = 1 / rate if rate else 0.0
        self._stopped = stopped
        self._room = held_bytes
        self._clock = clock
        self._patience = patience
        self._stop_seen: float | None = None
        self._next_at = clock()
        self._held: dict[int, Letter] = {}
        self._free: deque[int] = deque()
        self._on_the_way = 0
        self._unkept: list[tuple[LetterPlace, int]] = []
        self._unkept_since = 0.0
        self.outcome = ReplayOutcome()

    def run(self, read: Callable[[], Iterable[Letter]]) -> ReplayOutcome:
        """Send all dead letters that can be sent."""
        plan = self._plan
        if copies := plan.settled_before():
            self._keeper.add(copies)
        try:
            while plan.count(State.PENDING) and not self._ended():
                self._read(read())
        except Exception:
            self._drain()
            raise
        finally:
            self._keep()
            self._count()
        return self.outcome

    def _read(self, letters: Iterable[Letter]) -> None:
        """Read the topic once."""
        plan = self._plan
        seen = bytearray(len(plan.state))
        for letter in letters:
            index = plan.find(*letter.at)
            if index is not None and plan.state[index] == State.PENDING:
                if not plan.is_of(index, letter):
                    self.outcome.halted = (
                        f"{letter.at} is another letter than in the plan: the topic was created "
                        "again; the replay stops"
                    )
                    break
                seen[index] = 1
                self._take(index, letter)
            if self._ended():
                break
        self._drain()
        if not self._ended():
            self._pass_over(seen)
            self._drain()

    def _pass_over(self, seen: bytearray) -> None:
        """Mark unseen dead letters as deleted by retention or compaction, and free their lanes."""
        plan = self._plan
        for index, state in enumerate(plan.state):
            if state == State.PENDING and not seen[index]:
                plan.state[index] = State.GONE
                self._set_free(index)

    def _drain(self) -> None:
        """Wait for all answers, and send the dead letters that they free unless ended."""
        while self._on_the_way or (self._free and not self._ended()):
            self._serve(_WAIT)
            if self._on_the_way and self._waited_enough():
                # It is unknown whether they were written. The next replay sends them again.
                self.outcome.halted = self.outcome.halted or (
                    f"{self._on_the_way} letters had no answer {self._patience:g} s after the stop"
                )
                break

    def _waited_enough(self) -> bool:
        if not self._stopped():
            return False
        now = self._clock()
        self._stop_seen = self._stop_seen or now
        return now - self._stop_seen >= self._patience

    def _count(self) -> None:
        plan, outcome = self._plan, self.outcome
        outcome.replayed = plan.count(State.ACKED)
        outcome.refused = plan.count(State.FAILED)
        outcome.behind = plan.count(State.BEHIND)
        outcome.gone = plan.count(State.GONE)
        outcome.left = sum(plan.count(state) for state in (State.PENDING, State.HELD, State.SENT))

    def _ended(self) -> bool:
        return self.outcome.halted is not None or self._stopped()

    def _is_free(self, index: int) -> bool:
        before = self._plan.before(index)
        return before is None or self._plan.state[before] in PASSED

    def _take(self, index: int, letter: Letter) -> None:
        """Send a dead letter, hold it until its turn, or leave it for the next reading."""
        plan, size = self._plan, _size(letter)
        while not self._ended() and (
            not self._is_free(index) and size > self._room and self._on_the_way
        ):
            self._serve(_WAIT)
        if plan.state[index] in STOPPED:
            return
        if self._is_free(index):
            self._send(index, letter)
        elif size <= self._room:
            self._room -= size
            self._held[index] = letter
            plan.state[index] = State.HELD
        self._serve(0)

    def _send(self, index: int, letter: Letter) -> None:
        while not self._ended() and self._on_the_way + len(self._unkept) >= BATCH:
            self._let_in(_WAIT)
        while not self._ended() and (wait := self._next_at - self._clock()) > 0:
            self._let_in(min(wait, _WAIT))
        if self._ended():
            self._plan.state[index] = State.PENDING
            return
        self._next_at = max(self._next_at, self._clock()) + self._gap
        self._plan.state[index] = State.SENT
        self._on_the_way += 1

        def tell(refusal: LetterRefusal | None) -> None:
            self._on_the_way -= 1
            if refusal is None:
                self._acknowledged(index)
            else:
                self._refused(index, refusal)

        self._sender.send(letter, headers_for(letter), tell)

    def _acknowledged(self, index: int) -> None:
        self._plan.state[index] = State.ACKED
        if not self._unkept:
            self._unkept_since = self._clock()
        self._unkept += self._plan.settled_with(index)
        self._set_free(index)

    def _set_free(self, index: int) -> None:
        behind = self._plan.behind(index)
        if behind is not None and self._plan.state[behind] == State.HELD:
            self._free.append(behind)

    def _refused(self, index: int, refusal: LetterRefusal) -> None:
        plan, outcome = self._plan, self.outcome
        if refusal.everywhere:
            # It is unknown whether it was written. The next replay sends it again.
            plan.state[index] = State.PENDING
            outcome.halted = outcome.halted or refusal.why
            return
        plan.state[index] = State.FAILED
        outcome.why[refusal.why] += 1
        if len(outcome.examples) < BATCH:
            outcome.examples.append((plan.place(index), refusal.why))
        behind = plan.behind(index)
        while behind is not None:
            self._release(behind)
            plan.state[behind] = State.BEHIND
            behind = plan.behind(behind)

    def _release(self, index: int) -> Letter | None:
        letter = self._held.pop(index, None)
        if letter is not None:
            self._room += _size(letter)
        return letter

    def _serve(self, timeout: float) -> None:
        """Process answers, and send the dead letters that they free."""
        self._let_in(timeout)
        while self._free and not self._ended():
            index = self._free.popleft()
            letter = self._release(index)
            if letter is not None:
                self._send(index, letter)

    def _let_in(self, timeout: float) -> None:
        self._sender.serve(timeout)
        if self._unkept and (
            len(self._unkept) >= BATCH // 2 or self._clock() - self._unkept_since >= JOURNAL_AFTER
        ):
            self._keep()

    def _keep(self) -> None:
        if self._unkept:
            unkept, self._unkept = self._unkept, []
            self._keeper.add(unkept)


def _size(letter: Letter) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in letter.headers)
    return RECORD_OVERHEAD + len(letter.key or b"") + len(letter.value or b"") + headers
