"""The command line; it reports when the extra ``cli`` is missing."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the command line; return the exit status: 0 ok, 1 failure, 2 usage, 3 unhealthy."""
    # The first process of a container gets no signal without a handler. A SIGTERM during the start
    # would be lost. A verb that runs a handler replaces this signal handler.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run()
    except KeyboardInterrupt:  # so early that no work has begun
        sys.stderr.write("keyshared: interrupted\n")
        return 1


def _run() -> int:
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        sys.stderr.write(
            "keyshared: the command line needs typer and rich; "
            'install them with: pip install "kafka-keyshared[cli]"\n'
        )
        return 2
    from kafka_keyshared.cli.app import run

    return run()
