"""Names that the documents use, compared with what the package has: metrics, variables, words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from kafka_keyshared.config.environment import variables
from kafka_keyshared.observability.web.families import FAMILIES
from kafka_keyshared.observability.web.metrics import BUILD_INFO
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

_METRIC = re.compile(r"\bkeyshared_[a-z_]*[a-z]\b")
_SAMPLE = re.compile(r"_(total|bucket|count|sum|created)$")
_VARIABLE = re.compile(r"\bKEYSHARED_[A-Z0-9_]*[A-Z0-9]\b")
_TERM = re.compile(r"^- \*\*(.+?)\.\*\*", re.M)


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


def unanswered_replacements(pages: Iterable[tuple[str, str]]) -> list[str]:
    """Decisions that say that they replace another one which does not name them."""
    texts = dict(pages)
    found = []
    for name, text in texts.items():
        status = text.partition("Status:")[2].partition("\n##")[0]
        for other in re.findall(
            r"(?:replaces|[Cc]hanges)[^\[]*\[[^\]]*\]\((\d{4}-[\w-]+\.md)\)", status
        ):
            if f"({name})" not in texts.get(other, ""):
                found.append(f"{name} replaces {other}, which does not say so")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_metrics_and_variables_of_a_page_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    assert unknown_metrics(text) == set()
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


def test_a_decision_that_is_replaced_says_so() -> None:
    folder = ROOT / "docs" / "internals" / "decisions"
    pages = [(page.name, page.read_text("utf-8")) for page in sorted(folder.glob("0*.md"))]
    assert unanswered_replacements(pages) == []
    planted = [("0002-b.md", "Status: accepted; it replaces [1](0001-a.md)\n"), ("0001-a.md", "")]
    assert unanswered_replacements(planted) == [
        "0002-b.md replaces 0001-a.md, which does not say so"
    ]
