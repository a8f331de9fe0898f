"""The rooms of the package, and which room may import which: raw rows stay in mechanisms."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "privinf"
EVERYWHERE = {"errors", "typing", "validation", "doors", "sealed", "studied", "version"}
ALLOWED = {
    "errors": set(),
    "sealed": set(),
    "studied": set(),
    "version": set(),
    "doors": set(),
    "typing": set(),
    "validation": set(),
    "storage": set(),
    "schema": set(),
    "accounting": set(),
    "noise": set(),
    "release_kinds": set(),
    "releases": {"schema", "accounting", "storage", "release_kinds"},
    "mechanisms": {"schema", "accounting", "noise", "releases"},
    "inference": set(),
    "engines": {"releases", "inference"},
    "federation": {"mechanisms", "accounting", "noise", "schema", "releases", "storage"},
    "results": {"inference", "accounting", "schema", "releases", "storage", "plotting"},
    "plotting": {"results", "accounting", "inference"},
    "models": {
        "mechanisms",
        "releases",
        "inference",
        "engines",
        "federation",
        "results",
        "accounting",
        "schema",
        "storage",
    },
    "audit": {"noise", "accounting"},
    "simulation": set(),
    "datasets": {"schema"},
    "cli": {"accounting", "federation", "mechanisms", "models", "releases", "results", "schema"},
    "__main__": {"cli"},
}
NUMERIC_ONLY = {"inference"}
NUMERIC = {"numpy", "scipy", "privinf"} | set(sys.stdlib_module_names)


def room_of(path: Path) -> str:
    part = path.relative_to(PACKAGE).parts[0]
    return part.removesuffix(".py")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(str(node.module))
    return found


MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name != "__init__.py"
)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_room_imports_only_what_it_may(path):
    room = room_of(path)
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "privinf" and rest:
            other = rest[0]
            if other == room or other in EVERYWHERE:
                continue
            assert other in ALLOWED[room], f"{path.relative_to(PACKAGE)} ({room}) imports privinf.{other}"
        elif room in NUMERIC_ONLY:
            assert top in NUMERIC, (
                f"{path.relative_to(PACKAGE)} imports {top}: this room is numpy and scipy only"
            )


def test_models_reach_rows_only_through_the_mechanisms_doors():
    doors = {
        "privinf.mechanisms",
        "privinf.mechanisms.mixing.matrix",
        "privinf.mechanisms.mixing.plan",
        "privinf.mechanisms.mixing.theory",
        "privinf.mechanisms.mixing.party",
        "privinf.mechanisms.local.modulation",
        "privinf.mechanisms.local.modulation_map",
        "privinf.mechanisms.moments",
        "privinf.mechanisms.selection",
        "privinf.mechanisms.rows",
        "privinf.mechanisms.local.signs",
    }
    for path in PACKAGE.glob("models/*.py"):
        used = {name for name in imports(path) if name.startswith("privinf.mechanisms")}
        assert used <= doors, f"{path.name}: {used - doors}"


def test_every_room_is_named_here():
    rooms = {room_of(path) for path in MODULES}
    assert rooms <= ALLOWED.keys(), rooms - ALLOWED.keys()
