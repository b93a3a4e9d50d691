"""Builds the documents as a site, as `make docs` does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def build(project: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of the project that has a mkdocs.yml into this directory."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)],
        cwd=project,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
