"""Checks for tracing, whose package most installations do not have."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from kafka_keyshared.config.options import Options
from kafka_keyshared.config.setting_faults import Fault


def untraceable(options: Options) -> Iterator[Fault]:
    """Yield the reasons why the requested spans cannot be made."""
    if not options.tracing:
        return
    if options.pool in ("pull", "split"):
        text = (
            f"tracing=True and workers={options.workers!r}: a span is a call of a handler, and "
            "members ask for records themselves; leave it out"
        )
        yield Fault(("tracing", "workers"), text)
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.trace") is None:
        text = (
            "tracing=True needs the package opentelemetry-api: install it with "
            'pip install "kafka-keyshared[tracing]"'
        )
        yield Fault(("tracing",), text)
