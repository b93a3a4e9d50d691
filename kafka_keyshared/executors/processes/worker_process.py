"""The parent's handle of a worker process."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.processes import worker_main
from kafka_keyshared.executors.processes.frames import GarbledError, Inlet, new_token
from kafka_keyshared.executors.processes.log_forwarding import Homecoming, levels
from kafka_keyshared.executors.processes.shm_progress import ProgressBoard, new_mark
from kafka_keyshared.executors.processes.spawned import KILLED_WITHIN, SPAWN, Spawned
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.model import TopicPartition

BATCH = 1024
"""Most records that are sent at once."""

CLOSING = 5.0
"""Seconds that a process has to end once its handler is closed."""

ANSWERS = 0.2
"""Seconds to wait when a process is asked where its handler is: it may be in a library that lets no
other thread run."""

FOREIGN = "its handler, or a library of it, writes into file descriptors that are not its own"


class ProcessEndedError(KeySharedError):
    """A worker's process ended while it was running; ``how`` says how it ended."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the worker's process ended while it was running: {how}")
        self.how = how


class OverwritingError(ProcessEndedError):
    """The process was killed because code in it overwrote memory or pipes of this package."""


class TimedOutError(KeySharedError):
    """A record ran past the ack timeout, and its process was killed."""


class StoppedError(KeySharedError):
    """The process was killed because its handler still ran when the instance had stopped."""


class HandlerRaisedError(KeySharedError):
    """A call of the handler in its process raised an exception, whose text this carries."""


class WorkerProcess:
    """The process of one worker, and its successors."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.board = ProgressBoard(BATCH if spec.called is not None else 0, mark=new_mark())
        self.board.on_garbled = self._overwritten
        self._name = spec.name
        self._thread = spec.thread
        self._log: Homecoming | None = None
        self._recipe = recipe_of(spec)
        self._process: Any = None
        self._connection: Any = None
        self._aside: Any = None
        # The reason if the process was killed.
        self._why: KeySharedError | None = None
        # Numbers of the last question about the handler's place, and of the last answer.
        self._asked = self._answered = 0
        self.closed = False
        """Whether the handler has been closed, so that the process only has to end."""
        self.not_made: list[worker_main.Raised] = []
        """The errors of the handler's constructor, one for each process since it last succeeded."""

    def start(self) -> Made:
        """Start a process, wait until it has made the handler, and return the calls of the handler.

        ``handle`` takes a batch and returns its result. Raises :class:`HandlerRaisedError` if the
        handler cannot be made.
        """
        self._why = None
        self.closed = False
        self._asked = self._answered = 0
        self._process, self._connection, self._aside = self._spawn()
        try:
            ready = self._answer()
        except ProcessEndedError as error:
            text = f"the process ended during the start: {error.how}; see its output"
            self.not_made.append(worker_main.Raised(text, ""))
            raise HandlerRaisedError(text) from None
        if isinstance(ready, worker_main.Raised):
            self._ended()
            self.not_made.append(ready)
            raise HandlerRaisedError(ready.text)
        self.not_made.clear()
        return Made(
            self.run,
            self.close,
            self.release if "release" in ready.calls else None,
            self.adopt if "adopt" in ready.calls else None,
        )

    def run(
        self, batch: worker_main.ProcessBatch | worker_main.OutputAnswer
    ) -> worker_main.BatchResult | worker_main.OutputRequest:
        """Run a batch, or continue it; raise :class:`ProcessEndedError` if the process dies.

        If the result is an output of the handler, the process waits for an answer.
        """
        self.send(batch)
        return self.ran()

    def send(self, batch: worker_main.ProcessBatch | worker_main.OutputAnswer) -> None:
        """Send a batch, or an answer that continues it, without waiting for the result.

        This and :meth:`ran` raise :class:`ProcessEndedError` if the process has died, and
        :class:`TimedOutError` if it was killed at its timeout.
        """
        self._send(batch)

    def ran(self) -> worker_main.BatchResult | worker_main.OutputRequest:
        """Wait for the result of the batch, and return it."""
        try:
            ran = self._answer()
        except KeySharedError:
            raise
        except Exception as error:  # noqa: BLE001 - pickle may raise anything
            self._unreadable(error)
            raise self._ended() from None
        if not isinstance(ran, worker_main.BatchResult | worker_main.OutputRequest):
            self._unreadable(f"a batch was answered with {ran!r:.200}")
            raise self._ended()
        return ran

    def release(self, slots: Sequence[int]) -> object:
        """Have the handler release the state of slots."""
        return self._value(self._ask(worker_main.CallRequest("release", (slots,))))

    def adopt(self, slots: Sequence[int], state: object) -> object:
        """Have the handler adopt the state of slots."""
        return self._value(self._ask(worker_main.CallRequest("adopt", (slots, state))))

    def close(self) -> None:
        """Close the handler and wait for the process to end; kill it if it does not."""
        try:
            self._value(self._ask(worker_main.LAST))
            self.closed = True
        finally:
            if not self._process.over(CLOSING):
                self._process.kill()
            self._ended()

    @property
    def pid(self) -> int:
        """Return the process id."""
        return int(self._process.pid)

    def where(self) -> str:
        """Return the place of the handler in the user's program, "" if the process does not answer.

        A process that has not answered is not asked again. It may be stopped, and unread questions
        would fill the pipe.
        """
        try:
            if self._asked == self._answered:
                self._asked += 1
                self._aside.send(worker_main.WhereQuestion(self._asked))
            until = time.monotonic() + ANSWERS
            while (left := until - time.monotonic()) > 0:
                self._answered, where = self._aside.recv(left)
                if self._answered == self._asked:
                    return str(where)
        except (OSError, EOFError):  # it has ended, or does not answer
            return ""
        except Exception as error:  # noqa: BLE001 - pickle may raise anything
            self._unreadable(error)
        return ""

    def lapse(self, slices: Collection[int], partitions: Collection[TopicPartition]) -> None:
        """Notify the process that leases are over; a handler that asks sees it."""
        with suppress(OSError):  # it has died, or does not read
            self._aside.send(worker_main.Lapsed(slices, partitions))

    def kill(self) -> None:
        """Kill the process at the ack timeout; the thread that waits for it gets the reason."""
        self._kill(TimedOutError("it ran past the ack timeout, and its process was killed"))

    def stop(self) -> bool:
        """Kill the process if it still runs after the stop; return whether it did.

        The worker's thread reaps it.
        """
        if self._process is None or self._process.over():
            return False
        self._kill(StoppedError("it still ran when the instance stopped, so it was killed"))
        return True

    def ended(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the process to end; return whether it has ended."""
        return self._process is None or bool(self._process.over(seconds))

    # --- inside ---

    def _spawn(self) -> tuple[Any, Any, Any]:
        """Start a process; return it, and the parent's ends of the main and the side pipe."""
        connection, theirs = SPAWN.Pipe()
        aside, beside = SPAWN.Pipe()
        lines, logged = SPAWN.Pipe(duplex=False)
        for each in (connection, theirs, beside):  # gevent's sockets do not do this
            os.set_blocking(each.fileno(), True)
        token = new_token()
        ends = worker_main.PipeEnds(theirs, beside, logged, token)
        process = Spawned(
            worker_main.main, (ends, self.board.shared, self._recipe, levels()), self._thread
        )
        for each in (theirs, beside, logged):
            each.close()
        # A stopped process reads nothing; a thread that asks it must not block.
        os.set_blocking(aside.fileno(), False)
        self._log = Homecoming(self._name, lines, token, self._unreadable)
        return process, Inlet(connection, token, process), Inlet(aside, token, process)

    def _kill(self, why: KeySharedError) -> None:
        self._why = self._why or why
        self._process.kill()

    def _unreadable(self, what: object) -> None:
        """Kill a process whose messages cannot be read; from any thread."""
        how = f"it was killed, because its messages cannot be read ({what}): {FOREIGN}"
        self._kill(OverwritingError(how))

    def _overwritten(self) -> None:
        """Kill a process that has overwritten its progress counts, and wait for its end."""
        how = f"it was killed, because memory that it shares was overwritten: {FOREIGN}"
        self._kill(OverwritingError(how))
        self._process.over(KILLED_WITHIN)

    def _ask(self, asked: object) -> Any:
        self._send(asked)
        return self._answer()

    def _send(self, asked: object) -> None:
        try:
            self._connection.send(asked)
        except OSError:
            raise self._ended() from None

    def _answer(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        except (GarbledError, pickle.UnpicklingError) as error:
            self._unreadable(error)
            raise self._ended() from None

    def _value(self, answer: object) -> object:
        if isinstance(answer, worker_main.Raised):
            raise HandlerRaisedError(answer.text)
        return answer.value if isinstance(answer, worker_main.CallAnswer) else None

    def _ended(self) -> KeySharedError:
        """Wait for the process to end and clean up; return the error to raise."""
        status = self._process.reap()
        self._connection.close()
        self._aside.close()
        if self._log is not None:
            self._log.end()
        return self._why or ProcessEndedError(ending(status))


def ending(code: int | None) -> str:
    """Return a text that says how a process has ended."""
    if code is None or code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"{name} (by the system, where memory is short)" if -code == signal.SIGKILL else name


def recipe_of(spec: WorkerSpec) -> bytes:
    """Return the pickled message from which a process makes the handler.

    Raises :class:`ConfigError` if it cannot be sent to another process.
    """
    try:
        make = pickle.dumps(spec.make)
    except Exception as error:
        raise ConfigError(
            f"the handler cannot be sent to another process: {type(error).__name__}: {error}; "
            "define it at the top level of a module, by a name (no lambda, no function in a "
            "function), or give a number of threads, such as workers=16"
        ) from error
    outputs = spec.take is not None
    recipe = worker_main.Recipe(spec.name, make, _modules(spec), spec.rules, outputs)
    return pickle.dumps(recipe)


def _modules(spec: WorkerSpec) -> tuple[tuple[str, str], ...]:
    handler = getattr(spec.make, "handler", spec.make)
    name = getattr(handler, "__module__", None)
    file = getattr(sys.modules.get(name or ""), "__file__", None)
    if name is None or file is None or name == "__main__":
        return ()
    return ((name, str(Path(file).absolute())),)
