"""A run of pytest over planted tests, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.tidy.sources import ROOT


def planted_run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder with our plug-ins at hand; the caller judges how it ended."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
