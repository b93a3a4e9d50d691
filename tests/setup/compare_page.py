"""Write what ``keyshared bench compare --json`` found into the documents: tables and plots.

``python -m tests.setup.compare_page RESULT.json`` writes ``docs/compare-WORK.svg`` for each kind of
work and replaces the tables of ``docs/performance.md`` between the marks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from kafka_keyshared.spark.plots import bars  # noqa: E402 - found through the line above

PAGE = ROOT / "docs" / "performance.md"
BEGIN = "<!-- compare: tests/setup/compare_page.py writes what follows -->"
END = "<!-- end of compare -->"
KINDS = ("keeps the order of each key", "does not")
DOES = {
    "empty": "an empty handler",
    "sleep-1ms": "a handler that sleeps 1 ms",
    "sleep-2ms": "a handler that sleeps 2 ms",
    "sleep-5ms": "a handler that sleeps 5 ms",
    "cpu-200us": "a handler that computes for 200 µs",
}
PLOTTED = "uniform"

Found = dict[str, Any]


def plots(found: Found) -> Iterator[tuple[str, str]]:
    """Give the name and the text of a plot for each kind of work."""
    for work, does in DOES.items():
        rows = [row for row in found["rows"] if row["scenario"] == f"{PLOTTED}/{work}"]
        if rows:
            values = {row["system"]: [float(row["per_s"])] for row in rows}
            kinds = {row["system"]: int(not row["key_order"]) for row in rows}
            title = f"Records per second, {does}, {found['cores']} cores"
            yield f"compare-{work}.svg", bars(title, values, KINDS, "records/s", kinds)


def tables(found: Found) -> str:
    """Return the tables, one for each kind of traffic, then latency, order and what each is."""
    parts = []
    for traffic in dict.fromkeys(row["scenario"].split("/")[0] for row in found["rows"]):
        parts.append(_speed(found, traffic))
    if found["latency"]:
        parts.append(_latency(found))
    if found["checked"]:
        parts.append(_order(found))
    parts.append(_systems(found))
    return "\n\n".join(parts)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _yes(value: object) -> str:
    return "yes" if value else "**no**"


def _speed(found: Found, traffic: str) -> str:
    rows = [row for row in found["rows"] if row["scenario"].startswith(f"{traffic}/")]
    works = [work for work in DOES if any(row["scenario"].endswith(f"/{work}") for row in rows)]
    told = {(row["system"], row["scenario"].split("/")[1]): row for row in rows}
    lines = []
    for name in dict.fromkeys(row["system"] for row in rows):
        cells, most = [], 0.0
        for work in works:
            row = told.get((name, work))
            ratio = "" if row is None or row["ratio"] is None else f" ({row['ratio']:.2f})"
            cells.append("–" if row is None else f"{row['per_s']:,}{ratio}")
            most = max(most, (row or {}).get("peak_mib") or 0)
        any_row = next(row for row in rows if row["system"] == name)
        promises = [_yes(any_row[each]) for each in ("key_order", "at_least_once")]
        bounded = _yes(any_row["bounded_memory"])
        lines.append([name, *cells, *promises, bounded, f"{most:,.0f}" if most else "–"])
    heads = [f"{traffic} keys", *works, "order per key", "at least once", "bounded memory", "MiB"]
    return _table(heads, lines)


def _latency(found: Found) -> str:
    rows = [
        [row["system"], *(_ms(row[name]) for name in ("p50_ms", "p99_ms", "added_p50_ms"))]
        for row in found["latency"]
    ]
    rate = found["latency"][0]["rate"]
    return _table([f"{rate:,} records/s", "p50, ms", "p99, ms", "added to bare, p50, ms"], rows)


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _order(found: Found) -> str:
    names = ("missing", "repeated", "out_of_order", "overlapping")
    rows = [
        [row["system"], row["traffic"], *(f"{row[name]:,}" for name in ("records", *names))]
        for row in found["checked"]
    ]
    heads = ["system", "keys", "records", "missing", "repeated", "out of order", "overlapping"]
    return _table(heads, rows)


def _systems(found: Found) -> str:
    rows = [
        [each["system"], each["version"] or "–", each["settings"], each["source"]]
        for each in found["systems"]
    ]
    rows += [[each["system"], "–", f"left out: {each['why']}", "–"] for each in found["left_out"]]
    return _table(["system", "version", "settings", "who says so"], rows)


def write(found: Found, page: Path, folder: Path) -> None:
    """Write the plots into the folder, and the tables into the page."""
    for name, text in plots(found):
        (folder / name).write_text(text, encoding="utf-8")
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{tables(found)}\n\n{END}{after}", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Write what the one file named holds."""
    if len(arguments) != 1:
        print("usage: python -m tests.setup.compare_page RESULT.json", file=sys.stderr)
        return 2
    found = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    write(found, PAGE, PAGE.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
