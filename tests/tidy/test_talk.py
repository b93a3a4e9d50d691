"""What installs says every few seconds what it is at, and all of what went wrong."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from tests.setup.talk import main, talk
from tests.tidy.sources import ROOT

# A command that is silent until a file is there, which the words that are waited for make.
SILENT = """
import pathlib, sys, time
print(sys.argv[1], flush=True)
while not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.01)
print("Successfully installed", flush=True)
"""


class Watched(io.StringIO):
    """Makes the file once three words were said about the silence behind what was shown."""

    def __init__(self, file: Path, shown: str) -> None:
        super().__init__()
        self._file = file
        self._shown = shown
        self._words = 0

    def write(self, text: str) -> int:
        # Those before the command has begun to speak do not count: it may take its time to start.
        self._words += bool(re.match(r"  \d+ s" + re.escape(self._shown), text))
        if self._words == 3:
            self._file.touch()
        return super().write(text)


@pytest.mark.parametrize(
    ("last", "shown"),
    [
        ("Collecting a==2.1 (from -r https://example.org/b/c)", "  Collecting a==2.1 (from -r c)"),
        ("  Downloading a-2.1.whl (4.2 MB)", "  Downloading a-2.1.whl (4.2 MB)"),
        ("Installing collected packages: a, b, c", "  Installing packages: 3"),
        ("Requirement already satisfied: a", ""),
    ],
)
def test_a_silent_command_is_talked_about_until_it_ends(
    last: str, shown: str, tmp_path: Path
) -> None:
    said = Watched(tmp_path / "heard", shown)
    command = [sys.executable, "-c", SILENT, last, str(tmp_path / "heard")]
    assert talk("Installing", command, said, every=0.3) == 0
    lines = said.getvalue().splitlines()
    assert lines[0] == "Installing …"
    assert len(lines) >= 5
    assert re.fullmatch(r"  \d+ s" + re.escape(shown), lines[-2])
    assert re.fullmatch(r"  done in \d+ s", lines[-1])
    assert max(map(len, lines)) < 80


def test_a_command_that_fails_is_shown_whole_with_its_status() -> None:
    said = io.StringIO()
    command = [sys.executable, "-c", "import sys; print('no such package'); sys.exit(3)"]
    assert talk("Installing", command, said, every=600) == 3
    assert said.getvalue() == "Installing …\nno such package\n"


def test_it_says_how_to_call_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alone"]) == 2
    assert "usage: talk.py WHAT COMMAND" in capsys.readouterr().err


def test_every_install_of_the_makefile_talks() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    slow = [line for line in text.splitlines() if re.search(r"PIP\) install|_venv\.py \$", line)]
    assert len(slow) == 4
    assert all("$(TALK)" in line for line in slow)
