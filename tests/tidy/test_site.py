"""The documents build as a site, without a warning and without anything from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.site import build
from tests.tidy.sources import ROOT, Finding, report

# What a browser fetches by itself when it shows a page; a link that a person clicks is not meant.
_TAG = re.compile(r"<(?:script|img|link|iframe|source|video|audio|embed|object)\b[^>]*>", re.I)
_TARGET = re.compile(r"\b(?:src|href|data|srcset)\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)", re.I)
_HARMLESS = re.compile(r"\brel=[\"']?(?:canonical|alternate)\b", re.I)
_STYLE = re.compile(r"(?:url\(\s*[\"']?|@import\s+[\"'])((?:https?:)?//[^\"')\s]+)", re.I)


def check_remote(path: str, text: str) -> list[Finding]:
    """What a browser would fetch from another server to show this file."""
    found = [
        target
        for tag in _TAG.findall(text)
        if not _HARMLESS.search(tag)
        for target in _TARGET.findall(tag)
    ]
    return [Finding(path, f"fetches {each}") for each in (*found, *_STYLE.findall(text))]


PICTURE_BYTES = 150_000


def test_no_picture_is_large() -> None:
    pictures = [*(ROOT / "docs").rglob("*.png"), *(ROOT / "docs").rglob("*.svg")]
    assert pictures
    large = {each.name: size for each in pictures if (size := each.stat().st_size) > PICTURE_BYTES}
    assert large == {}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("site")
    built = build(ROOT, where)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return where


def test_every_document_is_a_page_of_the_site(site: Path) -> None:
    documents = [each.relative_to(ROOT / "docs") for each in (ROOT / "docs").rglob("*.md")]
    assert documents
    missing = [each for each in documents if not (site / each.with_suffix(".html")).exists()]
    assert not missing


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    looked_at = [each for each in site.rglob("*") if each.suffix in {".html", ".css", ".svg"}]
    found = [
        finding
        for each in looked_at
        for finding in check_remote(str(each.relative_to(site)), each.read_text(encoding="utf-8"))
    ]
    assert {each.suffix for each in looked_at} == {".html", ".css", ".svg"}
    assert not found, report(found)


def nav(site: Path) -> list[tuple[str, list[str]]]:
    """The parts of the navigation of the front page, each with the pages in it."""
    text = (site / "index.html").read_text(encoding="utf-8")
    text = text[text.index("md-nav--primary") :]
    items = re.split(r'<li class="md-nav__item md-nav__item--nested">', text)[1:]
    found = []
    for item in items:
        title = re.search(r"<span class=\"md-ellipsis\">\s*(.*?)\s*<", item, re.DOTALL)
        assert title
        found.append(
            (title[1], re.findall(r'href="((?!#|https?:)[^"#]+\.html)" class="md-nav', item))
        )
    return found


def test_the_four_sections_are_folded_and_the_guide_stands_in_the_order_of_need(site: Path) -> None:
    parts = dict(nav(site))
    assert [*parts] == ["Guide", "Operate", "Reference", "Internals", "Decisions"]
    assert len(parts["Decisions"]) > 30
    text = (site / "index.html").read_text(encoding="utf-8")
    open_parts = re.findall(r"<input[^>]*md-nav__toggle[^>]*\bchecked\b[^>]*>", text)
    assert open_parts == [], "on the front page every part is folded"
    guide = [Path(page).stem for page in parts["Guide"]]
    first = ["decide", "tutorial", "wrapping", "keys", "pools", "dead-letters", "testing"]
    assert [name for name in guide if name in first] == first
    assert guide[-1] == "spark"


def test_there_is_a_search_and_a_choice_of_light_and_dark(site: Path) -> None:
    text = (site / "guide" / "tutorial.html").read_text(encoding="utf-8")
    assert 'data-md-component="search-query"' in text
    assert set(re.findall(r'data-md-color-media="\(prefers-color-scheme: (\w+)\)"', text)) == {
        *("light", "dark")
    }
    assert (site / "search" / "search_index.js").stat().st_size > 100_000


def test_no_reader_sees_what_is_noted_for_the_tests(site: Path) -> None:
    for each in site.rglob("*.html"):
        shown = re.sub(r"<!--.*?-->", "", each.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert "&lt;!-- run:" not in shown, each
        assert "-- run:" not in shown, each


PAGES = {
    "index.md": "# Front\n\n[page](page.md#a-place) ![picture](picture.svg)\n",
    "page.md": "# Page\n\n## A place\n",
    "picture.svg": '<svg xmlns="http://www.w3.org/2000/svg"/>',
}


def small_site(project: Path, pages: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Build a site of a few pages with the settings of ours; ``nav`` names index and page."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[0]
    (project / "mkdocs.yml").write_text(f"{settings}\nnav: [index.md, page.md]\n")
    shutil.copytree(ROOT / "docs" / "assets", project / "docs" / "assets")
    for name, text in pages.items():
        (project / "docs" / name).write_text(text)
    return build(project, project / "site")


def test_a_small_site_without_a_fault_builds(tmp_path: Path) -> None:
    built = small_site(tmp_path, PAGES)
    assert built.returncode == 0, built.stderr


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ({"page.md": "# Page\n\n## A place\n\n[gone](gone.md)\n"}, "'gone.md'"),
        ({"page.md": "# Page\n"}, "'#a-place'"),
        ({"page.md": "# Page\n\n## A place\n\n![gone](gone.svg)\n"}, "'gone.svg'"),
        ({"page.md": "# Page\n\n## A place\n\n[out](../README.md)\n"}, "'../README.md'"),
        ({"new.md": "# A page in no list\n"}, "- new.md"),
        ({"page.md": None, "index.md": "# Front\n"}, "'page.md'"),
    ],
)
def test_a_planted_fault_fails_the_build(
    planted: dict[str, str | None], said: str, tmp_path: Path
) -> None:
    pages = {name: text for name, text in {**PAGES, **planted}.items() if text is not None}
    built = small_site(tmp_path, pages)
    assert built.returncode == 1
    assert said in built.stderr
    assert "Aborted with 1 warnings in strict mode" in built.stdout + built.stderr


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example.org/a.js"></script>',
        "<img src=//example.org/pixel.gif>",
        '<link rel="stylesheet" href="https://fonts.example.org/css?family=Lato">',
        "@font-face { src: url('https://example.org/a.woff2'); }",
        '@import "https://example.org/a.css";',
    ],
)
def test_a_planted_fetch_is_found(text: str) -> None:
    (finding,) = check_remote("page.html", f"<p>before</p>\n{text}")
    assert finding.what.startswith("fetches ")


@pytest.mark.parametrize(
    "text",
    [
        '<a href="https://example.org/">elsewhere</a>',
        '<link rel="canonical" href="https://example.org/page.html">',
        '<img src="idea.svg">',
        "@font-face { src: url(fonts/a.woff2); }",
        '<svg xmlns="http://www.w3.org/2000/svg"></svg>',
    ],
)
def test_what_is_clicked_or_local_is_not_reported(text: str) -> None:
    assert check_remote("page.html", text) == []
