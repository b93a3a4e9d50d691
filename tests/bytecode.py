"""A pytest plug-in that lets Python keep what it has compiled, whatever the environment says.

A run compiles the package and all tests in each of its processes, and the package again in each
that a test starts. With ``PYTHONDONTWRITEBYTECODE``, as many containers have it, that was a sixth
of the processor time of ``make check``. What is kept goes into ``__pycache__``, which git ignores
and ``make clean`` removes.
"""

from __future__ import annotations

import os
import sys

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
