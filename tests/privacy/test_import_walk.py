"""The rooms of the package, and which room may import which: raw rows stay in mechanisms.

The rooms and their rules are one table, `support.limits`. Circles, and rooms that import a room above them,
are measures of the house (`tests/architecture`).
"""

import ast
import sys

import pytest
from support.limits import EVERYWHERE, FLOOR, FREE, NUMERIC_ONLY, ROW_DOORS, TOWERS, TOWERS_IMPORT
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


def imported(module):
    """Return the modules of the package that a module imports."""
    return {one.target for one in TREE.imports if one.source == module}


@pytest.mark.audit
@pytest.mark.parametrize("module", MODULES)
def test_room_imports_only_what_it_may(module):
    room = room_of(module)
    for target in set() if FREE & {module, room} else imported(module):
        allowed = TOWERS_IMPORT if room in TOWERS else FLOOR[room]
        assert room_of(target) in allowed | EVERYWHERE | {room}, f"{module} ({room}) imports {target}"
    for name in imports(module) if room in NUMERIC_ONLY else ():
        allowed = NUMERIC_ONLY[room] | {"privinf"} | set(sys.stdlib_module_names)
        assert name.split(".")[0] in allowed, f"{module} imports {name}: {room} is numpy and scipy only"


@pytest.mark.parametrize("tower", sorted(TOWERS))
def test_models_reach_rows_only_through_the_mechanisms_doors(tower):
    modules = [module for module in MODULES if room_of(module) == tower]
    assert modules
    for module in modules:
        used = {name for name in imported(module) if room_of(name) == "mechanisms"}
        assert used <= ROW_DOORS, f"{module}: {used - ROW_DOORS}"


def test_every_room_is_named_here():
    rooms = {room_of(module) for module in MODULES}
    assert rooms <= FLOOR.keys() | TOWERS | FREE | EVERYWHERE
    assert TREE.modules.keys() >= ROW_DOORS


@pytest.mark.parametrize("room", sorted(EVERYWHERE))
def test_the_ground_floor_imports_itself_alone(room):
    assert {room_of(target) for target in imported(f"privinf.{room}")} <= EVERYWHERE


def test_the_registry_imports_errors_alone():
    assert imported("privinf.registry") == {"privinf.errors"}
    packages = {name.split(".")[0] for name in imports("privinf.registry")}
    assert packages <= {"privinf"} | sys.stdlib_module_names
