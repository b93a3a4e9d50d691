"""Reads a processed log back, row by row."""

from __future__ import annotations

import msgspec

from kafka_keyshared.observability.audit.processed import ProcessedRow


def read_rows(lines: bytes) -> list[ProcessedRow]:
    """Return the rows of a file; a last line that was cut short is left out."""
    return msgspec.json.Decoder(ProcessedRow).decode_lines(lines[: lines.rfind(b"\n") + 1])
