"""The modules of a package and who imports whom, read from the text alone (nothing is run)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("privinf", "studies")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def is_private(self) -> bool:
        return any(is_private(part) for part in self.name.split("."))

    @property
    def room(self) -> str:
        """The first name below the package: ``schema`` of ``privinf.schema.table``, "" of ``privinf``."""
        return room_of(self.name)


@dataclass(frozen=True)
class Import:
    """One name that a module imports.

    Parameters
    ----------
    source, target : str
        The module that imports, and the module (never a name in it) that is imported.
    name : str or None
        What it takes from the target; None where it takes the module itself.
    bound : str
        What the module calls it.
    kind : {"top", "deferred", "typing"}
        At the top, inside a function, or under ``if TYPE_CHECKING``.
    """

    source: str
    target: str
    name: str | None
    bound: str
    kind: str


class Tree:
    """The modules of the packages under one root."""

    def __init__(self, root: Path = ROOT, packages: tuple[str, ...] = PACKAGES) -> None:
        found = (path for package in packages for path in sorted((root / package).rglob("*.py")))
        modules = (Module(_dotted(path, root), path) for path in found)
        self.modules = {module.name: module for module in modules}

    def of(self, package: str) -> list[Module]:
        """Return the modules of one package."""
        return [module for name, module in self.modules.items() if name.split(".")[0] == package]

    @cached_property
    def imports(self) -> list[Import]:
        """Every import of a module of the tree.

        ``from a.b import c`` imports ``a.b.c`` where that is a module, else it imports ``a.b`` itself: for a
        package, its ``__init__``. Where the package's own text binds ``c`` to something else, that is what
        is imported. The packages on the way to a module are not counted.
        """
        return [found for module in self.modules.values() for found in self._imports(module)]

    @cached_property
    def facades(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Where a lazy facade has a name from, by its stub: (package, name) -> (module, name there)."""
        return {
            (module.name, alias.asname or alias.name): (f"{module.name}.{node.module}", alias.name)
            for module in self.modules.values()
            if module.is_package and (stub := module.path.with_suffix(".pyi")).exists()
            for node in ast.parse(stub.read_text()).body
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
            for alias in node.names
        }

    def behind_facade(self, one: Import) -> str:
        """Return the module that defines what an import takes from a lazy facade; else its target."""
        place = (one.target, one.name or "")
        while place in self.facades:
            place = self.facades[place]
        return place[0]

    @cached_property
    def rebound(self) -> set[str]:
        """Names ``a.b.c`` that are a module, but for which ``a/b/__init__.py`` binds another thing."""
        return {
            f"{module.name}.{alias.asname or alias.name}"
            for module in self.modules.values()
            if module.is_package
            for node in module.tree.body
            if isinstance(node, ast.ImportFrom) and node.module != module.name
            for alias in node.names
        }

    def _imports(self, module: Module) -> Iterator[Import]:
        for node, kind in _statements(module.tree, "top"):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in self.modules:
                        bound = alias.asname or alias.name
                        yield Import(source=module.name, target=alias.name, name=None, bound=bound, kind=kind)
            elif node.module in self.modules:
                for alias in node.names:
                    bound = alias.asname or alias.name
                    full = f"{node.module}.{alias.name}"
                    if full in self.modules and full not in self.rebound:
                        yield Import(source=module.name, target=full, name=None, bound=bound, kind=kind)
                    else:
                        yield Import(
                            source=module.name,
                            target=str(node.module),
                            name=alias.name,
                            bound=bound,
                            kind=kind,
                        )


@cache
def house_tree() -> Tree:
    """Return the tree of the house itself, whose text is read and parsed once."""
    return Tree()


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module, or of one that imports itself."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(arrows.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            cut = stack.index(name)
            part = stack[cut:]
            del stack[cut:]
            if len(part) > 1 or name in arrows.get(name, ()):
                found.append(sorted(part))

    for name in sorted(arrows):
        if name not in index:
            visit(name)
    return sorted(found)


def is_private(name: str) -> bool:
    """Return whether a name starts with one underscore."""
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def room_of(name: str) -> str:
    """Return the first name below the package."""
    return name.split(".")[1] if "." in name else ""


def functions(tree: ast.Module) -> Iterator[tuple[str, Function, bool]]:
    """Yield (dotted name, function, whether it is a method) of functions of a module and of its classes.

    Functions inside functions are left out; methods of classes inside classes are not.
    """

    def walk(body: list[ast.stmt], prefix: str, method: bool) -> Iterator[tuple[str, Function, bool]]:
        for node in body:
            if isinstance(node, Function):
                yield prefix + node.name, node, method
            elif isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.", True)
            elif isinstance(node, ast.If):
                yield from walk(node.body + node.orelse, prefix, method)

    yield from walk(tree.body, "", False)


def _statements(node: ast.AST, kind: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Yield every import statement, with its kind."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, kind
        elif isinstance(child, Function):
            yield from _statements(child, "deferred")
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from _statements(ast.Module(child.body, []), "typing")
            yield from _statements(ast.Module(child.orelse, []), kind)
        else:
            yield from _statements(child, kind)


def _dotted(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
