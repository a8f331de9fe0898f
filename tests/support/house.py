"""The measures of the house: sizes, arrows between rooms, doubled names.

``python -m support.house`` prints them; with part of a measure's name it lists what the measure finds.

Everything is read from the text of ``privinf/`` (and of ``studies/`` where it is there), but for the last
three rows, which run a fit in a process of its own (`support.walks`).
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from support.limits import (
    BY_STRING,
    EVERYWHERE,
    FLOOR,
    FREE,
    LIMITS,
    OLD_ROOMS,
    SINGLE,
    TOWERS,
)
from support.tree import Function, Module, Tree, circles, functions, house_tree, is_private, room_of
from support.walks import closure, files

LONG = 350
LONG_FUNCTION = 60
LONG_CLASS = 300
POSITIONAL = 6
FIELDS = 4
MANY = 12
UNTYPED = 13
CONSTRUCTORS = ("__init__", "__new__", "__call__")
DOTTED = re.compile(r"(privinf|studies)(\.\w+)+(:\w+)?")
Found = list[str]  # what breaks a rule, or what is counted, one line each


# ---- sizes


def modules(tree: Tree) -> Found:
    """Every file of the package, ``__init__`` included."""
    return [module.name for module in tree.of("privinf")]


def lines(tree: Tree) -> int:
    """Lines of the package, blank ones and docstrings included."""
    return sum(module.lines for module in tree.of("privinf"))


def long_modules(tree: Tree) -> Found:
    return [f"{module.name} {module.lines}" for module in tree.of("privinf") if module.lines > LONG]


def largest_folder(tree: Tree) -> Found:
    """The modules that lie in the fullest folder itself, ``__init__`` included."""
    folders = defaultdict(list)
    for module in tree.of("privinf"):
        folders[module.path.parent].append(module.name)
    return max(folders.values(), key=len)


def long_functions(tree: Tree) -> Found:
    """Functions and methods of more than 60 lines without docstrings, functions inside them included."""
    return _long(tree, Function, LONG_FUNCTION)


def long_classes(tree: Tree) -> Found:
    """Classes of more than 300 lines without docstrings: divide them by the concepts that they mix."""
    return _long(tree, ast.ClassDef, LONG_CLASS)


def _long(tree: Tree, kind: Any, most: int) -> Found:
    sizes = {
        f"{module.name}.{node.name}": _lines_without_docstrings(node)
        for module in tree.of("privinf")
        for node in ast.walk(module.tree)
        if isinstance(node, kind)
    }
    return [f"{name} {size}" for name, size in sizes.items() if size > most]


def _lines_without_docstrings(node: ast.ClassDef | Function) -> int:
    docstrings = [
        inner.body[0]
        for inner in ast.walk(node)
        if isinstance(inner, ast.ClassDef | Function) and ast.get_docstring(inner) is not None
    ]
    return _line_count(node) - sum(map(_line_count, docstrings))


def _line_count(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


# ---- layout


def kept_from_the_formatter(tree: Tree) -> Found:
    """Lines with a mark that keeps the formatter off: layout is the formatter's alone."""
    return [
        f"{module.name} {number}"
        for module in tree.modules.values()
        for number, line in enumerate(module.path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"#\s*fmt:", line)
    ]


def positional_calls(tree: Tree) -> Found:
    """Calls of a class with six and more positional arguments: a reader cannot know which is which."""
    return [
        f"{module.name} {node.lineno}: {ast.unparse(node.func)}"
        for module in tree.modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and len(node.args) >= POSITIONAL
        and (_called(node).lstrip("_")[:1].isupper() or _called(node) == "cls")
    ]


def positional_dataclasses(tree: Tree) -> Found:
    """Dataclasses of more than four fields of their own that take them by position."""
    return [
        f"{module.name} {node.name}"
        for module in tree.modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        and any(re.match(r"dataclass\b(?!.*kw_only=True)", ast.unparse(one)) for one in node.decorator_list)
        and _positional_fields(node) > FIELDS
    ]


def _positional_fields(node: ast.ClassDef) -> int:
    """Return how many fields a dataclass has before ``_: KW_ONLY``."""
    count = 0
    for field in node.body:
        if isinstance(field, ast.AnnAssign):
            kind = ast.unparse(field.annotation)
            if kind.endswith("KW_ONLY"):
                break
            count += not kind.startswith("ClassVar")
    return count


def constants_sharing_a_line(tree: Tree) -> Found:
    """Lines at the top of a module that set several constants."""
    return [
        f"{module.name} {node.lineno}"
        for module in tree.modules.values()
        for node in module.tree.body
        if _is_parallel(node)
    ]


def parallel_assignments(tree: Tree) -> Found:
    """Statements ``a, b = x, y``, wherever they stand: for values that belong together (``low, high``)."""
    return [
        f"{module.name} {node.lineno}"
        for module in tree.modules.values()
        for node in ast.walk(module.tree)
        if _is_parallel(node)
    ]


def _is_parallel(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and any(isinstance(target, ast.Tuple) for target in node.targets)
    )


# ---- arrows


def import_circles(tree: Tree) -> Found:
    """Strongly connected parts of the graph of all imports: at the top, in functions, for types alone.

    A name that a lazy facade offers counts as an import of the module where the facade's stub finds it.
    """
    arrows: dict[str, set[str]] = defaultdict(set)
    for one in tree.imports:
        arrows[one.source] |= {one.target, tree.behind_facade(one)}
    return [" ".join(part) for part in circles(arrows)]


def _crossing(tree: Tree, breaks: Callable[[str, str], bool]) -> Found:
    """Return the arrows between rooms that break a rule; those of free rooms break none."""
    found = {
        f"{one.source} -> {one.target}"
        for one in tree.imports
        if one.source.startswith("privinf")
        and one.target.startswith("privinf")
        and one.source not in FREE
        and room_of(one.source) not in FREE
        and room_of(one.source) != room_of(one.target)
        and breaks(room_of(one.source), room_of(one.target))
    }
    return sorted(found)


def towers_to_towers(tree: Tree) -> Found:
    """Towers that import one another, or a facade over the towers."""
    return _crossing(tree, lambda source, target: source in TOWERS and target in TOWERS | {"models"})


def floor_to_towers(tree: Tree) -> Found:
    """Rooms of the floor that import a tower (as which `models` and `engines` count while they stand)."""
    return _crossing(tree, lambda source, target: source in FLOOR and target in TOWERS | OLD_ROOMS)


def floor_upwards(tree: Tree) -> Found:
    """Rooms of the floor that import a room they may not: another one, the package itself."""

    def breaks(source: str, target: str) -> bool:
        towers = target in TOWERS | OLD_ROOMS
        return source in FLOOR and not towers and target not in FLOOR[source] | EVERYWHERE

    return _crossing(tree, breaks)


def unnamed_rooms(tree: Tree) -> Found:
    """Rooms that no rule knows."""
    rooms = {module.room for module in tree.of("privinf")}
    return sorted(rooms - FLOOR.keys() - TOWERS - FREE - EVERYWHERE)


def package_to_studies(tree: Tree) -> Found:
    return [
        f"{one.source} -> {one.target}"
        for one in tree.imports
        if one.source.startswith("privinf") and one.target.startswith("studies")
    ]


def imports_by_string(tree: Tree) -> Found:
    """Modules that are named in strings of code, or computed, elsewhere than in `BY_STRING`.

    Lazy facades are free: packages whose ``__init__`` has a ``__getattr__``.
    """
    return [
        f"{module.name}: {text}"
        for module in tree.modules.values()
        if not is_lazy_facade(module) and module.name not in BY_STRING
        for text in strings_that_import(module)
    ]


def is_lazy_facade(module: Module) -> bool:
    return module.is_package and any(
        isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in module.tree.body
    )


def strings_that_import(module: Module) -> Iterator[str]:
    """Yield strings such as ``privinf.room.module:attribute``, and computed names that are imported."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            yield node.value
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__", "find_spec"):
            start = _start(node.args[0])
            if start is None or DOTTED.match(f"{start}x"):
                yield ast.unparse(node)


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def _start(node: ast.expr) -> str | None:
    """Return the fixed text with which an f-string begins, "" of a plain text, None where there is none."""
    if isinstance(node, ast.Constant):
        return ""
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else None
    return str(first.value) if isinstance(first, ast.Constant) else None


def private_imports(tree: Tree) -> Found:
    """``_names`` that one module takes from another, by ``from`` or as an attribute of the module.

    A module whose own name is private may be imported in the folder where it lies, and below it.
    """
    return [*_private_names(tree), *_private_attributes(tree)]


def _private_names(tree: Tree) -> Iterator[str]:
    for one in tree.imports:
        parts = one.target.split(".")
        private = [number for number, part in enumerate(parts) if is_private(part)]
        home = ".".join(parts[: private[0]]) if private else ""
        if (one.name and is_private(one.name)) or (private and not f"{one.source}.".startswith(f"{home}.")):
            yield f"{one.source} <- {one.target}{'.' + one.name if one.name else ''}"


def _private_attributes(tree: Tree) -> Iterator[str]:
    bound: dict[str, dict[str, str]] = defaultdict(dict)
    for one in tree.imports:
        if one.name is None:
            bound[one.source][one.bound] = one.target
    for source, names in bound.items():
        for node in ast.walk(tree.modules[source].tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                target = names.get(ast.unparse(node.value))
                if target is not None:
                    yield f"{source} <- {target}.{node.attr}"


# ---- parameters


def public_functions(tree: Tree) -> Iterator[tuple[str, list[ast.arg], ast.arguments]]:
    """Yield (name, parameters without self or cls, all of them) of public functions and methods.

    Public is what has no private name on its way. ``__init__``, ``__new__`` and ``__call__`` are public;
    other methods with such names are left out, as the language gives them their parameters, and so is the
    constructor that a dataclass makes, as nobody writes it.
    """
    for module in tree.of("privinf"):
        for name, node, method in functions(module.tree):
            own = name.split(".")
            protocol = own[-1].startswith("__") and own[-1] not in CONSTRUCTORS
            if module.is_private or any(map(is_private, own)) or protocol or _is_overload(node):
                continue
            given = node.args
            named = [*given.posonlyargs, *given.args]
            if method and not _is_static(node):
                named = named[1:]
            yield f"{module.name}.{name}", [*named, *given.kwonlyargs], given


def wide_functions(tree: Tree) -> Found:
    """Public functions and methods of more than 12 parameters.

    ``**words: Unpack[...]`` counts as one, as does ``*values``; ``**words`` of no type, Any or object, as 13;
    of another type (many names, one meaning), as one.
    """
    widths = {name: _width(named, given, tree) for name, named, given in public_functions(tree)}
    return [f"{name} {width}" for name, width in sorted(widths.items()) if width > MANY]


def _width(named: list[ast.arg], given: ast.arguments, tree: Tree) -> int:
    words = given.kwarg
    last = 0 if words is None else UNTYPED if _is_any(words.annotation, tree, {"object"}) else 1
    return len(named) + (given.vararg is not None) + last


def any_parameters(tree: Tree) -> Found:
    """Parameters of public functions and methods whose type is Any, an alias, or a union with it.

    ``*values: Any`` and ``**words: Any`` count as one each; ``Mapping[str, Any]`` does not count.
    """
    return [
        f"{name}({one.arg})"
        for name, named, given in public_functions(tree)
        for one in [*named, *(more for more in (given.vararg, given.kwarg) if more is not None)]
        if one.annotation is not None and _is_any(one.annotation, tree)
    ]


def _is_any(annotation: ast.expr | None, tree: Tree, also: Iterable[str] = ()) -> bool:
    if annotation is None:
        return True
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        return _is_any(annotation.left, tree, also) or _is_any(annotation.right, tree, also)
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in ("Optional", "Annotated"):
        first = annotation.slice
        return _is_any(first.elts[0] if isinstance(first, ast.Tuple) else first, tree, also)
    name = ast.unparse(annotation).rpartition(".")[2]
    return name in _aliases_of_any(tree) or name in also


@cache
def _aliases_of_any(tree: Tree) -> set[str]:
    """Return Any and every name that a module of the package sets to it, or to another such name."""
    values = {
        name: ast.unparse(value).rpartition(".")[2]
        for module in tree.of("privinf")
        for name, value in _assignments(module)
        if isinstance(value, ast.Name | ast.Attribute)
    }
    found = {"Any"}
    for _ in values:
        found |= {name for name, value in values.items() if value in found}
    return found


def _is_overload(node: Function) -> bool:
    return any(ast.unparse(one).endswith("overload") for one in node.decorator_list)


def _is_static(node: Function) -> bool:
    return any(ast.unparse(one) == "staticmethod" for one in node.decorator_list)


# ---- names


def twice_named_classes(tree: Tree) -> Found:
    """Public classes of one name in two modules."""
    return _in_several(
        (node.name, module.name, "")
        for module in tree.of("privinf")
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not is_private(node.name)
    )


def twice_named_literals(tree: Tree) -> Found:
    """Names that two modules set to a Literal."""
    return _in_several(
        (name, module.name, "")
        for module in tree.of("privinf")
        for name, value in _assignments(module)
        if _literal(value)
    )


def twice_written_literals(tree: Tree) -> Found:
    """Literals of two values or more that are written out in two places, in whatever order."""
    places: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for module in tree.of("privinf"):
        for node in ast.walk(module.tree):
            values = _literal(node)
            if len(values) > 1:
                places[tuple(sorted(values))].append(module.name)
    return [
        f"{', '.join(values)}: {' '.join(sorted(where))}"
        for values, where in places.items()
        if len(where) > 1
    ]


def copied_constants(tree: Tree) -> Found:
    """Public constants to which two modules give the same name and the same value."""
    return _in_several((f"{name} = {value}", module, "") for name, value, module in _constants(tree))


def ambiguous_constants(tree: Tree) -> Found:
    """Public constants of one name and several values."""
    return _in_several((name, module, value) for name, value, module in _constants(tree))


def single_constants(tree: Tree) -> Found:
    """Definitions too many of constants that must have one."""
    names = [name for name, _, _ in _constants(tree)]
    return [name for name in SINGLE for _ in range(names.count(name) - 1)]


def _constants(tree: Tree) -> Iterator[tuple[str, str, str]]:
    """Yield (name, value, module); not of the data sets, whose texts have the same names by design."""
    for module in tree.of("privinf"):
        for name, value in _assignments(module) if module.room != "datasets" else ():
            variable = isinstance(value, ast.Call) and ast.unparse(value.func) in ("TypeVar", "ParamSpec")
            if re.fullmatch(r"[A-Z][A-Z0-9_]*", name) and not variable:
                yield name, ast.unparse(value), module.name


def _in_several(found: Iterable[tuple[str, str, str]]) -> Found:
    """Return names in two modules or more; where values are given, only those whose values differ."""
    places: dict[str, dict[str, str]] = defaultdict(dict)
    for name, module, value in found:
        places[name][module] = value
    return [
        f"{name}: {' '.join(sorted(where))}"
        for name, where in sorted(places.items())
        if len(where) > 1 and (not any(where.values()) or len(set(where.values())) > 1)
    ]


def _assignments(module: Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, value) of what a module sets at its top."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _literal(node: ast.AST) -> list[str]:
    """Return the values of ``Literal[...]``, none for anything else."""
    if not isinstance(node, ast.Subscript) or ast.unparse(node.value).rpartition(".")[2] != "Literal":
        return []
    return [
        ast.unparse(one) for one in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])
    ]


# ---- the table


MEASURES: dict[str, Callable[[Tree], Found | int]] = {
    "modules": modules,
    "lines": lines,
    "modules above 350 lines": long_modules,
    "modules in the largest folder": largest_folder,
    "functions above 60 lines without docstrings": long_functions,
    "classes above 300 lines without docstrings": long_classes,
    "lines kept from the formatter": kept_from_the_formatter,
    "calls of a class with six and more positional arguments": positional_calls,
    "dataclasses of more than four positional fields": positional_dataclasses,
    "constants that share a line": constants_sharing_a_line,
    "parallel assignments": parallel_assignments,
    "import circles": import_circles,
    "towers importing towers": towers_to_towers,
    "floor importing towers": floor_to_towers,
    "floor importing rooms above it": floor_upwards,
    "rooms without a rule": unnamed_rooms,
    "privinf importing studies": package_to_studies,
    "imports by string": imports_by_string,
    "imports of _private names": private_imports,
    "public functions of more than 12 parameters": wide_functions,
    "Any parameters of public functions": any_parameters,
    "classes of one name in two modules": twice_named_classes,
    "Literals of one name in two modules": twice_named_literals,
    "Literals of the same values written twice": twice_written_literals,
    "constants written twice": copied_constants,
    "definitions too many of ROOT2, CONSTANT, FALSE_SELECTION_RATE": single_constants,
    "constants of one name and several values": ambiguous_constants,
    "modules that a central MomentOLS loads": lambda tree: closure("MomentOLS"),
    "files that a central MomentOLS visits": lambda tree: files("MomentOLS"),
    "files that a DebiasedLasso visits": lambda tree: files("DebiasedLasso"),
}


def size(found: Found | int) -> int:
    return found if isinstance(found, int) else len(found)


def table(tree: Tree) -> str:
    """Return every measure: what it is today, and its limit where there is one."""
    rows = [("measure", "today", "limit")]
    rows += [
        (name, str(size(measure(tree))), str(LIMITS.get(name, ""))) for name, measure in MEASURES.items()
    ]
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{row[0]:{width}} {row[1]:>7} {row[2]:>7}".rstrip() for row in rows)


def main(names: list[str]) -> None:
    """Print the table, or what a measure finds, for every measure whose name holds one of `names`."""
    tree = house_tree()
    if not names:
        print(table(tree))
    for measure in (one for one in MEASURES if any(name in one for name in names)):
        found = MEASURES[measure](tree)
        print(f"{measure}: {size(found)}", *([] if isinstance(found, int) else found), sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
