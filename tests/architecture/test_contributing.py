"""What CONTRIBUTING.md names is there: rooms, and the functions of its traces."""

import re

from support.limits import EVERYWHERE, FLOOR, FREE, TOWERS
from support.tree import ROOT, functions, house_tree

TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def defined(path):
    """Return the functions, methods and classes of a module."""
    module = next(one for one in house_tree().modules.values() if one.path == ROOT / "privinf" / path)
    named = {name for name, _, _ in functions(module.tree)}
    return named | {name.partition(".")[0] for name in named}


def test_functions_of_the_traces_are_where_it_says():
    traced = re.findall(r"`([\w/]+\.py):([\w.]+)`", TEXT)
    assert len(traced) > 30
    assert [(path, name) for path, name in traced if name not in defined(path)] == []


def test_every_room_is_introduced():
    introduced = set(re.findall(r"\w+", TEXT.partition("## Traces")[0]))
    assert (FLOOR.keys() | TOWERS | EVERYWHERE | FREE) - introduced <= UNSAID


# Single modules that have no entry point of their own.
UNSAID = {"", "__main__", "privinf.accounting.planning", "release_kinds"}
