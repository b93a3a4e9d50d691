"""Names that the documents use, compared with what the package has: metrics, variables, words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_keyshared.config.environment import variables
from kafka_keyshared.observability.web.metric_catalog import FAMILIES
from kafka_keyshared.observability.web.prometheus_collector import BUILD_INFO
from tests.tidy.sources import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "helm").rglob("*.md")])

FIXTURES = {"keyshared_brokers", "keyshared_cluster", "keyshared_topic"}
"""Fixtures of the pytest plug-in: names like those of metrics."""

NO_SETTINGS = {
    "KEYSHARED_CONFIG",
    "KEYSHARED_LOG_FORMAT",
    "KEYSHARED_LOG_LEVEL",
    "KEYSHARED_PORT",
    "KEYSHARED_SEEDS",
    "KEYSHARED_SERVICE_HOST",
    "KEYSHARED_SPARK_JARS",
    "KEYSHARED_URL",
}
"""Variables of the command line, of the tests, and what Kubernetes makes of a service's name."""

FORMER_NAMES = "\n## Former names\n"
"""The last section of the page about metrics: names that no instance exposes."""

PERFORMANCE_LINES = 120

PLANS = re.compile(
    r"\b(?:not (?:yet )?(?:built|implemented)|not yet supported|not (?:supported|possible) yet"
    r"|will be (?:built|added|implemented)|(?:is|are) planned for|(?:is|are) planned(?=[.,;]|$)"
    r"|in a (?:later|future) (?:release|version))\b",
    re.I,
)
"""Words about what is planned: pages for users and operators have what is there."""

_METRIC = re.compile(r"\bkeyshared_[a-z_]*[a-z]\b")
_SAMPLE = re.compile(r"_(total|bucket|count|sum|created)$")
_VARIABLE = re.compile(r"\bKEYSHARED_[A-Z0-9_]*[A-Z0-9]\b")
_TERM = re.compile(r"^- \*\*(.+?)\.\*\*", re.M)
_DECISION = re.compile(r"\[(\d{4})\]\((\d{4}-[\w-]+\.md)\)")
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_LINKS = r"\[\d{4}\]\(\S+\)(?:(?:,|\s+and)\s+\[\d{4}\]\(\S+\))*"
_STATUS = re.compile(
    rf"(?:accepted|(?:partly\s+)?superseded\s+by\s+(?P<later>{_LINKS}))(?=[.;]\s|$)"
)
_SUPERSEDES = re.compile(r"\bsupersedes\b.*?(?=\.\s|:|$)", re.S)


def unknown_metrics(text: str) -> set[str]:
    """Metrics that a text names and that no instance exposes."""
    exposed = {family.name for family in FAMILIES} | {BUILD_INFO} | FIXTURES
    return {
        name
        for name in _METRIC.findall(text)
        if name not in exposed
        and f"{name}_total" not in exposed
        and _SAMPLE.sub("", name) not in exposed
    }


def unknown_variables(text: str) -> set[str]:
    """Variables that a text names and that are neither a setting nor known otherwise."""
    known = set(variables()) | NO_SETTINGS
    return {
        name
        for name in _VARIABLE.findall(text)
        if name not in known and not name.startswith(("KEYSHARED_KAFKA_", "KEYSHARED_TEST"))
    }


def doubled_terms(text: str) -> list[str]:
    """Words that a glossary explains more than once; an entry may explain several."""
    counted = Counter(word for term in _TERM.findall(text) for word in term.lower().split(", "))
    return sorted(word for word, count in counted.items() if count > 1)


def status_of(text: str) -> str:
    """Return the status of a decision: the text behind the word."""
    return text.partition("\nStatus: ")[2].partition("\n\n")[0]


def check_status(pages: Mapping[str, str]) -> list[str]:
    """Decisions without a valid status, and pairs of which only one names the other.

    ``pages`` has the text of each decision by its file name.
    """
    found = []
    for name, text in pages.items():
        status = status_of(text)
        form = _STATUS.match(status)
        if form is None:
            found.append(f"{name}: its status is not accepted, nor (partly) superseded by others")
            continue
        found += [
            f"{name}: names {number} ({page}), which is no decision"
            for number, page in _DECISION.findall(status)
            if page not in pages or not page.startswith(number)
        ]
        found += [
            f"{name} is superseded by {page}, which does not say so"
            for _, page in _DECISION.findall(form["later"] or "")
            if name not in superseded(pages.get(page, ""))
        ]
        found += [
            f"{name} supersedes {page}, which does not say so"
            for page in superseded(text)
            if not (form := _STATUS.match(status_of(pages.get(page, "")))) or name not in form[0]
        ]
    return found


def superseded(text: str) -> list[str]:
    """Return the files of the decisions that a decision supersedes, as a whole or partly."""
    parts = _SUPERSEDES.findall(status_of(text))
    return [page for part in parts for _, page in _DECISION.findall(part)]


def unmeasured(page: str, notebook: str) -> set[str]:
    """Return the numbers in the tables of a page that the notebook does not have."""
    cells = " ".join(line for line in page.splitlines() if line.startswith("|"))
    return set(_NUMBER.findall(cells)) - set(_NUMBER.findall(notebook))


def plans(text: str) -> list[str]:
    """Return the words of a text that are about something planned."""
    return PLANS.findall(" ".join(text.split()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_metrics_and_variables_of_a_page_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    assert unknown_metrics(text.partition(FORMER_NAMES)[0]) == set()
    assert unknown_variables(text) == set()


def test_a_metric_or_a_variable_that_does_not_exist_is_found() -> None:
    assert unknown_metrics("`keyshared_attempts_failed_total`") == {
        "keyshared_attempts_failed_total"
    }
    assert unknown_metrics("`keyshared_records_processed_total`") == set()
    assert unknown_variables("`KEYSHARED_WORKRES`, `KEYSHARED_WORKERS`") == {"KEYSHARED_WORKRES"}


def test_each_word_of_the_glossary_is_explained_once() -> None:
    assert doubled_terms((ROOT / "docs/reference/glossary.md").read_text("utf-8")) == []
    assert doubled_terms("- **Held.** One.\n- **Release, held.** Another.") == ["held"]


@pytest.mark.parametrize("section", ["guide", "operate", "reference"])
def test_no_page_for_users_or_operators_says_what_is_planned(section: str) -> None:
    pages = sorted((ROOT / "docs" / section).glob("*.md"))
    assert pages
    found = {page.name: plans(page.read_text("utf-8")) for page in pages}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "text",
    ["It is *not built\nyet*.", "Not yet implemented.", "This will be added.", "It is planned."],
)
def test_a_planted_plan_is_found(text: str) -> None:
    assert len(plans(text)) == 1
    assert plans("The batch is planned and run again; the image is built.") == []


def test_the_performance_page_is_short_and_has_only_numbers_of_the_notebook() -> None:
    page = (ROOT / "docs/operate/performance.md").read_text("utf-8")
    notebook = (ROOT / "docs/internals/notebook.md").read_text("utf-8")
    assert len(page.splitlines()) <= PERFORMANCE_LINES
    assert len(re.findall(r"^\|(?:-+\|)+$|^\| --- ", page, re.M)) == 4, "tables"
    assert unmeasured(page, notebook) == set()
    assert unmeasured("| rate | 1,234.5 | 0.97 |\nno table: 17", "1,234.5/s") == {"0.97"}


def test_each_decision_has_a_status_and_says_what_superseded_it() -> None:
    folder = ROOT / "docs" / "internals" / "decisions"
    pages = {page.name: page.read_text("utf-8") for page in sorted(folder.glob("0*.md"))}
    assert len(pages) > 50
    assert check_status(pages) == []


DECISIONS = {
    "0001-a.md": "# A\n\nStatus: superseded by [0003](0003-c.md). All of it.\n\n## Decision\n",
    "0002-b.md": "# B\n\nStatus: partly superseded by\n[0003](0003-c.md); it is older\n\n",
    "0003-c.md": "# C\n\nStatus: accepted. It supersedes [0001](0001-a.md) and a part of\n"
    "[0002](0002-b.md). [0001](0001-a.md) had it otherwise.\n\n## Decision\n",
}


@pytest.mark.parametrize(
    ("name", "status", "complaint"),
    [
        ("0001-a.md", "", "0001-a.md: its status is not accepted"),
        ("0001-a.md", "in force", "0001-a.md: its status is not accepted"),
        ("0001-a.md", "superseded", "0001-a.md: its status is not accepted"),
        ("0001-a.md", "superseded by [0009](0009-j.md)", "names 0009 (0009-j.md), which is no"),
        ("0001-a.md", "superseded by [0001](0003-c.md)", "names 0001 (0003-c.md), which is no"),
        ("0001-a.md", "superseded by [0002](0002-b.md)", "is superseded by 0002-b.md, which does"),
        ("0002-b.md", "accepted", "0003-c.md supersedes 0002-b.md, which does not say so"),
        ("0003-c.md", "accepted", "0001-a.md is superseded by 0003-c.md, which does not say so"),
    ],
)
def test_a_planted_fault_of_a_status_is_found(name: str, status: str, complaint: str) -> None:
    assert check_status(DECISIONS) == []
    planted = {**DECISIONS, name: f"# A\n\nStatus: {status}\n\n## Decision\n"}
    assert any(complaint in each for each in check_status(planted))
