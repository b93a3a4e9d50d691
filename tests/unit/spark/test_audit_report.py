"""An audit's report is a page that says what was proved, and plots that any browser shows."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.spark.audit import RULES, Audit, AuditFinding, shown
from kafka_keyshared.spark.audit_report import TOTALS, as_json, as_markdown, plots, write_report

SVG = "{http://www.w3.org/2000/svg}"


def an_audit(**broken: AuditFinding) -> Audit:
    findings = {rule: broken.get(rule, AuditFinding()) for rule in RULES}
    workers = [
        {
            "incarnation": f"pod-{process}-1f",
            "worker": "worker-<0>",
            "calls": 3,
            "failed": 1,
            "seconds": 1.5 - process,
            "from": 0,
            "until": 10**9,
        }
        for process in range(2)
    ]
    steps = [{"from": 1_000, "seconds": 0.5, "calls": n, "failed": n // 2} for n in (2, 4)]
    return Audit(findings, dict.fromkeys(TOTALS, 7), workers, steps, 0.05)


def test_a_clean_audit_says_so_everywhere() -> None:
    audit = an_audit()
    told = as_json(audit, 1.25)
    assert told["ok"] is True
    assert [told[rule] for rule in RULES] == [0, 0, 0, 0]
    page = as_markdown(audit, "a log")
    assert "**broken**" not in page
    assert page.count("| none |") == 4


def test_what_was_broken_is_named_with_its_first_cases() -> None:
    case = {"topic": "t", "partition": 1, "offset": 2, "key": "k", "why": "it never started"}
    audit = an_audit(lost=AuditFinding(12, [case]))
    told = as_json(audit, 1.0)
    assert (told["ok"], told["lost"], told["examples"]) == (False, 12, {"lost": [case]})
    page = as_markdown(audit, "a log")
    assert "| records that were produced and never settled | 12 | **broken** |" in page
    assert "- `t-1@2`, key `k`: it never started" in page


def test_plots_are_whole_svg_and_bars_are_as_long_as_their_values(tmp_path: Path) -> None:
    drawn = plots(an_audit())
    assert set(drawn) == {"timeline.svg", "workers.svg"}
    trees = {name: Xml.fromstring(text) for name, text in drawn.items()}
    labels = {each.text for each in trees["workers.svg"].iter(f"{SVG}text")}
    assert "pod-0-1f/worker-<0>" in labels, "what a page would take for markup is text"
    filled = [each for each in trees["workers.svg"].iter(f"{SVG}rect") if "y" in each.attrib]
    _, busy, idle = (float(each.attrib["width"]) for each in filled)
    assert busy == pytest.approx(3 * idle, rel=0.01)
    write_report(tmp_path / "new", drawn)
    assert (tmp_path / "new" / "timeline.svg").read_text() == drawn["timeline.svg"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="give a folder"):
        write_report(tmp_path / "file", drawn)


def test_an_audit_of_nothing_that_ran_has_plots_all_the_same() -> None:
    drawn = plots(Audit({}, {}, [], [], 0.0))
    assert all(Xml.fromstring(text).tag == f"{SVG}svg" for text in drawn.values())


@pytest.mark.parametrize(
    ("key", "text"),
    [(None, None), (b"abc", "abc"), (b"\xff\x00", "hex:ff00"), (b"a\nb", "hex:610a62")],
)
def test_keys_are_shown_as_text_where_they_are_text(key: bytes | None, text: str | None) -> None:
    assert shown(key) == text
