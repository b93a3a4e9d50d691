"""The values that the documents show are taken by the chart, and the files they name are there."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.helm.chart import CHART, ROOT, Values, case, merged, pod, render

PAGES = ("docs/operate/deploy.md", "helm/kafka-keyshared/README.md", "docs/operate/alerts.md")
BLOCKS = [
    (page, number, yaml.safe_load(text))
    for page in PAGES
    for number, text in enumerate(
        re.findall(r"^```yaml\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.M | re.S)
    )
    # Not the files of Prometheus itself.
    if not {"groups", "rule_files"} & yaml.safe_load(text).keys()
]


@pytest.mark.parametrize(
    "values", [block for _, _, block in BLOCKS], ids=[f"{page}-{n}" for page, n, _ in BLOCKS]
)
def test_values_in_a_page_render(values: Values) -> None:
    # Most blocks show only what they are about.
    assert pod(render(merged(case("minimal"), values)))["containers"]


def test_blocks_are_found() -> None:
    pages = [page for page, _, _ in BLOCKS]
    assert pages.count(PAGES[0]) >= 8
    assert pages.count(PAGES[1]) >= 1
    assert pages.count(PAGES[2]) == 2


def test_the_readme_shows_the_least_that_must_be_given() -> None:
    (block,) = [block for page, _, block in BLOCKS if page == PAGES[1]]
    assert block == case("minimal")


def test_the_readme_names_every_object_and_nothing_else() -> None:
    page = (CHART / "README.md").read_text("utf-8")
    told = set(
        re.findall(r"^\| (\w+)[^|]*\| [^|]+\|$", page.partition("## What is refused")[0], re.M)
    )
    kinds: set[str] = set()
    for path in (CHART / "templates").rglob("*.yaml"):
        kinds |= set(re.findall(r"^kind: (\w+)$", path.read_text("utf-8"), re.M))
    assert told - {"object"} == kinds


def test_the_image_that_a_page_builds_upon_has_what_it_uses() -> None:
    page = (ROOT / PAGES[0]).read_text("utf-8")
    recipe = (CHART / "Dockerfile").read_text("utf-8")
    for used in ("/opt/keyshared", "USER 10001:10001", "/app"):
        assert used in page
        assert used in recipe
    assert "-f helm/kafka-keyshared/Dockerfile --build-arg APP=" in page
    assert "ARG APP=" in recipe
