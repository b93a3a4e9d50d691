"""A process pool with one worker whose steps are the test's to choose."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from queue import SimpleQueue
from typing import Any, NamedTuple

from kafka_keyshared.clock import Clock
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.processes.pool import ProcessPool
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.lab.simulator.handlers import Ending
from tests.conformance.pool_sides import WORKER, Side, Started, Threads, come_to, state_of
from tests.support.records import failure

DIE = "die"
"""As an ending: the process is to end in the middle of the record."""


class Adopted(NamedTuple):
    """What a handler says that is given state to take over."""

    slots: list[int]
    state: object


@dataclass(frozen=True)
class Told:
    """Makes a handler that tells of each record at an address, and ends it as it is told there."""

    address: str

    def __call__(self) -> Made:
        connection = Client(self.address)

        def handle(record: Any) -> object:
            connection.send((record.topic(), record.partition(), record.offset(), record.key()))
            ending = connection.recv()
            if ending == DIE:
                os._exit(7)
            return come_to(ending)

        def adopt(slots: Any, state: object) -> None:
            connection.send(Adopted(list(slots), state))
            connection.recv()

        return Made(handle, None, state_of, adopt)


class Processes(Threads):
    """A real process. It goes on by itself up to its next handler, and waits in there."""

    kind = "process"

    def __init__(self) -> None:
        Side.__init__(self)
        self._stream: SimpleQueue[Any] = SimpleQueue()
        self._ahead: deque[Any] = deque()
        self._marks = 0
        self._stopped = False
        self._deadly = False
        self._records: dict[tuple[Any, ...], Any] = {}
        # By the record: the pipe to the handler that is in it.
        self._handlers: dict[int, Connection] = {}
        self._listener = Listener(family="AF_UNIX", backlog=8)
        self._closing = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        spec = WorkerSpec(*WORKER, "worker-0", Told(str(self._listener.address)))
        self.pool = ProcessPool([spec], self._stream, Clock())
        self.pool.start()

    def _accept(self) -> None:
        while True:
            connection = self._listener.accept()
            if self._closing:
                return
            threading.Thread(target=self._hear_child, args=(connection,), daemon=True).start()

    def _hear_child(self, connection: Connection) -> None:
        with suppress(EOFError, OSError):
            while True:
                said = connection.recv()
                if isinstance(said, Adopted):
                    self.adopted.append(said)
                    connection.send(None)
                    continue
                record = self._records[said]
                self._handlers[id(record)] = connection
                self._stream.put(Started(record))

    def give(self, slice_: Any) -> None:
        for each in slice_.records:
            self._records[each.topic(), each.partition(), each.offset(), each.key()] = each
        Side.give(self, slice_)

    def end(self, ending: Ending = None, record: Any = None) -> None:
        connection = self._handlers[id(self._note_end(ending, record))]
        connection.send(DIE if self._deadly else ending)
        self._deadly = False

    def stop(self, timeout: float = 0.01) -> list[str]:
        """Stop the pool, which kills what still runs: that has failed then."""
        found = super().stop(timeout)
        for each in self.rules.running():
            self._note_end(failure(), each)
        return found

    def _let_go(self) -> None:
        self.is_lost = True
        self.pool.cells[self.whose].process.kill()

    def lose(self) -> None:
        self.is_lost = True
        self._deadly = True
        self.end(failure())
        self._await_end()

    def close(self) -> None:
        super().close()
        self._closing = True
        Client(self._listener.address).close()  # to close a listener wakes nobody who accepts
        self._accepting.join()
        self._listener.close()
