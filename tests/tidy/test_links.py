"""Every link between the documents leads somewhere."""

from __future__ import annotations

import pytest

from tests.tidy.links import anchors, check_links
from tests.tidy.sources import ROOT, report, texts


def _exists(path: str) -> bool:
    return (ROOT / path).exists()


def _read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_every_relative_link_resolves() -> None:
    documents = [(path, text) for path, text in texts() if path.endswith(".md")]
    found = [f for path, text in documents for f in check_links(path, text, _exists, _read)]
    assert documents
    assert not found, report(found)


PLANTED = {"docs/there.md": "# A Heading: `code` (really)\n\n## Twice\n\n## Twice\n"}


@pytest.mark.parametrize(
    "line",
    [
        "see [this](gone.md)",
        "see [this](../gone/)",
        "![picture](gone.png)",
        "[ref]: gone.md",
        "see [this](there.md#no-such-heading)",
        "see [out](../../etc/passwd)",
        "see [here](#nowhere)",
    ],
)
def test_a_planted_dead_link_is_found(line: str) -> None:
    page = f"# Page\n\n{line}\n"
    pages = {**PLANTED, "docs/page.md": page}
    (finding,) = check_links("docs/page.md", page, pages.__contains__, pages.__getitem__)
    assert finding.where == "docs/page.md:3"


@pytest.mark.parametrize(
    "line",
    [
        "see [this](there.md)",
        "see [this](./there.md#a-heading-code-really 'title')",
        "see [this](there.md#twice-1)",
        "see [here](#page)",
        "see [web](https://example.org/gone.md)",
        "`[code](gone.md)`",
        "```\n[code](gone.md)\n```",
    ],
)
def test_a_link_that_leads_somewhere_is_not_reported(line: str) -> None:
    page = f"# Page\n\n{line}\n"
    pages = {**PLANTED, "docs/page.md": page}
    assert check_links("docs/page.md", page, pages.__contains__, pages.__getitem__) == []


def test_anchors_are_made_as_hosting_sites_make_them() -> None:
    assert anchors(PLANTED["docs/there.md"]) == {"a-heading-code-really", "twice", "twice-1"}
