"""Sets of jars that Maven fetches once per user into a cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from kafka_keyshared.errors import ConfigError, KeySharedError, MissingPartError

_FETCH_TIMEOUT = 900.0


@dataclass(frozen=True)
class JarSet:
    """Jars that belong together.

    ``what`` names them in messages. ``folder`` is their directory in the cache, and ``variable``
    the environment variable that names another directory. ``needed`` are patterns of file names,
    each of which must match a file. ``pom`` is the resource for Maven, beside the modules of
    ``package``. ``how_to_get`` ends every message about missing jars.
    """

    what: str
    folder: str
    variable: str
    needed: tuple[str, ...]
    package: str
    pom: str
    how_to_get: str

    def cache_directory(self) -> Path:
        """Return the directory of fetched jars: under ``XDG_CACHE_HOME``, else ``~/.cache``."""
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(root) / "kafka-keyshared" / self.folder

    def complete(self, directory: Path) -> bool:
        """Return whether the directory has all needed jars."""
        return all(any(directory.glob(pattern)) for pattern in self.needed)

    def find(self) -> Path | None:
        """Return the directory with the jars, or None if there is none yet.

        Raises :class:`ConfigError` when the variable names a directory without them, because
        falling back to other jars would hide the mistake.
        """
        named = os.environ.get(self.variable)
        if named:
            if self.complete(Path(named)):
                return Path(named)
            raise ConfigError(
                f"{self.variable}={named}: no {' and '.join(self.needed)} there; correct it or "
                "unset it"
            )
        return self.cache_directory() if self.complete(self.cache_directory()) else None

    def require(self) -> Path:
        """Return the same as :meth:`find`, but raise :class:`MissingPartError` without jars."""
        directory = self.find()
        if directory is None:
            raise MissingPartError(
                f"the jars of {self.what} are not in {self.cache_directory()}: {self.how_to_get}"
            )
        return directory

    def fetch(self) -> Path:
        """Return the directory with the jars; fill it with Maven if there is none yet.

        Several processes may do this at once. Each fills its own directory, and the first to finish
        wins. Raises :class:`MissingPartError` when Maven is missing or fails.
        """
        found = self.find()
        if found is not None:
            return found
        maven = shutil.which("mvn")
        if maven is None:
            raise MissingPartError(
                f"the jars of {self.what} are not in {self.cache_directory()} and Maven (mvn) is "
                "not on PATH to fetch them: install Maven (Debian: apt-get install maven, macOS: "
                f"brew install maven), or {self.how_to_get}"
            )
        target = self.cache_directory()
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as scratch:
            filled = Path(scratch) / "jars"
            self._run_maven(maven, Path(scratch), filled)
            self.publish(filled, target)
        return target

    def fetch_and_tell(self) -> int:
        """Fetch the jars if needed, print their directory or the error, return the exit status."""
        try:
            sys.stdout.write(f"{self.fetch()}\n")
        except KeySharedError as failure:
            sys.stderr.write(f"{failure}\n")
            return failure.exit_code
        return 0

    def _run_maven(self, maven: str, scratch: Path, filled: Path) -> None:
        # A copy, because the installed package may be read-only and Maven writes next to its pom.
        pom = scratch / "pom.xml"
        pom.write_bytes(files(self.package).joinpath(self.pom).read_bytes())
        command = [maven, "--batch-mode", "--quiet", "--file", str(pom)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={filled}"]
        try:
            ran = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_FETCH_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise MissingPartError(
                f"Maven did not fetch the jars of {self.what} within {_FETCH_TIMEOUT:.0f} s; look "
                "at the network and try again"
            ) from late
        if ran.returncode != 0 or not self.complete(filled):
            lines = [line for line in ran.stdout.splitlines() if "ERROR" in line] or ["no output"]
            said = "\n".join(lines[:5])
            raise MissingPartError(
                f"Maven ended with status {ran.returncode} and the jars of {self.what} are not "
                f"complete; look at the network and Maven's settings.\n{said}"
            )

    def publish(self, filled: Path, target: Path) -> None:
        """Rename ``filled`` to ``target``; a complete ``target`` that exists stays."""
        if target.is_dir() and not self.complete(target):
            # A user emptied part of the cache. A rename onto this directory would fail for ever.
            shutil.rmtree(target, ignore_errors=True)
        with suppress(OSError):
            filled.rename(target)
        if not self.complete(target):
            raise MissingPartError(
                f"the fetched jars could not be moved to {target}; see whether the disk is full or "
                f"the directory belongs to another user, or set {self.variable}"
            )
