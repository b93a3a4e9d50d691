"""One run of one system, in a process watched from outside.

The run must not take long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench.common import END_TIMEOUT
from kafka_keyshared.lab.bench.jars import arguments
from kafka_keyshared.lab.bench.processes import watched
from kafka_keyshared.lab.bench.systems import System
from kafka_keyshared.lab.bench.workloads import BenchJob, JobResult

PATIENCE = 90.0
"""Seconds beyond a job's limit: to start, to join, to notice that no record comes, and to end."""

REASON_LETTERS = 300
MIB = 1 << 20


class PeerError(KeySharedError):
    """A system did not do its job. The message is one line with the reason."""


class MeasuredRun(msgspec.Struct, kw_only=True):
    """A run as seen from inside and outside.

    ``peak_mib`` is the sum of the peak memory of each of its processes; None on a system without
    /proc.
    """

    ran: JobResult
    peak_mib: float | None


class RunningSystem:
    """A system doing its job, until :meth:`result` or the end of the block."""

    def __init__(self, system: System, job: BenchJob, java: Sequence[str] = ()) -> None:
        self._system = system
        self._job = job
        self._java = java
        # Files and not pipes: no process has to read during the run, or write before it is ready.
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        with tempfile.TemporaryFile() as told:
            told.write(msgspec.json.encode(job))
            told.seek(0)
            self._process = self._started(told)

    def _started(self, told: IO[bytes]) -> subprocess.Popen[bytes]:
        if self._system.family.java:
            command = [*self._java, *arguments(self._job)]
        else:
            command = [sys.executable, "-m", "kafka_keyshared.lab.bench.peer"]
        return subprocess.Popen(
            command,
            stdin=told,
            stdout=subprocess.PIPE,
            stderr=self._said,
            # A group of its own, so that its child processes can be ended with it.
            start_new_session=True,
        )

    def check_alive(self) -> None:
        """Raise :class:`PeerError` when it has ended."""
        if self._process.poll() is not None:
            self.ran()

    def result(self) -> MeasuredRun:
        """Return the result. Raises :class:`PeerError` when the system failed, or took too long."""
        try:
            if not Path("/proc/self/stat").exists():
                return MeasuredRun(ran=self.ran(), peak_mib=None)
            with watched(self._process.pid) as peak:
                ran = self.ran()
            return MeasuredRun(ran=ran, peak_mib=round(peak.total() / MIB, 1))
        except subprocess.TimeoutExpired:
            raise PeerError(
                f"it was not done {PATIENCE:g} s after the limit of {self._job.limit:g} s"
            ) from None

    def ran(self) -> JobResult:
        """Return the result without a look at the memory.

        Raises :class:`PeerError` when it failed, ``subprocess.TimeoutExpired`` when it took too
        long.
        """
        wait = self._job.limit + PATIENCE
        out, _ = self._process.communicate(timeout=wait)
        lines = out.splitlines()
        if not lines or self._process.returncode != 0:
            raise PeerError(
                f"it ended with status {self._process.returncode}: {self._last_words()}"
            )
        try:
            ran = msgspec.json.decode(lines[-1], type=JobResult)
        except msgspec.DecodeError as error:
            raise PeerError(f"its output is no result: {error}") from error
        if ran.records < 1 or ran.seconds <= 0:
            raise PeerError("it did no record within its limit")
        return ran

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").splitlines()
        # A Java stack trace ends with its frames, and has the message before them.
        telling = [line.strip() for line in lines if line.strip() and not line.startswith("\tat ")]
        return (telling or ["it said nothing"])[-1][:REASON_LETTERS]

    def __enter__(self) -> RunningSystem:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_TIMEOUT)
        for each in (self._process.stdout, self._said):
            if each is not None:
                each.close()


def run_system(system: System, job: BenchJob, java: Sequence[str] = ()) -> MeasuredRun:
    """Run a system to the end of its job. Raises :class:`PeerError` when it failed."""
    with RunningSystem(system, job, java) as running:
        return running.result()
