"""The rooms of the package, and which room may import which: raw rows stay in mechanisms.

The rooms and their rules are one table, `support.limits`. Circles, and rooms that import a room above them,
are measures of the house (`tests/architecture`).
"""

import ast
import sys
from functools import cache

import pytest
from support.limits import EVERYWHERE, FLOOR, FREE, NUMERIC_ONLY, ROW_ENTRY_POINTS, TOWERS, TOWERS_IMPORT
from support.tree import house_tree, room_of

TREE = house_tree()
MODULES = sorted(module.name for module in TREE.of("privinf") if module.name != "privinf")


def imports(module):
    """Return the full names of what a module imports, of the package or not."""
    found = set()
    for node in ast.walk(TREE.modules[module].tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found.add(str(node.module))
    return found


@cache
def arrows():
    """Return what every module imports: read when the first test asks, not when tests are collected."""
    found = {module: set() for module in TREE.modules}
    for one in TREE.imports:
        found[one.source].add(one.target)
    return found


def imported(module):
    """Return the modules of the package that a module imports."""
    return arrows()[module]


def not_of_its_floor(module):
    """Return what a module imports of rooms that its own room may not import."""
    room = room_of(module)
    if FREE & {module, room}:
        return []
    allowed = (TOWERS_IMPORT if room in TOWERS else FLOOR[room]) | EVERYWHERE | {room}
    return [
        f"{module} ({room}) imports {target}" for target in imported(module) if room_of(target) not in allowed
    ]


def not_numeric(module):
    """Return the libraries that a module of a room of numpy and scipy alone imports beside these."""
    room = room_of(module)
    if room not in NUMERIC_ONLY:
        return []
    allowed = NUMERIC_ONLY[room] | {"privinf"} | set(sys.stdlib_module_names)
    return [f"{module} imports {name}" for name in imports(module) if name.split(".")[0] not in allowed]


def no_entry_point_for_rows(module):
    """Return imports of mechanisms, other than entry points for rows, by a module of a tower."""
    used = imported(module) if room_of(module) in TOWERS else ()
    return [
        f"{module} imports {name}"
        for name in used
        if room_of(name) == "mechanisms" and name not in ROW_ENTRY_POINTS
    ]


@pytest.mark.parametrize("rule", [not_of_its_floor, not_numeric, no_entry_point_for_rows])
def test_every_module_imports_only_what_its_room_may(rule):
    assert [offence for module in MODULES for offence in rule(module)] == []


@pytest.mark.parametrize(
    ("rule", "module", "target"),
    [
        (not_of_its_floor, "privinf.inference.estimate", "privinf.glm.plan"),
        (not_of_its_floor, "privinf.glm.plan", "privinf.lasso.model"),
        (not_numeric, "privinf.inference.estimate", "pandas"),
        (no_entry_point_for_rows, "privinf.glm.plan", "privinf.mechanisms.opened"),
    ],
)
def test_an_import_across_rooms_is_listed(monkeypatch, rule, module, target):
    assert rule(module) == []
    for of in (imports, imported):
        monkeypatch.setattr(sys.modules[__name__], of.__name__, lambda one, of=of: of(one) | {target})
    (offence,) = rule(module)
    assert offence.endswith(f"imports {target}")


def test_every_tower_has_modules():
    assert {room_of(module) for module in MODULES} >= TOWERS


def test_every_room_is_named_here():
    rooms = {room_of(module) for module in MODULES}
    assert rooms <= FLOOR.keys() | TOWERS | FREE | EVERYWHERE
    assert TREE.modules.keys() >= ROW_ENTRY_POINTS


@pytest.mark.parametrize("room", sorted(EVERYWHERE))
def test_the_ground_floor_imports_itself_alone(room):
    modules = [name for name in TREE.modules if room_of(name) == room]
    assert modules
    assert {room_of(target) for name in modules for target in imported(name)} <= EVERYWHERE


def test_the_registry_imports_errors_alone():
    assert imported("privinf.registry") == {"privinf.errors"}
    packages = {name.split(".")[0] for name in imports("privinf.registry")}
    assert packages <= {"privinf"} | sys.stdlib_module_names
