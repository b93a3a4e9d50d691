"""The page about the command line has every verb with every option of it."""

from __future__ import annotations

import pytest

from tests.setup import cli_page


def test_the_page_is_what_the_command_line_says() -> None:
    text = cli_page.PAGE.read_text(encoding="utf-8")
    assert cli_page.updated(text, cli_page.verbs()) == text, "run: make docs"


def test_every_option_is_in_the_table_of_its_verb() -> None:
    verbs = cli_page.verbs()
    shown = cli_page.table(verbs["run"])
    assert {"run", "doctor", "demo", "demo load", "routing where"} <= set(verbs)
    for option in (
        "`MODULE:ATTR` | required",
        "`-b`, `--bootstrap-server` `TEXT`",
        "`-X` `KEY=VALUE`",
    ):
        assert f"| {option} |" in shown
    assert "| `-o`, `--output` | `table` | Format of the result. One of `table`, `json`, " in (
        cli_page.table(verbs["doctor"])
    )
    assert "--sabotage" not in cli_page.table(verbs["demo"])


def test_a_table_that_is_out_of_date_is_written_anew_and_the_words_around_it_stay() -> None:
    verbs = {"run": cli_page.verbs()["run"]}
    place = "<!-- options: run -->\n\noutdated\n\n<!-- end of options -->"
    text = cli_page.updated(f"# Page\n\n{place}\n\nWords.\n", verbs)
    assert text.startswith("# Page\n\n<!-- options: run -->\n\n| option |")
    assert text.endswith("<!-- end of options -->\n\nWords.\n")
    assert "outdated" not in text
    assert cli_page.updated(text, verbs) == text


def test_a_verb_without_a_place_gets_one() -> None:
    verbs = {"routing show": cli_page.verbs()["routing show"]}
    text = cli_page.updated("# Page\n", verbs)
    assert "## routing show\n\nShow each worker's share of the 65,536 slots. With" in text
    assert "| `--vnodes` `INT` | `200` |" in text


def test_the_place_of_a_verb_that_is_gone_is_named() -> None:
    with pytest.raises(SystemExit, match="'walk'"):
        cli_page.updated("<!-- options: walk -->\n<!-- end of options -->\n", {})
