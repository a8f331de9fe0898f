"""Every public callable shows its options, describes them in full, and says what it returns."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import privinf

# Rooms whose `__all__` is public here; of noise sources and intervals users call no methods.
ROOMS = (
    "privinf",
    "privinf.accounting",
    "privinf.bounds",
    "privinf.datasets",
    "privinf.federation",
    "privinf.mechanisms",
    "privinf.planning",
    "privinf.plotting",
    "privinf.stats",
    "privinf.survival",
)
# Rooms whose names docstrings may have as types, besides these.
NAMED_IN = (
    "privinf.errors",
    "privinf.models",
    "privinf.noise",
    "privinf.results",
    "privinf.schema",
    "privinf.typing",
)
NOTHING = {"None", "Self", "NoReturn"}  # what needs no Returns section
# Callables with `**options`, and why these cannot be written out.
OPEN_OPTIONS = {
    "Release.regress": "every kind of release has the options of another model",
    "Release.classify": "options of a model in another folder, which releases do not import",
    "datasets.load": "every data set has the options of its own loader",
    "federation.Query.digest_with": "any fields of a query, as for `dataclasses.replace`",
}
# Protocols: nobody calls them to make an object.
PROTOCOLS = {"federation.Federation", "mechanisms.RowBlocks"}


def public_objects():
    """Return every public class and function by the shortest public name."""
    objects = {}
    for room in ROOMS:
        module = import_module(room)
        for name in module.__all__:
            one = getattr(module, name)
            if (inspect.isclass(one) or inspect.isfunction(one)) and one not in objects.values():
                objects[f"{room}.{name}".removeprefix("privinf.")] = one
    return objects


def own_members(owner):
    """Return the public methods of a class that this package defines, as functions, by name."""
    members = {}
    for kind in reversed(owner.__mro__):
        if kind.__module__.split(".")[0] != "privinf":
            continue
        for name, member in vars(kind).items():
            if isinstance(member, classmethod | staticmethod):
                member = member.__func__
            members.pop(name, None)
            if inspect.isfunction(member) and not name.startswith("_"):
                members[name] = member
    return members


def public_callables():
    """Return public functions, and public methods of public classes, by name."""
    found = {}
    for name, one in public_objects().items():
        members = {name: one}
        if inspect.isclass(one):
            members = {f"{name}.{member}": function for member, function in own_members(one).items()}
        found |= {name: function for name, function in members.items() if function not in found.values()}
    return found


CALLABLES = public_callables()
CLASSES = {name: one for name, one in public_objects().items() if inspect.isclass(one)}


def sections(one):
    """Return the lines of each section of a numpydoc docstring."""
    lines = ((one.__doc__ and inspect.cleandoc(one.__doc__)) or "").splitlines()
    found = {}
    current = found.setdefault("", [])
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line.strip() and re.fullmatch(r"-{3,}", below):
            current = found.setdefault(line.strip(), [])
        elif not re.fullmatch(r"-{3,}", line):
            current.append(line)
    return found


def described(one, *titles):
    """Return the text of every entry of some sections, by name."""
    entries = {}
    for title in titles:
        names = []
        for line in sections(one).get(title, ()):
            if line and not line.startswith(" "):
                names = [name.strip().lstrip("*") for name in line.partition(" : ")[0].split(", ")]
                entries |= dict.fromkeys(names, "")
            elif line:
                entries |= {name: f"{entries[name]} {line.strip()}".strip() for name in names}
    return entries


def types_of(one):
    """Return the words of the types of parameters and of what is returned."""
    shown = sections(one)
    lines = [
        line.partition(" : ")[2]
        for title in ("Parameters", "Attributes")
        for line in shown.get(title, ())
        if not line.startswith(" ")
    ]
    lines += [line for line in shown.get("Returns", ()) if not line.startswith(" ")]
    return set(re.findall(r"\w+", " ".join(lines)))


def parameters(one):
    return {
        name: parameter
        for name, parameter in inspect.signature(one).parameters.items()
        if name not in ("self", "cls")
    }


def internal_names():
    """Return the names of the package's classes that no public room has."""
    classes = {
        node.name
        for path in Path(privinf.__file__).parent.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    rooms = map(import_module, (*ROOMS, *NAMED_IN))
    public = {name for room in rooms for name in getattr(room, "__all__", vars(room))}
    return classes - public


INTERNAL = internal_names()


def faults_of(one, name=""):
    """Return what is wrong with the signature and the docstring of a function."""
    shown = parameters(one)
    texts = described(one, "Parameters")
    faults = common_faults(one, shown, name)
    faults += [f"{option} is not described" for option in shown.keys() - texts.keys()]
    faults += [f"{option} is not in the signature" for option in texts.keys() - shown.keys()]
    faults += [f"{option} has no text" for option, text in texts.items() if not text]
    returned = str(inspect.signature(one).return_annotation)
    if returned not in NOTHING and not sections(one).keys() & {"Returns", "Yields"}:
        faults.append("there is no Returns section")
    return faults


def faults_of_class(kind, name=""):
    """Return what is wrong with the arguments of a class; a subclass may leave texts to its bases."""
    shown = parameters(kind)
    bases = [base for base in kind.__mro__ if base.__module__.split(".")[0] != "builtins"]
    texts = {}
    for base in reversed(bases):
        texts |= described(base, "Parameters", "Attributes")
    # classes that share one signature describe it once, in their constructor, which help() shows for each
    own = described(kind, "Parameters")
    own |= described(kind.__init__, "Parameters") if kind.__init__.__doc__ else {}
    texts |= own
    faults = common_faults(kind, shown, name)
    faults += [f"{option} is not described" for option in shown.keys() - texts.keys()]
    faults += [f"{option} is not in the signature" for option in own.keys() - shown.keys()]
    return faults + [f"{option} has no text" for option, text in own.items() if not text]


def common_faults(one, shown, name):
    faults = [
        f"**{option} hides options"
        for option, parameter in shown.items()
        if parameter.kind is parameter.VAR_KEYWORD and name not in OPEN_OPTIONS
    ]
    if re.search(r"\bAs for\b|\bas for (`|the class)", one.__doc__ or ""):
        faults.append("the reader is sent on by 'as for'")
    return faults + [f"{word} is internal" for word in sorted(types_of(one) & INTERNAL)]


def wrong(faults_in, members):
    """Return the faults of all members by name."""
    faults = {name: faults_in(one, name) for name, one in members.items()}
    return {name: texts for name, texts in faults.items() if texts}


def test_every_public_function_and_method_is_declared_and_described_in_full():
    assert wrong(faults_of, CALLABLES) == {}


def test_every_public_class_is_declared_and_described_in_full():
    classes = {name: one for name, one in CLASSES.items() if name not in PROTOCOLS}
    assert wrong(faults_of_class, classes) == {}


def test_open_options_are_those_of_the_list():
    hidden = {name for name, one in CALLABLES.items() if faults_of(one) != faults_of(one, name)}
    assert hidden == OPEN_OPTIONS.keys()


def test_what_is_walked():
    assert len(CALLABLES) > 250
    assert len(CLASSES) > 70
    assert {"stats.mean", "Study.n_for", "federation.TrustedServer.planned", "MixingPlan.new"} <= set(
        CALLABLES
    )
    assert "FitOptions" in INTERNAL
    assert "Schema" not in INTERNAL


# ---- what the check must see


def sound(a, *, b=1):
    """Return the sum.

    Parameters
    ----------
    a : float
        First term.
    b : float
        Second term.

    Returns
    -------
    float
        Sum.
    """


def hiding(a, **b):
    """Return the sum."""


hiding.__doc__ = sound.__doc__


def with_text(old, new):
    def changed(a, *, b=1): ...

    changed.__doc__ = sound.__doc__.replace(old, new)
    assert changed.__doc__ != sound.__doc__
    return changed


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (hiding, "**b hides options"),
        (with_text("b : float\n        Second term.\n", ""), "b is not described"),
        (with_text("b : float", "b, c : float"), "c is not in the signature"),
        (with_text("Second term.", "As for `sum`."), "the reader is sent on by 'as for'"),
        (with_text("        Second term.\n", ""), "b has no text"),
        (with_text("Returns\n    -------\n", ""), "there is no Returns section"),
        (with_text("b : float", "b : FitOptions"), "FitOptions is internal"),
    ],
)
def test_faults_are_found(broken, fault):
    assert faults_of(sound) == []
    assert fault in faults_of(broken)


def test_faults_of_classes_are_found():
    class Base:
        """A base.

        Parameters
        ----------
        a : float
            First term.
        """

        def __init__(self, a): ...

    class Wider(Base):
        """More.

        Parameters
        ----------
        c : float
        """

        def __init__(self, a, b, **c): ...

    assert faults_of_class(Base) == []
    assert faults_of_class(Wider) == ["**c hides options", "b is not described", "c has no text"]
