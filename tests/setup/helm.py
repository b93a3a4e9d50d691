"""Where the chart's tests find ``helm``, and how it gets there.

``python tests/setup/helm.py`` builds it once per user out of the Go module proxy, which takes some
minutes, and prints where it is. ``KEYSHARED_TEST_HELM`` names another one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

VERSION = "3.22.0"
MODULE = f"helm.sh/helm/v3/cmd/helm@v{VERSION}"
VARIABLE = "KEYSHARED_TEST_HELM"

HOW_TO_GET_HELM = (
    f"install Go 1.21 or newer and run `python tests/setup/helm.py`, or set {VARIABLE} to a helm "
    f"such as {VERSION}"
)

_BUILD_TIMEOUT = 1800.0


class HelmMissingError(Exception):
    """There is no helm, with what to do about it."""


def cached() -> Path:
    """Where a built helm is kept: beside the jars of Kafka, outside of the checkout."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "kafka-keyshared" / f"helm-{VERSION}" / "helm"


def find_helm() -> Path | None:
    """The helm to use, or None: the one that the environment names, else the one we built.

    One that happens to be on PATH is of any version, and messages differ between versions.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named) if os.access(named, os.X_OK) else None
    return cached() if os.access(cached(), os.X_OK) else None


def build_helm() -> Path:
    """The helm to use; when there is none yet, Go builds it first.

    Several processes may do this at once: each builds in its own directory, the first to finish
    wins. Raises :class:`HelmMissingError` when Go is missing or fails.
    """
    found = find_helm()
    if found is not None:
        return found
    if os.environ.get(VARIABLE):
        raise HelmMissingError(f"{VARIABLE} names no program: correct it or unset it")
    go = shutil.which("go")
    if go is None:
        raise HelmMissingError(
            f"there is no helm {VERSION} and no Go to build it: {HOW_TO_GET_HELM}"
        )
    target = cached()
    target.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent.parent) as scratch:
        _build(go, Path(scratch))
        target.parent.mkdir(exist_ok=True)
        with suppress(OSError):
            (Path(scratch) / "helm").replace(target)
    if not os.access(target, os.X_OK):
        raise HelmMissingError(f"helm was built and could not be moved to {target}")
    return target


def _build(go: str, scratch: Path) -> None:
    print(f"building helm {VERSION} with Go, once; it takes some minutes", file=sys.stderr)
    # Outside of any module, so that no go.mod above the working directory has a say.
    environ = {**os.environ, "GOBIN": str(scratch), "GOWORK": "off"}
    try:
        done = subprocess.run(
            [go, "install", "-ldflags=-s -w", MODULE],
            env=environ,
            cwd=scratch,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_BUILD_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise HelmMissingError(f"Go did not build helm within {_BUILD_TIMEOUT:.0f} s") from late
    if done.returncode != 0:
        said = "\n".join(done.stdout.splitlines()[-5:])
        raise HelmMissingError(f"Go could not build helm; {HOW_TO_GET_HELM}. It said:\n{said}")


def main() -> int:
    """Build helm unless it is there, and print where it is."""
    try:
        print(build_helm())
    except HelmMissingError as missing:
        print(missing, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
