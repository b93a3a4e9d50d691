"""The text report of the advice: the verdict first, about 25 lines."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from kafka_keyshared.cli.advice.model import SHOWN, Advice

WIDTH = 96
_KEY_SHOWN = 32
_WAITING = (
    "For handlers that wait (a database, HTTP, a disk): threads share one interpreter, so pure "
    "computation gains nothing from them"
)


def lines(advice: Advice) -> list[str]:
    """Return the report."""
    found = _wrapped(_capital(advice.says) + ".")
    if not advice.records:
        return found + [line for note in advice.notes for line in _wrapped(f"- {_capital(note)}.")]
    found += ["", *_wrapped(_sampled(advice)), *_wrapped(_hottest(advice)), ""]
    found += [*_columns(_speed_rows(advice)), *_wrapped(_time(advice)), ""]
    found += _scopes(advice) if advice.keys else []
    found += [line for note in advice.notes for line in _wrapped(f"- {_capital(note)}.")]
    if advice.verdict in ("helps", "little"):
        found += _wrapped(f"- {_WAITING}.")
    if advice.code:
        found += ["", *advice.code.splitlines()]
    return found


def _sampled(advice: Advice) -> str:
    what = f"{advice.records:,} records" + (
        ", all of them," if advice.complete else ", the newest ones,"
    )
    by = "" if advice.key == "record" else f" (key={advice.key!r})"
    keys = f"{'' if advice.keys_exact else 'about '}{advice.keys:,} keys"
    return (
        f"{', '.join(advice.topics)}: {what} read in {advice.seconds:g} s; {keys}, "
        f"{advice.null_keys:,} records without a key{by}"
    )


def _hottest(advice: Advice) -> str:
    if not advice.hottest_keys:
        return "no key at all"
    hot = advice.hottest_keys[0]
    name = "" if hot.key is None else f" {hot.key[:_KEY_SHOWN]!r}"
    return (
        f"hottest key{name}: {_percent(hot.share)} of the records; no number of workers goes "
        f"beyond {advice.hottest_bound:,.1f} times"
    )


def _speed_rows(advice: Advice) -> list[list[str]]:
    """Return a row for today and one for each number of workers; omit an empty column."""
    null_keys = advice.speedup_null_keys_one_lane
    rows = [
        ["workers", "speed-up", "in a window", "without order", "null keys in one lane", "time"],
        ["today", _times(advice.today.speedup), "", "", "", duration(advice.drain.today)],
    ]
    rows += [
        [
            name,
            _times(advice.speedup[name]),
            _times(advice.speedup_in_window[name]),
            _times(advice.unordered[name]),
            "" if null_keys is None else _times(null_keys[name]),
            duration(advice.drain.workers[name]),
        ]
        for name in map(str, SHOWN)
    ]
    if null_keys is None:
        for row in rows:
            del row[4]
    return rows


def _time(advice: Advice) -> str:
    lag = advice.lag
    whole = "the whole topic" if len(advice.topics) == 1 else "all of the topics"
    what = whole if lag.group is None else f"the lag of {lag.group}"
    at_most = "" if lag.records == lag.offsets else "at most "
    return (
        f"time: {what}, {at_most}{lag.offsets:,} records at {advice.drain.ms_per_record:g} ms each"
    )


def _scopes(advice: Advice) -> list[str]:
    found = advice.order_scope
    if all(scope == found["topic"] for scope in found.values()):
        return _wrapped(
            "- order_scope partition, topic and subscription make the same lanes, one for each key."
        )
    rows = [["order_scope", "lanes", "hottest", "at most"]]
    for name, scope in found.items():
        bound = "" if scope.bound is None else _times(scope.bound)
        rows.append([name, f"{scope.lanes:,}", _percent(scope.hottest_share), bound])
    return [*_columns(rows), ""]


def duration(seconds: float | None) -> str:
    """Return seconds as text in one or two suitable units."""
    if seconds is None:
        return "never"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, below, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size:,} {unit} {whole % size // below} {smaller}"
    return f"{whole // 60} min {whole % 60} s"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _times(value: float) -> str:
    return f"{value:,.1f}x"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else f"{share * 100:.2g}%"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _wrapped(text: str) -> list[str]:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
