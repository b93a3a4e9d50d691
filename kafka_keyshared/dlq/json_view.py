"""The JSON forms of dead letters and handler outputs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from kafka_keyshared.dlq.letter import Letter
from kafka_keyshared.dlq.payload import Decoder, PayloadFormat
from kafka_keyshared.model import Output


def whole(letter: Letter, decoder: Decoder) -> dict[str, Any]:
    """Return the full content of a dead letter, for JSON."""
    told = letter.told
    result: dict[str, Any] = {
        "at": str(letter.at),
        "written": when(letter.written),
        "form": letter.kind.value,
    }
    if told is None:
        result["problem"] = letter.problem
    else:
        result |= {
            "source": told.source._asdict(),
            "source_timestamp": when(told.timestamp),
            "source_group": told.group,
            "attempts": told.attempts,
            "replays": told.replays,
            "error_type": told.error_type,
            "error_message": told.error_message,
            "error_stack": told.error_stack,
            "first_failure": when(told.first_failure),
            "last_failure": when(told.last_failure),
        }
        if told.trace:
            result["traceparent"] = told.trace
    result["key"] = decoder.plain(letter.key)
    result["value"] = decoder.value(letter.value)
    result["headers"] = [
        {"name": name, "value": decoder.plain(value)} for name, value in letter.headers
    ]
    return result


def when(milliseconds: int | None) -> str | None:
    """Return a time in UTC as text; a time outside the calendar as a number."""
    if milliseconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(milliseconds / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def in_a_line(letter: Letter) -> dict[str, Any]:
    """Return the fields of a dead letter for a list: no value and no headers."""
    told = letter.told
    return {
        "at": str(letter.at),
        "written": when(letter.written),
        "source": str(told.source) if told else None,
        "group": told.group if told else None,
        "key": Decoder(PayloadFormat.AUTO).plain(letter.key),
        "error": told.error if told else letter.problem,
        "attempts": told.attempts if told else None,
        "replays": told.replays if told else None,
    }


def output_line(identity: str, output: Output) -> str:
    """Return an output of a handler as a line of JSON, with its identity."""
    decoder = Decoder(PayloadFormat.AUTO)
    headers = [{"name": name, "value": decoder.plain(value)} for name, value in output.headers]
    shown = {"key": decoder.plain(output.key), "value": decoder.value(_bytes(output.value))}
    return json.dumps({"output": identity, **shown, "headers": headers})


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
