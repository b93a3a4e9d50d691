"""Failures of a subscription, as parts of its status (:mod:`.status`)."""

from __future__ import annotations

from typing import Literal

import msgspec


class FailureRate(msgspec.Struct, frozen=True, kw_only=True):
    """A high share of failures of a subscription, a topic or a partition.

    - ``what`` says which failures: ``attempts`` that failed, or records ``given_up``, which means
      dead-lettered, diverted, or dropped by the poison policy.
    - ``topic`` is empty and ``partition`` None where the rate covers all of them.
    - ``count`` is the number of failures in the last ``window_seconds``; ``ok`` records were done.
    - ``put_off`` says that handlers delayed most of these records (``Retry(attempt=False)``)
      instead of failing.
    - ``seconds`` is for how long the rate has been high, with ``total`` failures since.
    - ``error_share`` of them are ``error`` from ``where``, the last one with ``message``.
    """

    what: Literal["attempts", "given_up"]
    level: Literal["fail", "warn"]
    topic: str
    partition: int | None
    share: float
    count: int
    ok: int
    window_seconds: float
    put_off: bool = False
    total: int
    seconds: float
    error: str
    where: str
    error_share: float
    message: str


class DependencyWait(msgspec.Struct, frozen=True, kw_only=True):
    """An outage of a dependency, while the subscription waits for its end.

    - ``error``, ``where`` and ``message`` describe the failure that shows it.
    - ``seconds`` is how long it has lasted. ``probes`` have failed since it was noticed.
    - ``probe_in`` is the number of seconds until the next probe, None while one runs.
    """

    error: str
    where: str
    message: str
    seconds: float
    probes: int
    probe_in: float | None
