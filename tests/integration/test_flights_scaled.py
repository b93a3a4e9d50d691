"""The demo's answer is exact while its workers change, and while one aircraft's handler hangs."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.lab.demo import run
from kafka_keyshared.lab.demo.calls import CallLog, awaiting
from kafka_keyshared.lab.demo.expected import Answer, read_answers
from kafka_keyshared.lab.demo.flights import Flights
from kafka_keyshared.lab.demo.run import Demo, DemoProgress
from kafka_keyshared.model import Record
from kafka_keyshared.observability.audit.ledger_wrappers import audited
from kafka_keyshared.testing.clusters.producer import MeteredProducer

PART = 20_000
WAIT = 60.0
SLICE = 500
AIRCRAFT = b"N725MQ"
"""One that flies several times a day."""

pytestmark = pytest.mark.timeout(240)


class Scaled(Demo):
    """A demo that somebody scales while it runs. ``orders`` is done in a thread of its own."""

    def __init__(
        self,
        orders: Callable[[Scaled], None],
        handler: Callable[[Record], None] | None = None,
        workers: int | str = 2,
    ) -> None:
        super().__init__(self._look, records=PART, workers=workers)
        self.year = self._year
        self.app: KeyShared
        self._handler = handler
        self.error: BaseException | None = None
        self._orders = orders
        self._settled = threading.Condition()

    def settled(self, count: int) -> None:
        """Wait until so many records are settled."""
        with self._settled:
            assert self._settled.wait_for(lambda: self.progress.settled >= count, WAIT)

    def _look(self, _progress: DemoProgress) -> None:
        with self._settled:
            self._settled.notify_all()

    def _app(self, bootstrap: str, producer: MeteredProducer) -> KeyShared:
        self.app = super()._app(bootstrap, producer)
        if self._handler is not None:
            self.app.handler(audited(self._handler, self._ledger))
        threading.Thread(target=self._give_orders, daemon=True).start()
        return self.app

    def _give_orders(self) -> None:
        try:
            self._orders(self)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.error = error

    def exact(self) -> dict[str, Any]:
        """Run it; its answer is that of the file, and each rule of the contract has held."""
        result = self.run()
        if self.error is not None:
            raise self.error
        assert result["ok"] is True, result
        return result


class Hangs:
    """Hangs in the tenth flight of one aircraft until it is let go."""

    def __init__(self) -> None:
        self.hangs, self.goes_on = threading.Event(), threading.Event()
        self._flights: Counter[bytes | None] = Counter()

    def __call__(self, record: Record) -> None:
        """Take a record as it comes."""
        self._flights[record.key()] += 1
        if record.key() == AIRCRAFT and self._flights[AIRCRAFT] == 10:
            self.hangs.set()
            assert self.goes_on.wait(WAIT)


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_the_answer_is_exact_while_the_workers_are_2_then_8_then_3(pool: str) -> None:
    """What each knows of its aircraft goes from worker to worker, or from process to process."""
    named: list[int] = []

    def orders(demo: Scaled) -> None:
        for at, workers in ((PART // 5, 8), (PART // 2, 3)):
            demo.settled(at)
            named.append(len(demo.app.scale(workers, WAIT)))

    Scaled(orders, workers=f"{pool}:2").exact()
    assert named == [8, 3]


def test_the_answer_is_exact_while_they_change_and_one_aircraft_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its worker has state, so what it has waits with it; nothing is lost, and all of it moves."""
    hang = Hangs()

    def hanging(calls: CallLog) -> type[Flights]:
        class Hanging(Flights):
            def handle(self, record: Record) -> None:
                hang(record)
                super().handle(record)

        del calls
        return Hanging

    monkeypatch.setitem(run.HANDLERS, "thread", hanging)

    def orders(demo: Scaled) -> None:
        assert hang.hangs.wait(WAIT)
        with pytest.raises(TimeoutError, match=r"scale\(8\): not done within 0.5 s"):
            demo.app.scale(8, 0.5)
        hang.goes_on.set()
        demo.app.scale(8, WAIT)
        demo.settled(PART // 2)
        demo.app.scale(3, WAIT)

    Scaled(orders).exact()


def test_the_answer_is_exact_on_an_event_loop_while_2_then_8_then_3_run_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most, running = [0], [0]

    def waiting(calls: CallLog) -> type[Flights]:
        class Waiting(awaiting(calls)):  # type: ignore[misc]
            async def handle(self, record: Record) -> None:
                running[0] += 1
                most[0] = max(most[0], running[0])
                try:
                    await asyncio.sleep(0)
                    await super().handle(record)
                finally:
                    running[0] -= 1

        return Waiting

    monkeypatch.setitem(run.HANDLERS, "asyncio", waiting)

    def orders(demo: Scaled) -> None:
        for at, coroutines in ((PART // 5, 8), (PART // 2, 3)):
            demo.settled(at)
            assert demo.app.scale(coroutines, WAIT) == ("worker-0",)

    Scaled(orders, workers="asyncio:2").exact()
    assert most[0] == 8


def test_one_aircraft_that_hangs_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same fold in a function, with the state of all in one place: nothing keeps its slots."""
    hang, folds = Hangs(), Flights()
    detached: list[int] = []

    def handle(record: Record) -> None:
        hang(record)
        folds.handle(record)

    def orders(demo: Scaled) -> None:
        assert hang.hangs.wait(WAIT)
        own = sum(record.key == AIRCRAFT for record in demo.year) - 9
        # What has ended in the slice of the one that hangs is only counted with it.
        demo.settled(PART - own - SLICE)
        status = demo.app.status()
        assert status is not None
        detached.append(status.subscriptions[0].detached)
        hang.goes_on.set()

    def answers(out: Path) -> list[Answer]:
        monkeypatch.setenv("FLIGHTS_OUT", str(out))
        folds.close()  # no worker does: it has no instance of its own
        return read_answers(out)

    demo = Scaled(orders, handle, workers=4)
    monkeypatch.setattr(run, "read_answers", answers)
    demo.exact()
    assert detached[0] >= 1
