"""``keyshared status``: the diagnosis of a running instance, from its status."""

from __future__ import annotations

import sys

import msgspec

from kafka_keyshared.cli.instances import status_of
from kafka_keyshared.cli.output import OutputFormat, write_note, write_result
from kafka_keyshared.observability.diagnosis.judge import diagnose

UNHEALTHY = 3


def status_verb(url: str, output: OutputFormat, *, keys: bool = False) -> int:
    """Print the diagnosis; return 3 if a finding needs operator action."""
    found = diagnose(status_of(url), keys=keys)
    if output is OutputFormat.TABLE:
        sys.stdout.write(f"{found.text}\n")  # one line, so that scripts can embed it
        if found.first is not None:
            write_note(f"to do: {found.first.cure} (docs/{found.first.page})")
    else:
        findings = msgspec.to_builtins(found.findings)
        told = {"text": found.text, "healthy": found.healthy, "number": found.number}
        write_result({**told, "findings": list(findings)}, output, "status")
    return 0 if found.healthy else UNHEALTHY
