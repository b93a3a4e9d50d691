"""Runs a command that is silent for long, and says every few seconds that it is still at it.

``python tests/setup/talk.py WHAT COMMAND…`` prints what it is about, then lines with the seconds
that went by and the last thing the command said. What the command printed is shown whole if it
fails. The exit status is the command's.

It needs nothing but the standard library, because it runs before anything is installed.
"""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TextIO

EVERY_SECONDS = 3.0
_WIDTH = 78

# What pip is doing, from a line of its output.
_DOING = re.compile(r"\s*(?:Collecting|Downloading|Using cached|Building|Installing)\b.*")


def _read(lines: Iterable[str], into: queue.SimpleQueue[str | None]) -> None:
    for line in lines:
        into.put(line)
    into.put(None)


def _doing(line: str) -> str | None:
    """Return what a line says that is done now, short; None where it says nothing of the kind."""
    if not _DOING.fullmatch(line.rstrip("\n")):
        return None
    words = line.split()
    # Of an address the file is enough; of many packages their number.
    words = [word.rpartition("/")[2] if "://" in word else word for word in words]
    if words[:3] == ["Installing", "collected", "packages:"]:
        return f"Installing packages: {len(words) - 3}"
    return " ".join(words)


def talk(what: str, command: Sequence[str], say: TextIO, every: float = EVERY_SECONDS) -> int:
    """Run the command; return its exit status.

    ``every`` is how long it may be silent, in seconds.
    """
    say.write(f"{what} …\n")
    say.flush()
    began = time.monotonic()
    said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    printed: list[str] = []
    doing = ""
    next_word = began + every
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=_read, args=(process.stdout, said), daemon=True)
        reader.start()
        ended = False
        while not ended:
            try:
                line = said.get(timeout=max(0.0, next_word - time.monotonic()))
            except queue.Empty:
                next_word = time.monotonic() + every
                word = f"  {time.monotonic() - began:.0f} s  {doing}".rstrip()
                say.write(f"{word[:_WIDTH]}\n")
                say.flush()
                continue
            ended = line is None
            if line is not None:
                printed.append(line)
                doing = _doing(line) or doing
        status = process.wait()
    if status:
        say.write("".join(printed))
    else:
        say.write(f"  done in {time.monotonic() - began:.0f} s\n")
    say.flush()
    return status


def main(arguments: Sequence[str]) -> int:
    """Serve the Makefile."""
    if len(arguments) < 2:
        print("usage: talk.py WHAT COMMAND…", file=sys.stderr)
        return 2
    try:
        return talk(arguments[0], arguments[1:], sys.stderr)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
