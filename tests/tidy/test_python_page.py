"""The page of the Python API has every export, as the package has it now."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.setup import python_page
from tests.setup.public_names import EXPORTING


def test_the_page_is_that_of_the_package() -> None:
    assert python_page.PAGE.read_text("utf-8") == python_page.page(), "run: make docs"


@pytest.mark.parametrize("package", EXPORTING)
def test_every_export_has_a_section_with_its_signature(package: str) -> None:
    text = python_page.page().partition(f"\n## {package}\n")[2].partition("\n## ")[0]
    for name in import_module(package).__all__:
        section = text.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert f"{name}" in section.partition("```text")[2].partition("```")[0], name


def test_no_markup_of_a_docstring_is_left() -> None:
    text = python_page.page()
    assert ":class:" not in text
    assert ":meth:" not in text
    assert "``" not in text.replace("```", "")
    assert "\n\n\n" not in text
    assert " object at 0x" not in text
    assert " = \n" not in text
