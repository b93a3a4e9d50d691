"""Make a virtual environment with pip in it, with whatever this machine has.

The Makefile asks each Python that it finds ``--makes-venv`` or, if none does, ``--usable``, and has
the first that says yes make the environment. That tries the standard library's venv, then uv, then
virtualenv: Debian and Ubuntu ship a Python whose venv cannot install pip until one more package is
there.

Exit status: 0 yes, or the environment is there; 1 no; 2 it cannot be made, and the last line says
what to install. It needs nothing but the standard library.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

OLDEST, NEWEST = (3, 11), (3, 14)


def usable() -> bool:
    """Whether this Python is of a version that the package is made for."""
    return OLDEST <= sys.version_info[:2] <= NEWEST


def makes_venv() -> bool:
    """Whether this Python can make an environment alone.

    The module venv proves nothing: Debian keeps it and takes ensurepip out.
    """
    return importlib.util.find_spec("ensurepip") is not None


def interpreter(venv: Path) -> Path:
    """The environment's Python."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def works(venv: Path) -> bool:
    """Whether the environment runs, has pip and is of a usable version.

    It stops working when the Python below it was upgraded or removed.
    """
    if not interpreter(venv).exists():
        return False
    check = f"import sys, pip; sys.exit(not {OLDEST} <= sys.version_info[:2] <= {NEWEST})"
    done = subprocess.run([str(interpreter(venv)), "-c", check], capture_output=True, check=False)
    return done.returncode == 0


def makers(venv: Path) -> list[list[str]]:
    """The commands that may make the environment, best first; only tools that are here."""
    python, target = sys.executable, str(venv)
    commands: list[list[str]] = []
    if makes_venv():
        commands.append([python, "-m", "venv", "--clear", target])
    if shutil.which("uv"):
        # --seed, because every later step calls the environment's own pip.
        commands.append(["uv", "venv", "--quiet", "--clear", "--seed", "--python", python, target])
    if importlib.util.find_spec("virtualenv"):
        commands.append([python, "-m", "virtualenv", "--quiet", "--clear", target])
    elif shutil.which("virtualenv"):
        commands.append(["virtualenv", "--quiet", "--clear", "--python", python, target])
    return commands


def missing_package() -> str:
    """The one package that makes this machine able to make environments, under its own name."""
    if shutil.which("apt-get"):
        return f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    return "virtualenv"


def may_use_apt() -> bool:
    """Only a build server that runs as root gets system packages without being asked."""
    return (
        os.environ.get("CI", "").lower() == "true"
        and hasattr(os, "geteuid")
        and os.geteuid() == 0
        and shutil.which("apt-get") is not None
    )


def apt_install(packages: Sequence[str]) -> bool:
    """Install system packages; False when apt failed. Its output goes to standard error."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    update = ["apt-get", "update", "-qq"]
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    return all(
        subprocess.run(command, env=environ, stdout=sys.stderr, check=False).returncode == 0
        for command in (update, install)
    )


def make(venv: Path) -> bool:
    """Make the environment with the first tool that can; say on standard error who could not."""
    for command in makers(venv):
        done = subprocess.run(command, stdout=sys.stderr, check=False)
        if done.returncode == 0 and works(venv):
            return True
        print(f"{venv} could not be made with: {' '.join(command)}", file=sys.stderr)
    return False


def main(arguments: Sequence[str]) -> int:
    """Answer a question of the Makefile, or make the environment unless it is there and works."""
    if list(arguments) in (["--usable"], ["--makes-venv"]):
        return 0 if usable() and (arguments[0] == "--usable" or makes_venv()) else 1
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: make_venv.py --usable|--makes-venv|DIRECTORY", file=sys.stderr)
        return 2
    venv = Path(arguments[0])
    if works(venv) or make(venv):
        return 0
    package = missing_package()
    if may_use_apt() and apt_install([package]) and make(venv):
        return 0
    print(
        f"{sys.executable} cannot make {venv}: install the package {package}, then run make again",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
