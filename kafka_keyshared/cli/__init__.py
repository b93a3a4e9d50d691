"""The command line. It needs the extra ``cli``; without it, it says so."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; return the exit status: 0 ok, 1 failure, 2 usage, 3 unhealthy."""
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
