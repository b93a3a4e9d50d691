"""Options without meaning under ``delivery='at-most-once'``: those for tracking and retries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kafka_keyshared.errors import ConfigError

NEEDS_TRACKING = (
    "dlq",
    "dlq_create",
    "dlq_format",
    "on_exhausted",
    "retry",
    "undecodable",
    "one_in_flight_per_key",
    "commit_interval",
    "ack_timeout",
    "on_stuck",
    "on_evict",
    "detach_after",
)

WITHOUT = {"undecodable": ("drop", "null_key")}
"""Values of these options that are still allowed."""


def refuse_what_needs_tracking(options: msgspec.Struct, default: msgspec.Struct) -> None:
    """Raise :class:`ConfigError` that names every given option that needs tracking.

    ``default`` are the default options.
    """
    said = [*_changed(options, default)]
    pool = getattr(options, "pool")  # noqa: B009 - of Options, which imports this module
    if pool in ("pull", "split"):
        said.insert(0, f"workers={getattr(options, 'workers')!r} (members acknowledge)")  # noqa: B009
    if said:
        raise ConfigError(
            "delivery='at-most-once' tracks nothing: with it "
            f"{', '.join(said)} would mean nothing; leave that out, or leave out "
            "delivery='at-most-once'"
        )


def _changed(options: msgspec.Struct, default: msgspec.Struct) -> Iterator[str]:
    for name in NEEDS_TRACKING:
        value, usual = getattr(options, name), getattr(default, name)
        if value == usual or value in WITHOUT.get(name, ()):
            continue
        if isinstance(value, msgspec.Struct):
            yield from (f"{name}.{field}={each!r}" for field, each in _differing(value, usual))
        else:
            yield f"{name}={value!r}"


def _differing(value: msgspec.Struct, usual: Any) -> Iterator[tuple[str, Any]]:
    for field in value.__struct_fields__:
        if (each := getattr(value, field)) != getattr(usual, field):
            yield field, each
