"""The parent's end of a worker's process: what it is sent and asked, and what it answers."""

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
from kafka_keyshared.handling.handlers import Made
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.pools import child
from kafka_keyshared.pools.board import Board, new_mark
from kafka_keyshared.pools.frames import GarbledError, Inlet, new_token
from kafka_keyshared.pools.log_lines import Homecoming, levels
from kafka_keyshared.pools.spawned import KILLED_WITHIN, SPAWN, Spawned
from kafka_keyshared.pools.worker_cells import WorkerSpec

BATCH = 1024
"""Records that are sent at once, at most."""

CLOSING = 5.0
"""Seconds that a process has for ending once its handler is closed."""

ANSWERS = 0.2
"""Seconds for which a process is waited for that is asked where it stands: it may be in a library
that lets no other thread run."""

FOREIGN = "its handler, or a library of it, writes into file descriptors that are not its own"


class ProcessEndedError(KeySharedError):
    """A worker's process ended while it was running; ``how`` it ended."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the worker's process ended while it was running: {how}")
        self.how = how


class OverwritingError(ProcessEndedError):
    """The process was killed because something in it overwrites what is not its own."""


class TimedOutError(KeySharedError):
    """A record ran past the ack timeout, and its process was killed."""


class StoppedError(KeySharedError):
    """The process was killed because its handler still ran when the instance had stopped."""


class HandlerRaisedError(KeySharedError):
    """A call of the handler in its process has raised; the text is that of the exception."""


class WorkerProcess:
    """The process of one worker, and the ones that follow it."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.board = Board(BATCH if spec.called is not None else 0, mark=new_mark())
        self.board.on_garbled = self._overwritten
        self._name = spec.name
        self._thread = spec.thread
        self._log: Homecoming | None = None
        self._recipe = recipe_of(spec)
        self._process: Any = None
        self._connection: Any = None
        self._aside: Any = None
        # Why it was killed, if it was.
        self._why: KeySharedError | None = None
        # Which question where it stands was asked last, and which one has been answered.
        self._asked = self._answered = 0
        self.closed = False
        """Whether its handler has been closed, and the process only has to end."""
        self.not_made: list[child.Raised] = []
        """What the handler said when it could not be made, each time since it last could."""

    def start(self) -> Made:
        """Start a process and return how its handler is called, once that is made there.

        ``handle`` takes the rows of a batch and returns what has become of them. Raises
        :class:`HandlerRaisedError` when the handler cannot be made.
        """
        self._why = None
        self.closed = False
        self._asked = self._answered = 0
        self._process, self._connection, self._aside = self._spawn()
        try:
            ready = self._answer()
        except ProcessEndedError as error:
            text = f"the process ended meanwhile: {error.how}; what it said, it has printed"
            self.not_made.append(child.Raised(text, ""))
            raise HandlerRaisedError(text) from None
        if isinstance(ready, child.Raised):
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

    def run(self, batch: child.Batch | child.Taken) -> child.Ran | child.HandedOut:
        """Run a batch, or go on with it; raise :class:`ProcessEndedError` when the process dies.

        What it hands out on the way waits for an answer.
        """
        self.send(batch)
        return self.ran()

    def send(self, batch: child.Batch | child.Taken) -> None:
        """Have a batch run, or go on; raise :class:`ProcessEndedError` when the process has died.

        Or :class:`TimedOutError` when it was killed: here and wherever it is heard.
        """
        self._send(batch)

    def ran(self) -> child.Ran | child.HandedOut:
        """Wait for what has become of the batch, and return it."""
        try:
            ran = self._answer()
        except KeySharedError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever pickle makes of it
            self._unreadable(error)
            raise self._ended() from None
        if not isinstance(ran, child.Ran | child.HandedOut):
            self._unreadable(f"a batch was answered with {ran!r:.200}")
            raise self._ended()
        return ran

    def release(self, slots: Sequence[int]) -> object:
        """Have the handler give up the state of slots."""
        return self._value(self._ask(child.Call("release", (slots,))))

    def adopt(self, slots: Sequence[int], state: object) -> object:
        """Have the handler take over the state of slots."""
        return self._value(self._ask(child.Call("adopt", (slots, state))))

    def close(self) -> None:
        """Close the handler, and see the process to its end."""
        try:
            self._value(self._ask(child.LAST))
            self.closed = True
        finally:
            if not self._process.over(CLOSING):
                self._process.kill()
            self._ended()

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return int(self._process.pid)

    def where(self) -> str:
        """Return where the handler stands; nothing where the process does not say.

        A process that has not answered is not asked again before it has: it may be stopped, and
        questions that it does not read would fill the pipe.
        """
        try:
            if self._asked == self._answered:
                self._asked += 1
                self._aside.send(child.Where(self._asked))
            until = time.monotonic() + ANSWERS
            while (left := until - time.monotonic()) > 0:
                self._answered, where = self._aside.recv(left)
                if self._answered == self._asked:
                    return str(where)
        except (OSError, EOFError):  # it has ended, or does not answer
            return ""
        except Exception as error:  # noqa: BLE001 - whatever pickle makes of it
            self._unreadable(error)
        return ""

    def lapse(self, slices: Collection[int], partitions: Collection[TopicPartition]) -> None:
        """Let the handler know, if it asks, that its lease is over."""
        with suppress(OSError):  # it has died meanwhile, or reads nothing
            self._aside.send(child.Lapsed(slices, partitions))

    def kill(self) -> None:
        """End the process in whatever it does; the thread that waits for it is told why."""
        self._kill(TimedOutError("it ran past the ack timeout, and its process was killed"))

    def stop(self) -> bool:
        """Kill the process if it still runs, because the instance has stopped; say whether it did.

        The worker's thread reaps it.
        """
        if self._process is None or self._process.over():
            return False
        self._kill(StoppedError("it still ran when the instance stopped, so it was killed"))
        return True

    def ended(self, seconds: float) -> bool:
        """Wait for the end of the process at most so many seconds; say whether it has ended."""
        return self._process is None or bool(self._process.over(seconds))

    # --- inside ---

    def _spawn(self) -> tuple[Any, Any, Any]:
        """Start a process; return it, and the ends of the pipes to it: the main one, and beside."""
        connection, theirs = SPAWN.Pipe()
        aside, beside = SPAWN.Pipe()
        lines, logged = SPAWN.Pipe(duplex=False)
        for each in (connection, theirs, beside):  # which gevent's sockets do not do
            os.set_blocking(each.fileno(), True)
        token = new_token()
        ends = child.Ends(theirs, beside, logged, token)
        process = Spawned(
            child.main, (ends, self.board.shared, self._recipe, levels()), self._thread
        )
        for each in (theirs, beside, logged):
            each.close()
        # A process that is stopped reads nothing; whoever asks it must not wait for that.
        os.set_blocking(aside.fileno(), False)
        self._log = Homecoming(self._name, lines, token, self._unreadable)
        return process, Inlet(connection, token, process), Inlet(aside, token, process)

    def _kill(self, why: KeySharedError) -> None:
        self._why = self._why or why
        self._process.kill()

    def _unreadable(self, what: object) -> None:
        """Kill a process whose messages cannot be read; from any thread."""
        how = f"it was killed, because what it sent cannot be read ({what}): {FOREIGN}"
        self._kill(OverwritingError(how))

    def _overwritten(self) -> None:
        """Kill a process that has overwritten how far it is, and wait until it runs no more."""
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
        if isinstance(answer, child.Raised):
            raise HandlerRaisedError(answer.text)
        return answer.value if isinstance(answer, child.Answered) else None

    def _ended(self) -> KeySharedError:
        """See the process to its end; return what there is to say of it."""
        status = self._process.reap()
        self._connection.close()
        self._aside.close()
        if self._log is not None:
            self._log.end()
        return self._why or ProcessEndedError(ending(status))


def ending(code: int | None) -> str:
    """Return in words how a process has ended."""
    if code is None or code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"{name} (by the system, where memory is short)" if -code == signal.SIGKILL else name


def recipe_of(spec: WorkerSpec) -> bytes:
    """Return what a process needs for making the handler.

    Raises :class:`ConfigError` for what cannot be sent to another process.
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
    recipe = child.Recipe(spec.name, make, _modules(spec), spec.dead_letter_on, outputs)
    return pickle.dumps(recipe)


def _modules(spec: WorkerSpec) -> tuple[tuple[str, str], ...]:
    handler = getattr(spec.make, "handler", spec.make)
    name = getattr(handler, "__module__", None)
    file = getattr(sys.modules.get(name or ""), "__file__", None)
    if name is None or file is None or name == "__main__":
        return ()
    return ((name, str(Path(file).absolute())),)
