"""Every name that a test replaces is read by the package while it is replaced: else the test cannot fail."""

from __future__ import annotations

import pytest
from support.patches import Patch, Patches, global_loads
from support.tree import Tree, house_tree

# Read by the tests alone: the fits of record-and-replay take their models from the package itself.
READ_BY_TESTS = {Patch("privinf", "MomentOLS")}


@pytest.fixture(scope="module")
def counts():
    return Patches().counts()


@pytest.mark.audit
def test_every_replaced_name_is_read(counts):
    unread = {patch for patch, count in counts.items() if count == 0}
    assert unread == READ_BY_TESTS


@pytest.mark.audit
def test_replaced_names_are_found(counts):
    kinds = [patch.kind for patch in counts]
    assert kinds.count("global") > 60
    assert kinds.count("member") > 20
    assert kinds.count("code") > 40
    assert "item" in kinds


@pytest.mark.audit
def test_modules_of_exchanged_code_are_there(counts):
    modules = house_tree().modules
    assert [patch for patch in counts if patch.module not in modules] == []


# ---- what the count must see

LOADS = """
LIMIT = 1
OTHER = LIMIT
def f(x=LIMIT):
    return LIMIT + x
def g():
    LIMIT = 2
    return [LIMIT for _ in h()]
class A:
    y = LIMIT
    def m(self):
        return lambda: LIMIT
"""


@pytest.fixture
def tree(tmp_path):
    files = {
        "privinf/__init__.py": "",
        "privinf/a.py": LOADS,
        "privinf/b.py": "from privinf.a import A, LIMIT\nTABLE = {}\ndef f(): return LIMIT, TABLE, A.m\n",
        "privinf/c.py": "from privinf import a as there\ndef f():\n    return there.LIMIT\n",
        "tests/test_a.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return Tree(tmp_path)


def patched(tree, tmp_path, text):
    (tmp_path / "tests/test_a.py").write_text(text)
    return Patches(tree, tmp_path / "tests").lines()


def test_loads_in_functions_count_and_those_at_import_do_not(tree):
    assert global_loads(tree.modules["privinf.a"])["LIMIT"] == 2


@pytest.mark.parametrize(
    "line",
    [
        "patch.setattr(a, 'LIMIT', 2)",
        "patch.setattr('privinf.a.LIMIT', 2)",
        "MUTANTS = {'x': (a, 'LIMIT', 2)}",
        "a.LIMIT = 2",
        "for place in (a, 3):\n    patch.setattr(place, 'LIMIT', 2)",
        "for name in ('LIMIT', 'nothing'):\n    patch.setattr(a, name, 2)",
    ],
)
def test_a_global_is_counted_where_the_patch_reaches(tree, tmp_path, line):
    assert patched(tree, tmp_path, f"from privinf import a\n{line}") == ["privinf.a LIMIT 3"]


def test_a_copy_is_another_name(tree, tmp_path):
    assert patched(tree, tmp_path, "from privinf import b\npatch.setattr(b, 'LIMIT', 2)") == [
        "privinf.b LIMIT 1"
    ]


def test_members_tables_and_code(tree, tmp_path):
    text = "import privinf.b as b\npatch.setattr(b.A, 'm', 1)\npatch.setitem(b.TABLE, 'x', 1)\n"
    mutant = "PLACE = 'a'\nMutant(PLACE, 'f', 'LIMIT', '2')\n"
    assert patched(tree, tmp_path, text + mutant) == [
        "privinf.a A.m 1",
        "privinf.a f code",
        "privinf.b TABLE[] 1",
    ]


def test_what_is_only_read_is_no_patch(tree, tmp_path):
    assert patched(tree, tmp_path, "from privinf import a\ngetattr(a, 'LIMIT')\nf(a, 'nothing')\n") == []
