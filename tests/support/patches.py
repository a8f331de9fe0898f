"""What tests replace in the package, and how often the package reads it while it is replaced.

``python -m support.patches`` prints one line for each: ``module name count``. A test that replaces a name in
one module changes nothing for a module that took a copy of it (``from module import name``), so that a move
can make a test pass for no reason; the counts before and after a move tell. Everything is read from the text.

- ``module name``: a global of a module; the count is its loads in functions of the module, and
  ``module.name`` in functions of modules that import the module.
- ``module Class.member``: the count is every ``.member`` in a function of the package.
- ``module TABLE[]``: an entry of a table that is replaced in place; the count is every load of TABLE.
- ``module function code``: the code of a function is exchanged (`privacy.mutation`), whoever holds it.
"""

from __future__ import annotations

import ast
import dis
import inspect
import types
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

from support.tree import ROOT, Function, Module, Tree, house_tree

READERS = {"getattr", "hasattr", "isinstance", "delattr"}
REPLACE = {"setattr", "setitem", "patch", "object"}


@dataclass(frozen=True, order=True)
class Patch:
    """A thing that tests replace: the module where they look for it, and its name there."""

    module: str
    name: str
    kind: str = "global"


class Patches:
    """What the tests below a folder replace in the packages of a tree."""

    def __init__(self, tree: Tree | None = None, tests: Path = ROOT / "tests") -> None:
        self.tree = tree or house_tree()
        self.tests = tests

    @cached_property
    def found(self) -> list[Patch]:
        """Every thing that is replaced, by any test, once."""
        paths = sorted(self.tests.rglob("*.py"))
        return sorted({patch for path in paths for patch in _File(path, self.tree).patches()})

    def counts(self) -> dict[Patch, int | str]:
        """Return how often the package reads each thing; "code" where its code is exchanged."""
        return {patch: self._count(patch) for patch in self.found}

    def lines(self) -> list[str]:
        return [f"{patch.module} {patch.name} {count}" for patch, count in self.counts().items()]

    def _count(self, patch: Patch) -> int | str:
        name = patch.name
        if patch.kind == "code":
            return "code"
        if patch.kind == "member":
            return self._members[name.rpartition(".")[2]]
        if patch.kind == "item":
            table = name.removesuffix("[]")
            return self._members[table] + sum(loads[table] for loads in self._loads.values())
        return self._loads[patch.module][name] + self._through_modules(patch)

    @cached_property
    def _loads(self) -> dict[str, Counter[str]]:
        """How often functions of each module read a global name."""
        return {module.name: global_loads(module) for module in self.tree.modules.values()}

    @cached_property
    def _members(self) -> Counter[str]:
        """How often functions read an attribute of each name."""
        return Counter(node.attr for nodes in self._attributes.values() for node in nodes)

    @cached_property
    def _attributes(self) -> dict[str, list[ast.Attribute]]:
        """Every attribute that functions of a module read."""
        return {
            module.name: [
                node
                for function in _outermost(module.tree)
                for node in ast.walk(function)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
            ]
            for module in self.tree.modules.values()
        }

    @cached_property
    def _module_names(self) -> dict[str, dict[str, str]]:
        """What each module calls the modules that it imports."""
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for one in self.tree.imports:
            if one.name is None:
                found[one.source][one.bound] = one.target
        return found

    @cached_property
    def _of_modules(self) -> Counter[tuple[str, str]]:
        """How often functions read a name of a module as an attribute of what they call the module."""
        found: Counter[tuple[str, str]] = Counter()
        for source, names in self._module_names.items():
            for node in self._attributes[source]:
                owner = names.get(ast.unparse(node.value))
                if owner is not None:
                    found[owner, node.attr] += 1
        return found

    def _through_modules(self, patch: Patch) -> int:
        return self._of_modules[patch.module, patch.name]


def global_loads(module: Module) -> Counter[str]:
    """Return how many places in functions of a module read each global name.

    What runs when the module is imported (defaults, decorators, bodies of classes) reads no patch.
    """

    def within(code: types.CodeType, in_function: bool) -> Iterator[tuple[str, object]]:
        if in_function:
            for step in dis.get_instructions(code):
                if step.opname == "LOAD_GLOBAL":
                    yield step.argval, step.positions  # a position counts once: `finally` is compiled twice
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                called = not constant.co_name.startswith("<") or constant.co_name == "<lambda>"
                is_function = called and bool(constant.co_flags & inspect.CO_NEWLOCALS)
                yield from within(constant, in_function or is_function)

    places = set(within(compile(module.text, str(module.path), "exec"), False))
    return Counter(name for name, _ in places)


def _outermost(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the functions that lie in no other function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.Lambda):
            yield child
        else:
            yield from _outermost(child)


class _File:
    """What one file of tests replaces."""

    def __init__(self, path: Path, tree: Tree) -> None:
        self.tree = tree
        self.bound: dict[str, tuple[str, str]] = {}  # name here -> (module, name in it or "")
        self.texts: dict[str, str] = {}
        self.loops: dict[str, list[ast.expr]] = {}
        self.nodes = list(ast.walk(ast.parse(path.read_text())))
        for node in self.nodes:
            self._bind(node)

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in self.tree.modules:
                    self.bound[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0],
                        "",
                    )
        elif isinstance(node, ast.ImportFrom) and node.module in self.tree.modules:
            for alias in node.names:
                self.bound[alias.asname or alias.name] = self._inside(str(node.module), alias.name)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._keep(target, node.value)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            if isinstance(node.iter, ast.Tuple | ast.List):
                self.loops.setdefault(node.target.id, []).extend(node.iter.elts)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".parametrize"):
            name, values = node.args[:2]
            if isinstance(name, ast.Constant) and isinstance(values, ast.Tuple | ast.List):
                self.loops.setdefault(str(name.value), []).extend(values.elts)

    def _keep(self, target: ast.expr, value: ast.expr) -> None:
        """Keep texts that the file names: ``PLACE = "federation.site"``, or several at once."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, its in zip(target.elts, value.elts, strict=False):
                self._keep(one, its)
        elif isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            self.texts[target.id] = str(value.value)

    def _inside(self, module: str, name: str) -> tuple[str, str]:
        """Return what a module's attribute is: a module of its own, or a name in the module."""
        full = f"{module}.{name}"
        return (full, "") if full in self.tree.modules and full not in self.tree.rebound else (module, name)

    def _place(self, node: ast.expr) -> tuple[str, str] | None:
        """Return (module, name in it or "") of an expression, None where it is nothing of the package."""
        if isinstance(node, ast.Name):
            return self.bound.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._place(node.value)
            return self._inside(owner[0], node.attr) if owner is not None and not owner[1] else None
        return None

    def patches(self) -> Iterator[Patch]:
        """Yield what the file replaces; pairs in tables count, as tables of mutants are handed on later."""
        for node in self.nodes:
            if isinstance(node, ast.Call):
                yield from self._of_call(node)
            elif isinstance(node, ast.Tuple | ast.List):
                yield from self._of_pairs(node.elts)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Attribute):
                        yield from self._of(self._place(target.value), target.attr)

    def _of_call(self, node: ast.Call) -> Iterator[Patch]:
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in READERS:
            return
        yield from self._of_pairs(node.args)
        if called == "Mutant":
            module, function = (self._text(one) for one in node.args[:2])
            yield Patch(f"privinf.{module}", function, "code")
        elif called in REPLACE and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and str(first.value).startswith("privinf."):
                yield from self._of_dotted(str(first.value))
            elif len(node.args) > 1:
                yield from self._of_loops(first, node.args[1])

    def _of_loops(self, owner: ast.expr, name: ast.expr) -> Iterator[Patch]:
        """Yield what is replaced where the owner or the name is a variable."""
        for one in self._values(owner):
            for text in self._values(name):
                if isinstance(text, ast.Constant):
                    yield from self._of(self._place(one), str(text.value))

    def _values(self, node: ast.expr) -> list[ast.expr]:
        """Return what a variable of a loop, or of a parametrized test, takes; else the expression itself."""
        return self.loops.get(node.id, [node]) if isinstance(node, ast.Name) else [node]

    def _of_pairs(self, nodes: list[ast.expr]) -> Iterator[Patch]:
        for owner, name in pairwise(nodes):
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield from self._of(self._place(owner), name.value)

    def _of_dotted(self, text: str) -> Iterator[Patch]:
        parts = text.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            module = ".".join(parts[:cut])
            if module in self.tree.modules:
                rest = parts[cut:]
                yield from self._of((module, rest[0] if len(rest) > 1 else ""), rest[-1])
                return

    def _of(self, place: tuple[str, str] | None, name: str) -> Iterator[Patch]:
        if place is None or (name.startswith("__") and name.endswith("__")):
            return
        module, owner = place
        if not owner:
            if name in bound_names(self.tree.modules[module]):
                yield Patch(module, name)
            return
        home = defining(self.tree, module, owner)
        if home is not None and _has_member(self.tree, home, owner, name):
            yield Patch(home, f"{owner}.{name}", "member")
        elif home is None and owner.isupper():
            yield Patch(module, f"{owner}[]", "item")

    def _text(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return str(node.value)
        return self.texts[ast.unparse(node)]


@cache
def bound_names(module: Module) -> set[str]:
    """Return the names that a module binds at its top, and those that it hands on by a stub of its names."""
    found = set()
    stub = module.path.with_suffix(".pyi")
    handed_on = ast.parse(stub.read_text()) if stub.exists() else ast.Module([], [])
    for node in [*ast.walk(module.tree), *ast.walk(handed_on)]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(one.asname or one.name).split(".")[0] for one in node.names}
    for node in module.tree.body:
        if isinstance(node, Function | ast.ClassDef):
            found.add(node.name)
        else:
            found |= {
                one.id
                for one in ast.walk(node)
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            }
    return found


@cache
def defining(tree: Tree, module: str, name: str) -> str | None:
    """Return the module that defines a class which another one may only hand on."""
    if any(isinstance(node, ast.ClassDef) and node.name == name for node in tree.modules[module].tree.body):
        return module
    for one in tree.imports:
        if one.source == module and one.bound == name and one.name is not None:
            return defining(tree, one.target, one.name)
    homes = [other.name for other in tree.modules.values() if _class(other, name)]
    return homes[0] if len(homes) == 1 else None


def _class(module: Module, name: str) -> ast.ClassDef | None:
    found = (node for node in module.tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return next(found, None)


def _has_member(tree: Tree, module: str, owner: str, name: str) -> bool:
    """Return whether a class, or a class that it is built on, has a member."""
    node = _class(tree.modules[module], owner)
    if node is None:
        return False
    named = {part.name for part in node.body if isinstance(part, Function)}
    for part in (part for part in node.body if not isinstance(part, Function)):
        named |= {
            one.id for one in ast.walk(part) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
        }
    bases = (ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
    above = ((defining(tree, module, base), base) for base in bases)
    return name in named or any(home and _has_member(tree, home, base, name) for home, base in above)


if __name__ == "__main__":
    print(*Patches().lines(), sep="\n")
