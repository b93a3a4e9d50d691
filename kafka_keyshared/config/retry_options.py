"""Options for the retries of failed records."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

WEEK = 7 * 86_400
"""Maximum in seconds of every configurable time."""


class RetryOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often and how soon a failed record runs again."""

    attempts: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(
            description="How often a record is tried, the first time included.",
            extra={"flag": "--attempts"},
        ),
    ] = 5
    backoff: Annotated[
        Annotated[float, Meta(ge=0, le=WEEK)],
        Meta(description="How long a record waits after its first failure.", extra={"unit": "s"}),
    ] = 0.1
    factor: Annotated[
        Annotated[float, Meta(ge=1, le=1e9)],
        Meta(description="By what the wait grows with each further failure."),
    ] = 2.0
    backoff_max: Annotated[
        Annotated[float, Meta(ge=0, le=WEEK)],
        Meta(description="The longest wait.", extra={"unit": "s"}),
    ] = 30.0
    jitter: Annotated[
        Annotated[float, Meta(ge=0, lt=1)],
        Meta(description="By which share of itself each wait is made longer or shorter by chance."),
    ] = 0.2
