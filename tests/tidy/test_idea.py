"""The picture of the idea shows what becomes of every record in it, and is true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from tests.tidy.sources import ROOT

SVG = "{http://www.w3.org/2000/svg}"
PICTURE = ElementTree.parse(ROOT / "docs" / "idea.svg").getroot()
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
