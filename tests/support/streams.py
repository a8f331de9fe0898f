"""The stream of noise that a test or a fixture draws: it depends on the names of the file and of the test.

A test that moves or gets another name keeps its stream by the mark
``seed_name("tests/old_file.py::old_name")``: the test's parameters are added to the old name, unless it
has some of its own (``old_name[x-y]``). With a file alone, ``seed_name("tests/old_file.py")``, the tests and
fixtures of a module that is named anew keep their own names.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest


def stream(name: str) -> np.random.Generator:
    """Return a generator whose draws depend on a name and on nothing else."""
    return np.random.default_rng(np.frombuffer(hashlib.sha256(name.encode()).digest(), dtype=np.uint32))


def without_folder(nodeid: str) -> str:
    """Return a test's name with that of its file, but not with the folders that the file lies in."""
    path, *rest = nodeid.split("::")
    return "::".join([path.rpartition("/")[2], *rest])


def former_name(node: pytest.Item | pytest.Collector) -> str | None:
    """Return what the mark ``seed_name`` nearest to a test or a module says."""
    mark = node.get_closest_marker("seed_name")
    return None if mark is None else mark.args[0]


def name_of_test(item: pytest.Item) -> str:
    """Return the name that seeds a test: its own, or the one that it had."""
    former = former_name(item)
    if former is None:
        return without_folder(item.nodeid)
    if "::" not in former:
        former = "::".join([former, *item.nodeid.split("::")[1:]])
    elif hasattr(item, "callspec") and "[" not in former:
        former = f"{former}[{item.callspec.id}]"
    return without_folder(former)


def name_of_fixture(fixture: pytest.FixtureDef, request: pytest.FixtureRequest) -> str:
    """Return the name that seeds a fixture: its file, which may have been another, its name and a number."""
    file, former = fixture.baseid, former_name(request.node)
    if former is not None and file == request.node.nodeid.split("::")[0]:
        file = former.split("::")[0]
    return f"{without_folder(file)}::{fixture.argname}::{request.param_index}"
