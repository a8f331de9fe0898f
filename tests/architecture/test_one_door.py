"""Rows come to a model by one adapter, and outside of mechanisms/ nobody looks into them."""

import ast

import pytest
from support.limits import TOWERS
from support.tree import house_tree

# Who makes handles of rows, or sites of this process: the adapter, the rooms that hold rows, commands.
MAKERS = {
    "Rows",
    "InProcessFederation",
    "LocalSites",
    "in_process",
    "array_rows",
    "site_rows",
    "rows_by_site",
}
ADAPTERS = {"privinf.fitting.rows"}
HOLDERS = ("privinf.mechanisms.", "privinf.federation.", "privinf.cli.", "privinf.schema.")
GIVEN = {"y", "X", "data", "sites", "parties"}
ENTRY_POINTS = {"__init__", "from_formula", "from_arrays"}


@pytest.fixture(scope="module")
def tree():
    return house_tree()


def outside(tree):
    """Yield the modules of towers and of fitting/."""
    for module in tree.of("privinf"):
        if module.name.split(".")[1:2] and module.name.split(".")[1] in TOWERS | {"fitting"}:
            yield module


def makers(tree):
    """Return the modules that make a handle of rows, or sites of this process."""
    return {
        module.name
        for module in tree.of("privinf")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in MAKERS
        if not module.name.startswith(HOLDERS)
    }


def looks(function):
    """Return where an entry point does more with rows than to pass them on."""
    passed = {
        id(value)
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        for value in [*node.args, *(word.value for word in node.keywords)]
    } | {
        id(node.left)
        for node in ast.walk(function)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot))
    }
    return [
        f"{function.name}:{node.lineno} {node.id}"
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id in GIVEN and id(node) not in passed
    ]


def entry_points(module):
    """Yield the functions of a module by which rows come in."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.FunctionDef) or node.name not in ENTRY_POINTS:
            continue
        if node.name != "__init__" or "y" in {one.arg for one in node.args.args}:
            yield node


def test_one_adapter_makes_handles_of_rows(tree):
    assert makers(tree) == ADAPTERS


def test_no_door_looks_into_rows(tree):
    found = [
        (module.name, look)
        for module in outside(tree)
        for entry_point in entry_points(module)
        for look in looks(entry_point)
    ]
    assert found == []


def test_no_tower_indexes_a_handle(tree):
    """Rows are held and passed on: their features and response are read in mechanisms/ alone."""
    found = [
        (module.name, ast.unparse(node))
        for module in outside(tree)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in {"features", "response", "iloc"}
        and ast.unparse(node.value).endswith(("rows", "_rows", "data", "table"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "body", ["data.iloc[0]", "X[sites]", "len(parties[0])", "y - 1", "[row for row in data]"]
)
def test_a_door_that_looks_is_seen(body):
    function = ast.parse(f"def from_formula(cls, y, X, data, sites, parties):\n    return {body}").body[0]
    assert looks(function)


def test_a_door_that_passes_rows_on_is_not():
    body = "return rows(y, X=X) if sites is None else split(sites)"
    assert not looks(ast.parse(f"def __init__(self, y, X, sites):\n    {body}").body[0])
