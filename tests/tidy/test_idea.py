"""The picture of the idea shows what becomes of every record in it, and is true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from tests.tidy.sources import ROOT

SVG = "{http://www.w3.org/2000/svg}"
PICTURE = ElementTree.parse(ROOT / "docs" / "assets" / "idea.svg").getroot()
SETTLED = {"done", "dead"}


def part(name: str) -> ElementTree.Element:
    found = PICTURE.find(f".//{SVG}g[@id='{name}']")
    assert found is not None, name
    return found


def records(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    return (each for each in element.iter(f"{SVG}g") if "data-record" in each.attrib)


def fates(name: str) -> dict[str, str]:
    found = [(each.attrib["data-record"], each.attrib["data-fate"]) for each in records(part(name))]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_every_record_that_was_fetched_has_one_fate() -> None:
    fetched = [each.attrib["data-record"] for each in records(part("fetched"))]
    assert len(set(fetched)) == len(fetched) == 12
    assert set(fates("workers")) == set(fetched)
    assert fates("committed") == fates("workers")
    assert set(fates("workers").values()) == {"done", "running", "dead", "retry", "waiting"}


def test_a_key_has_one_worker_and_its_records_wait_for_the_one_ahead() -> None:
    seen: dict[str, str] = {}
    for worker in part("workers"):
        open_keys = set()
        for each in records(worker):
            record, fate = each.attrib["data-record"], each.attrib["data-fate"]
            assert (
                seen.setdefault(record[0], worker.attrib["data-worker"])
                == (worker.attrib["data-worker"])
            )
            assert (fate == "waiting") == (record[0] in open_keys), record
            if fate not in SETTLED:
                open_keys.add(record[0])
    assert len(seen) == 6


def test_the_position_stands_before_the_first_record_that_is_not_settled() -> None:
    for partition in part("committed"):
        shown = list(records(partition))
        settled = [each.attrib["data-fate"] in SETTLED for each in shown]
        position = settled.index(False)
        assert int(partition.attrib["data-position"]) == position
        beyond = ["data-beyond" in each.attrib for each in shown]
        assert beyond == [is_settled and i > position for i, is_settled in enumerate(settled)]


def test_the_dead_letter_is_the_record_that_was_given_up() -> None:
    dead = [record for record, fate in fates("workers").items() if fate == "dead"]
    shown = [each.text for each in part("dead-letters").iter(f"{SVG}tspan")]
    assert shown == dead == ["B1"]


def test_it_can_be_read_on_a_telephone() -> None:
    """Where it is drawn 358 pixels wide, no letter is smaller than 10."""
    width = float(PICTURE.attrib["viewBox"].split()[2])
    style = PICTURE.findtext(f"{SVG}style") or ""
    sizes = [float(size) for size in re.findall(r"(\d+)px", style)]
    assert min(sizes) * 358 / width > 10


# --- its colours ---


def luminance(colour: str) -> float:
    """How bright a colour is, from 0 to 1 (WCAG 2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


Box = tuple[float, float, float, float]


def box_of(rect: ElementTree.Element) -> Box:
    x, y = float(rect.attrib.get("x", 0)), float(rect.attrib.get("y", 0))
    return x, y, x + float(rect.attrib["width"]), y + float(rect.attrib["height"])


def start_of(element: ElementTree.Element) -> tuple[float, float]:
    """Where a text or a path begins."""
    if element.tag == f"{SVG}path":
        x, y = re.findall(r"[-\d.]+", element.attrib["d"])[:2]
        return float(x), float(y)
    return float(element.attrib["x"]), float(element.attrib["y"])


def colours(picture: ElementTree.Element) -> Iterator[tuple[str, str, str, bool]]:
    """What is drawn, its colour and the one behind it, and whether it is text, in order."""
    styles = dict(
        re.findall(r"\.(\w+) \{[^}]*fill: (#\w{6})", picture.findtext(f"{SVG}style") or "")
    )
    behind: list[tuple[Box, str]] = []

    def under(x: float, y: float) -> str:
        return [
            fill
            for (left, top, right, bottom), fill in behind
            if left <= x <= right and top <= y <= bottom
        ][-1]

    for each in picture.iter():
        kind, own = each.tag.removeprefix(SVG), each.attrib
        if kind == "rect":
            if "stroke" in own:
                x, y, *_ = box_of(each)
                yield "the edge of a box", own["stroke"], under(x - 1, y - 1), False
                yield "the edge of a box", own["stroke"], own["fill"], False
            behind.append((box_of(each), own["fill"]))
        elif kind == "path":
            drawn = own.get("stroke") or own["fill"]
            yield f"a path at {start_of(each)}", drawn, under(*start_of(each)), False
        elif kind in {"text", "tspan"}:
            if kind == "text":
                at = start_of(each)
            fill = own.get("fill") or styles.get(own.get("class", "")) or picture.attrib["fill"]
            yield "".join(each.itertext()), fill, under(*at), True


def faint(picture: ElementTree.Element) -> list[str]:
    """What cannot be told from what is behind it: text below 4.5 to 1, all else below 3 to 1."""
    return [
        f"{what}: {colour} on {behind} is {contrast(colour, behind):.2f}"
        for what, colour, behind, is_text in colours(picture)
        if contrast(colour, behind) < (4.5 if is_text else 3.0)
    ]


def test_everything_in_it_stands_out_from_what_is_behind_it() -> None:
    assert len(list(colours(PICTURE))) > 150
    assert faint(PICTURE) == []


def test_a_dark_page_changes_nothing_of_it() -> None:
    """It brings its own background, all over, and no style for one scheme alone.

    Where the code is hosted, and on the site, the page's scheme need not be the browser's, and a
    picture is told only the latter.
    """
    ground = next(PICTURE.iter(f"{SVG}rect"))
    assert list(box_of(ground)) == [float(each) for each in PICTURE.attrib["viewBox"].split()]
    assert re.fullmatch(r"#\w{6}", ground.attrib["fill"])
    assert "opacity" not in ElementTree.tostring(PICTURE, "unicode")
    assert "prefers-color-scheme" not in (PICTURE.findtext(f"{SVG}style") or "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("#92400e", "#b45309"),  # a key on the box of a dead letter: 4.1
        ("#15803d", "#16a34a"),  # what is settled beyond the position: 2.7
        ("#334155", "#94a3b8"),  # the text without a colour of its own
    ],
)
def test_a_colour_that_is_too_faint_is_found(old: str, new: str) -> None:
    text = ElementTree.tostring(PICTURE, "unicode")
    assert old in text
    assert faint(ElementTree.fromstring(text.replace(old, new))) != []
