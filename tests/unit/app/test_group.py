"""What an instance tells its group, what it hears of it, and what becomes of what fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_keyshared.app import group as told
from kafka_keyshared.app.group import ReportSender, TopicEar
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.observability.web.group.report import InstanceReport, key_of, packed
from tests.support.instance_reports import GROUP, report

Eventually = Callable[..., None]

OWN = report("a", 0)
KEY = key_of(GROUP, OWN.instance)
DENIED = "this user may not write to topic 'reports'; allow WRITE on topic reports"


class Writer:
    """Takes what is told; it refuses while it is told why."""

    def __init__(self) -> None:
        self.why = ""
        self.tried = 0
        self.words: list[bytes | None] = []

    def write(self, key: bytes, value: bytes | None) -> None:
        assert key == KEY
        self.tried += 1
        if self.why:
            raise KeySharedError(self.why)
        self.words.append(value)


class Teller:
    """Something that tells, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.own: InstanceReport | None = OWN
        self.writer = Writer()
        writer: Any = self.writer
        self.telling = ReportSender(lambda: self.own, writer, KEY, 0.001, lambda: self.now)
        self.telling.start()


@pytest.fixture
def teller() -> Any:
    made = Teller()
    yield made
    made.telling.close(clean=False)


def test_a_clean_stop_is_told_with_the_last_word(teller: Teller, eventually: Eventually) -> None:
    eventually(lambda: len(teller.writer.words) > 2)
    teller.telling.close(clean=True)
    *reports, last = teller.writer.words
    assert {*reports} == {packed(OWN)}
    assert last is None


def test_whoever_does_not_stop_cleanly_says_nothing_of_it(
    teller: Teller, eventually: Eventually
) -> None:
    eventually(lambda: len(teller.writer.words) > 2)
    teller.telling.close(clean=False)
    assert None not in teller.writer.words


def test_whoever_looks_waits_for_the_first_word_also_for_one_that_fails(teller: Teller) -> None:
    """It makes the topic, where that is to be made."""
    assert teller.telling.tried.wait(30)
    refused: Any = Writer()
    refused.why = DENIED
    silent = ReportSender(lambda: None, refused, KEY, 0.001)
    assert not silent.tried.is_set()
    telling = ReportSender(lambda: OWN, refused, KEY, 0.001)
    telling.start()
    assert telling.tried.wait(30)
    telling.close(clean=False)
    assert refused.tried > 0


def test_one_that_has_told_nothing_has_no_last_word() -> None:
    writer: Any = Writer()
    telling = ReportSender(lambda: None, writer, KEY, 0.001)
    telling.start()
    telling.close(clean=True)
    assert writer.words == []


def test_what_is_refused_is_one_line_until_it_is_well_again(
    teller: Teller, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kafka_keyshared.group")
    teller.writer.why = DENIED
    eventually(lambda: teller.telling.reports().failed > 20)
    (line,) = caplog.messages
    assert DENIED in line
    assert "Records are still consumed" in line
    assert teller.telling.trouble() == f"the other instances get no reports of this one: {DENIED}"
    teller.now += 60.0
    reports = teller.telling.reports()
    assert (reports.failing_seconds, reports.error) == (60.0, DENIED)

    teller.now += told.SAID_EVERY
    eventually(lambda: len(caplog.messages) == 2)
    assert "lines like this left out" in caplog.messages[1]

    teller.writer.why = ""
    eventually(lambda: len(caplog.messages) == 3)
    assert caplog.messages[2] == "the reports of this instance are written again"
    eventually(lambda: teller.telling.reports().failing_seconds is None)
    assert teller.telling.trouble() == ""


def test_one_that_comes_and_goes_does_not_fill_the_log(
    teller: Teller, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kafka_keyshared.group")
    for _ in range(5):
        teller.writer.why = DENIED
        failed, written = teller.telling.reports().failed, teller.telling.reports().written
        eventually(lambda failed=failed: teller.telling.reports().failed > failed)
        teller.writer.why = ""
        eventually(lambda written=written: teller.telling.reports().written > written + 1)
    assert len(caplog.messages) == 2


# --- what it hears ---


class Record:
    """A record of the topic, as the client gives it."""

    def __init__(self, key: bytes | None, value: bytes | None, ago: float = 0.0) -> None:
        self._key, self._value, self._ago = key, value, ago

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, int((time.time() - self._ago) * 1000)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """The records that a reader of the topic takes; its log is behind."""
    records: list[Record] = []

    class Reader:
        def __init__(self, *_: Any) -> None: ...

        def open(self) -> dict[Any, int]:
            return {("reports", 0): 0}

        def take(self, _timeout: float) -> list[Record]:
            taken, records[:] = records[:], []
            return taken

        def heard(self, events: Sequence[Any]) -> None:
            assert not events

        def close(self) -> None: ...

    monkeypatch.setattr(told, "LogReader", Reader)
    return records


def heard(topic: list[Record], *records: Record) -> tuple[list[Any], tuple[str, ...]]:
    ear = TopicEar({}, "reports", GROUP)
    topic += records
    return [*ear.hear(0.0)], ear.troubles


def test_reports_are_heard_with_their_age_and_a_last_word(topic: list[Record]) -> None:
    (first, last), troubles = heard(topic, Record(KEY, packed(OWN), ago=20.0), Record(KEY, None))
    assert (first.key, first.report) == (KEY, OWN)
    assert first.seconds == pytest.approx(20.0, abs=5.0)
    assert (last.key, last.report, troubles) == (KEY, None, ())


@pytest.mark.parametrize(
    "record",
    [
        Record(None, packed(OWN)),
        Record(b"shipping/a-1-0", packed(OWN)),
        Record(f"{GROUP}-2/a-1-0".encode(), None),
        # Somebody speaks for another, and might have it look well, or gone.
        Record(key_of(GROUP, "b-1-0"), packed(OWN)),
        Record(KEY, packed(report("a", group="shipping"))),
    ],
)
def test_what_is_of_others_or_is_said_for_others_is_not_heard(
    record: Record, topic: list[Record]
) -> None:
    assert heard(topic, record) == ([], ())


def test_what_is_no_report_is_left_out_and_told_and_the_next_is_heard(topic: list[Record]) -> None:
    hostile = Record(KEY, b'{"version": 1, "group": "' + b"x" * 1_000)
    news, (trouble,) = heard(topic, hostile, Record(KEY, packed(OWN)))
    assert [each.report for each in news] == [OWN]
    assert trouble.startswith(f"{KEY.decode()} is not understood: not a report")
