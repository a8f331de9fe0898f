"""Scripts of benchmarks and vignettes, long to run and quick to read, name only what there is."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import privinf as pi
from privinf.mechanisms.catalogue import SITE_OPS

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path for folder in ("benchmarks", "vignettes") for path in (ROOT / folder).rglob("*.py"))
FAMILIES = {name.split(".")[0] for name in SITE_OPS if "." in name}
OPERATION = re.compile(rf"(?:{'|'.join(sorted(FAMILIES))})\.[a-z_]+")


def missing(text):
    """Return names that privinf or studies do not have, and operations that no site answers."""
    absent, aliases = [], set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            aliases |= {a.asname or a.name for a in node.names if a.name == "privinf"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("privinf", "studies"):
            module = importlib.import_module(node.module)
            absent += [f"{node.module}.{a.name}" for a in node.names if not _has(module, a.name)]
        elif isinstance(node, ast.Constant) and OPERATION.fullmatch(str(node.value)):
            absent += [] if node.value in SITE_OPS else [node.value]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            absent += [] if hasattr(pi, node.attr) else [f"privinf.{node.attr}"]
    return absent


def _has(module, name):
    if hasattr(module, name):
        return True
    try:
        importlib.import_module(f"{module.__name__}.{name}")
    except ImportError:
        return False
    return True


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_are_there(script):
    assert missing(script.read_text(encoding="utf-8")) == []


def test_names_that_are_gone_are_seen():
    text = 'import privinf as pi\nfrom privinf.schema import Gone\npi.NoSuchModel\nx = "curved.hessian"\n'
    assert missing(text) == ["privinf.schema.Gone", "curved.hessian", "privinf.NoSuchModel"]
    assert (
        missing('import privinf as pi\nfrom privinf.schema import Design\npi.OLS\nx = "curved.step"\n') == []
    )
