"""What a diagnosis says, as values."""

from __future__ import annotations

import msgspec

from kafka_keyshared.diagnosis.causes import Level

HEALTHY = "healthy"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong, and the record that it is about, as far as it is about one.

    ``code``, ``number``, ``level``, ``cause``, ``cure`` and ``page`` are those of its cause
    (:mod:`.causes`). ``sentence`` says what is so, for a person. ``key`` is None for a record
    without one and where keys are hidden; ``slot`` is its slot all the same. It has been so for so
    many ``seconds``, None where that is not known, and with ``count`` things in all. ``stack`` are
    the calls that a handler is in, or that an attempt has failed in.
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
    """What is wrong with an instance, what is to be mended first at the beginning; or nothing."""

    findings: tuple[Finding, ...] = ()

    @property
    def first(self) -> Finding | None:
        """Return what is to be mended first; None where nothing is."""
        return self.findings[0] if self.findings else None

    @property
    def number(self) -> int:
        """Return the number of its cause, 0 where nothing is wrong."""
        return self.findings[0].number if self.findings else 0

    @property
    def healthy(self) -> bool:
        """Say whether nothing waits for somebody; what passes by itself does not."""
        return all(each.level != "fail" for each in self.findings)

    @property
    def text(self) -> str:
        """Return it in a line: ``healthy``, or the sentence that matters."""
        if not self.findings:
            return HEALTHY
        more = f" (and {len(self.findings) - 1} more)" if len(self.findings) > 1 else ""
        return f"{self.findings[0].sentence}{more}"
