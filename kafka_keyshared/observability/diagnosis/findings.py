"""Findings of a diagnosis, as values."""

from __future__ import annotations

import msgspec

from kafka_keyshared.observability.diagnosis.causes import Level

HEALTHY = "healthy"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem, and the record that it is about, if there is one.

    ``code``, ``number``, ``level``, ``cause``, ``cure`` and ``page`` are those of its cause
    (:mod:`.causes`). ``sentence`` describes the state for a person. ``key`` is None for a record
    without one and where keys are hidden; ``slot`` is its slot in both cases. ``seconds`` is the
    duration, None if unknown. ``count`` is the number of affected things. ``stack`` are the calls
    that a handler is in, or in which an attempt has failed.
    """

    code: str
    number: int
    level: Level
    sentence: str
    cause: str
    cure: str
    page: str
    subscription: str = ""
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    key: str | None = None
    slot: int | None = None
    worker: str = ""
    seconds: float | None = None
    count: int = 1
    stack: str = ""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All findings about an instance, in order of repair."""

    findings: tuple[Finding, ...] = ()

    @property
    def first(self) -> Finding | None:
        """Return the finding to repair first; None without findings."""
        return self.findings[0] if self.findings else None

    @property
    def number(self) -> int:
        """Return the number of the first finding's cause, 0 without findings."""
        return self.findings[0].number if self.findings else 0

    @property
    def healthy(self) -> bool:
        """Return whether no finding needs an operator.

        Findings of level ``warn`` do not count.
        """
        return all(each.level != "fail" for each in self.findings)

    @property
    def text(self) -> str:
        """Return the diagnosis in a line: ``healthy``, or the first finding's sentence."""
        if not self.findings:
            return HEALTHY
        more = f" (and {len(self.findings) - 1} more)" if len(self.findings) > 1 else ""
        return f"{self.findings[0].sentence}{more}"
