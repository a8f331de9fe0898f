"""The house keeps its measures (the limits are one table, `support.limits.LIMITS`) and its public names."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest
from support import house
from support.limits import BY_STRING, LIMITS
from support.tree import Tree, circles, house_tree

NAMES = Path(__file__).with_name("public_names.txt")
GONE = {"privinf.federation DoubleMaskedServer"}  # names of NAMES that are removed


@pytest.fixture(scope="module")
def tree():
    return house_tree()


@pytest.mark.audit
@pytest.mark.parametrize("measure", LIMITS)
def test_measure_is_within_its_limit(measure, tree):
    found = house.MEASURES[measure](tree)
    limit = LIMITS[measure]
    listed = "" if isinstance(found, int) else "\n  ".join(["", *found])
    assert house.size(found) <= limit, f"{measure}: {house.size(found)}, at most {limit}{listed}"


@pytest.mark.audit
def test_modules_named_in_strings_are_there(tree):
    """What a lazy facade or a table of recipes names, ``module`` or ``module:attribute``, can be imported."""
    named = {text for module in tree.modules.values() for text in house.strings_that_import(module)}
    checked = 0
    for text in named:
        if house.DOTTED.fullmatch(text):
            module, _, attribute = text.partition(":")
            assert module in tree.modules, text
            assert not attribute or attribute in bound(tree.modules[module].tree), text
            checked += 1
    assert checked >= 3


def bound(module: ast.Module) -> set[str]:
    """Return the names that a module sets at its top."""
    names = {getattr(node, "name", "") for node in module.body}
    names |= {target.id for target in ast.walk(module) if isinstance(target, ast.Name)}
    return names | {
        one.asname or one.name
        for node in ast.walk(module)
        for one in getattr(node, "names", ())
        if isinstance(one, ast.alias)
    }


def test_only_these_modules_hold_strings_that_import(tree):
    held = {
        module.name
        for module in tree.of("privinf")
        if not house.is_lazy_facade(module) and list(house.strings_that_import(module))
    }
    assert held <= BY_STRING


def public_names():
    return [line for line in NAMES.read_text().split("\n") if line and line not in GONE]


@pytest.mark.parametrize("room", sorted({line.split()[0] for line in public_names()}))
def test_public_names_stay(room):
    """Every name that a room offered before the second edition can still be taken from it."""
    module = import_module(room)
    names = [line.split()[1] for line in public_names() if line.split()[0] == room]
    lost = [name for name in names if not hasattr(module, name) or name not in module.__all__]
    assert lost == []


# ---- what the measures must see


def small(tmp_path, **files):
    """Return the tree of a package of files: ``noise__a`` is noise/a.py, ``noise__init`` its __init__."""
    for name, text in files.items():
        room, _, stem = name.partition("__")
        folder = tmp_path / "privinf" / (room if stem else "")
        folder.mkdir(parents=True, exist_ok=True)
        for package in (tmp_path / "privinf", folder):
            (package / "__init__.py").touch()
        (folder / f"{'__init__' if stem == 'init' else stem or room}.py").write_text(text)
    return Tree(tmp_path)


def test_circles_of_a_graph():
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"f"}}
    assert circles(arrows) == [["a", "b", "c"], ["f"]]


@pytest.mark.parametrize(
    "back",
    [
        "from privinf.noise.a import A",
        "def f():\n    import privinf.noise.a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from privinf.noise import a",
    ],
)
def test_a_circle_is_seen_whatever_the_kind_of_import(tmp_path, back):
    tree = small(tmp_path, noise__a="from privinf.noise.b import B\n", noise__b=back)
    assert house.import_circles(tree) == ["privinf.noise.a privinf.noise.b"]


def test_a_circle_by_a_name_of_a_lazy_facade_is_seen(tmp_path):
    tree = small(
        tmp_path,
        noise__a="from privinf.noise.b import B\n",
        noise__b="def f():\n    from privinf import A\n",
    )
    assert house.import_circles(tree) == []
    (tmp_path / "privinf/__init__.pyi").write_text("from .noise import A as A\n")
    (tmp_path / "privinf/noise/__init__.pyi").write_text("from .a import A as A\n")
    assert house.import_circles(Tree(tmp_path)) == ["privinf.noise.a privinf.noise.b"]


def test_a_facade_counts_and_a_submodule_does_not(tmp_path):
    tree = small(tmp_path, noise__init="", noise__a="from privinf.noise import b\n", noise__b="")
    assert house.import_circles(tree) == []
    (tmp_path / "privinf/noise/__init__.py").write_text("from privinf.noise.a import A\n")
    (tmp_path / "privinf/noise/a.py").write_text("from privinf.noise import B\n")
    assert house.import_circles(Tree(tmp_path)) == ["privinf.noise privinf.noise.a"]


def test_no_circle_is_exempt_for_standing_in_a_method(tmp_path):
    text = "class Schema:\n    def design(self):\n        from privinf.schema.b import B\n"
    tree = small(tmp_path, schema__a=text, schema__b="from privinf.schema.a import Schema\n")
    assert house.import_circles(tree) == ["privinf.schema.a privinf.schema.b"]


def test_arrows_that_break_rules(tmp_path):
    tree = small(
        tmp_path,
        glm__model="from privinf.lasso.plan import Plan\nfrom privinf.noise import x\n",
        noise__source="def f():\n    from privinf.glm.model import Model\nfrom privinf.results import base\n",
        lasso__plan="",
        results__base="import privinf\n",
        cli__new="from privinf.glm import model\n",
        accounting__planning="from privinf.glm import model\n",
        attic__old="",
    )
    assert house.towers_to_towers(tree) == ["privinf.glm.model -> privinf.lasso.plan"]
    assert house.floor_to_towers(tree) == ["privinf.noise.source -> privinf.glm.model"]
    assert house.floor_upwards(tree) == [
        "privinf.noise.source -> privinf.results.base",
        "privinf.results.base -> privinf",
    ]
    assert house.unnamed_rooms(tree) == ["attic"]


def test_every_room_may_import_the_ground_floor_which_imports_no_room(tmp_path):
    tree = small(
        tmp_path,
        noise__a="from privinf.registry import named\nfrom privinf.fitting.model import fit\n",
        registry="from privinf.errors import Error\nfrom privinf.fitting.model import fit\n",
        errors="",
        fitting__model="",
    )
    assert house.floor_upwards(tree) == [
        "privinf.noise.a -> privinf.fitting.model",
        "privinf.registry -> privinf.fitting.model",
    ]


def test_parameters_are_counted(tmp_path):
    tree = small(
        tmp_path,
        typing="from typing import Any, TypeAlias\nTable: TypeAlias = Any\nRows = Table\n",
        noise__a="""
from typing import Any, Unpack
class A:
    def __init__(self, a, b: Rows, *, c: Any | None = None, **d: Any): ...
    def many(self, a, b, c, d, e, f, g, h, i, j, k, **words: Unpack[Words]): ...
    def more(self, a, b, c, d, e, f, g, h, i, j, k, l, **words: Unpack[Words]): ...
    def _hidden(self, a: Any, **words): ...
    def __getitem__(self, key: Any): ...
def loose(**words): ...
def named(**words: str): ...
""",
    )
    wide = ["privinf.noise.a.A.__init__ 16", "privinf.noise.a.A.more 13", "privinf.noise.a.loose 13"]
    assert house.wide_functions(tree) == wide
    given = [f"privinf.noise.a.A.__init__({name})" for name in "bcd"]
    assert house.any_parameters(tree) == given


def test_doubled_names(tmp_path):
    tree = small(
        tmp_path,
        noise__a='class A: ...\nKind = Literal["x", "y"]\nONE = 1\nROOT2 = 1.4\n_B = 2\n',
        noise__b='class A: ...\nKind = Literal["z"]\nf: Literal["y", "x"]\nONE = 1\nROOT2 = 2\n_B = 3\n',
    )
    both = "privinf.noise.a privinf.noise.b"
    assert house.twice_named_classes(tree) == [f"A: {both}"]
    assert house.twice_named_literals(tree) == [f"Kind: {both}"]
    assert house.twice_written_literals(tree) == [f"'x', 'y': {both}"]
    assert house.copied_constants(tree) == [f"ONE = 1: {both}"]
    assert house.ambiguous_constants(tree) == [f"ROOT2: {both}"]
    assert house.single_constants(tree) == ["ROOT2"]


def test_private_names_of_others(tmp_path):
    tree = small(
        tmp_path,
        noise__a="_x = 1\n",
        noise___b="y = 1\n",
        noise__c="from privinf.noise._b import y\n",
        schema__d="from privinf.noise import a, _b\nfrom privinf.noise.a import _x\na._x\n",
    )
    assert len(house.private_imports(tree)) == 3


def test_imports_by_string(tmp_path):
    recipes = '"""A door to privinf.noise.a."""\nT = {"x": "privinf.noise.a:A"}\n'
    tree = small(
        tmp_path,
        noise__init='def __getattr__(name):\n    return import_module(f"privinf.noise.{name}")\n',
        noise__a='raise ValueError("privinf.noise.a is no file")\n',
        noise__b=recipes + 'import_module(f"flwr.{x}")\nimport_module("flwr.y")\n',
        noise__c='import_module(f"privinf.{x}")\n__import__(x)\n',
        registry=recipes,
    )
    assert [one.split(":")[0] for one in house.imports_by_string(tree)] == [
        "privinf.noise.b",
        "privinf.noise.c",
        "privinf.noise.c",
    ]


def test_lines_kept_from_the_formatter(tmp_path):
    tree = small(
        tmp_path,
        noise__a="x = (1,\n     2)  # fmt: skip\n",
        noise__b="# fmt: off\nx = 1\n",
        noise__c="x = 1\n",
    )
    assert house.kept_from_the_formatter(tree) == ["privinf.noise.a 2", "privinf.noise.b 1"]


def test_sizes(tmp_path):
    tree = small(tmp_path, noise__a="x = 1\n" * 351, noise__b="x = 1\n" * 350)
    assert house.long_modules(tree) == ["privinf.noise.a 351"]
    assert len(house.largest_folder(tree)) == 3
    assert house.lines(tree) == 701


def test_classes_and_functions_are_measured_without_docstrings(tmp_path):
    method = '    def f(self):\n        """One.\n\n        Two.\n        """\n' + "        x = 1\n" * 60
    tree = small(
        tmp_path,
        noise__a=f"class Long:\n{method * 5}",
        noise__b=f'class Short:\n    """One."""\n{method.replace("x = 1", "pass") * 4}',
        noise__c="def g():\n" + "    x = 1\n" * 59,
    )
    assert house.long_classes(tree) == ["privinf.noise.a.Long 306"]
    assert house.long_functions(tree) == ["privinf.noise.a.f 61", "privinf.noise.b.f 61"]
