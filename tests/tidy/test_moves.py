"""A move rewrites every reference to it, is done once, and is refused where it cannot be done."""

from __future__ import annotations

import pytest

from tests.setup.moves import Move, RefusedError, Tree, after, plan

# Modules of a made-up checkout; the package's name in two parts, so that no move rewrites them.
ROOT = "kafka_" + "keyshared"
BEFORE = {
    f"{ROOT}/__init__.py": '_HOMES = {"Row": "rows", "Own": "deep.own"}\n',
    f"{ROOT}/rows.py": '"""Rows; :mod:`.shut` has others."""\n',
    f"{ROOT}/shut.py": f"from {ROOT} import rows\nfrom {ROOT}.rows import Row\nx = rows.Row\n",
    f"{ROOT}/deep/__init__.py": '"""Deep."""\n',
    f"{ROOT}/deep/own.py": "from pathlib import Path\nROOT = Path(__file__).parents[1]\n",
    f"{ROOT}/log.py": f'log = log_of("{ROOT}.deep")\nfiles("{ROOT}.deep")\n',
    "tests/unit/test_rows.py": f'patch("{ROOT}.rows.Row.x")\n'
    f'match(r"{ROOT}\\.rows|test_rows\\.py")\n',
    "tests/mutants/a.toml": f'[[mutant]]\nfile = "{ROOT}/shut.py"\nold = "rows.Row"\n'
    f'[[mutant]]\nfile = "{ROOT}/rows.py"\nold = "rows.x"\n',
    "docs/a.md": f"See [rows](../{ROOT}/rows.py), `rows.py` and `tests/unit/test_rows.py`.\n",
    "docs/deep/b.md": "[a](../a.md#top)\n",
}
MOVE = Move(
    "all",
    modules={"rows": "rows.queue"},
    packages={"deep": "far.deep"},
    files={"docs/a.md": "docs/far/c.md"},
    docstrings={"rows": "Rows.", "far": "Far."},
)


def test_a_move_rewrites_imports_strings_roles_paths_links_and_depths() -> None:
    tree = Tree(dict(BEFORE))
    done = plan(MOVE, tree)
    assert done is not None
    assert after(tree, done).texts == {
        f"{ROOT}/__init__.py": '_HOMES = {"Row": "rows.queue", "Own": "far.deep.own"}\n',
        f"{ROOT}/rows/__init__.py": '"""Rows."""\n',
        f"{ROOT}/rows/queue.py": f'"""Rows; :mod:`{ROOT}.shut` has others."""\n',
        f"{ROOT}/shut.py": f"from {ROOT}.rows import queue\nfrom {ROOT}.rows.queue import Row\n"
        "x = queue.Row\n",
        f"{ROOT}/far/__init__.py": '"""Far."""\n',
        f"{ROOT}/far/deep/__init__.py": '"""Deep."""\n',
        f"{ROOT}/far/deep/own.py": "from pathlib import Path\nROOT = Path(__file__).parents[2]\n",
        f"{ROOT}/log.py": f'log = log_of("{ROOT}.deep")\nfiles("{ROOT}.far.deep")\n',
        "tests/unit/rows/test_queue.py": f'patch("{ROOT}.rows.queue.Row.x")\n'
        f'match(r"{ROOT}\\.rows\\.queue|test_queue\\.py")\n',
        "tests/mutants/a.toml": f'[[mutant]]\nfile = "{ROOT}/shut.py"\nold = "queue.Row"\n'
        f'[[mutant]]\nfile = "{ROOT}/rows/queue.py"\nold = "rows.x"\n',
        "docs/far/c.md": f"See [rows](../../{ROOT}/rows/queue.py), `rows/queue.py` and "
        "`tests/unit/rows/test_queue.py`.\n",
        "docs/deep/b.md": "[a](../far/c.md#top)\n",
    }
    assert done.notes == [f"{ROOT}/log.py:1: {ROOT}.deep stays: a logger has that name"]


def test_a_move_that_was_done_before_changes_nothing() -> None:
    tree = Tree(dict(BEFORE))
    done = plan(MOVE, tree)
    assert done is not None
    assert plan(MOVE, after(tree, done)) is None


@pytest.mark.parametrize(
    ("move", "reason"),
    [
        (Move("m", modules={"gone": "far"}), "gone.py is missing"),
        (Move("m", modules={"rows": "shut"}), "shut.py exists"),
        (Move("m", modules={"rows": "one", "shut": "one"}), "one.py has two sources"),
        (Move("m", modules={"rows": "new.rows"}), "new would be a new package"),
        (Move("m", modules={"rows": "deep"}), "deep.py would stand beside a package"),
        (Move("m", modules={"rows": "x"}, docstrings={"deep": "D."}), "its docstring is there"),
    ],
)
def test_a_move_that_cannot_be_done_is_refused_as_a_whole(move: Move, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        plan(move, Tree(dict(BEFORE)))
