"""Noise that takes the operating system's entropy gets a stream of its own in each test and fixture.

The code that runs is the secure one, word by word; only the words are those of a generator seeded with
the names of the file and of the test, so that a Monte Carlo test of secure noise passes or fails for
everybody alike, and goes on to do so when its file moves to another folder (and, with the mark ``seed_name``,
when its file or the test gets another name: ``support.streams``).
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from _pytest.doctest import DoctestModule
from support import processors
from support.streams import name_of_fixture, name_of_test, stream

from privinf.noise import entropy

# Not looked through for doctests: this file's name stands in other folders too; flwr's import warns.
collect_ignore = ["conftest.py", "federation/local_grid.py"]

# Collection makes hundreds of thousands of objects that stay (`pytest_collection_finish`).
gc.disable()

# What each library runs with where a run is for an older processor (tests/support/processors.py).
OLDER = pytest.StashKey[list[str]]()

# Anchors of ledgers that the tests make lie in a folder of this run.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="privinf-anchors-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


def seed_entropy(name: str) -> None:
    """Let ``privinf.noise.entropy`` read a stream that depends on nothing but a name."""
    words = stream(name)
    entropy.os = SimpleNamespace(urandom=words.bytes)
    entropy.system_bytes = words.bytes


def pytest_configure(config: pytest.Config) -> None:
    """Let a run for an older processor end at once where a library goes on using this one's features."""
    level = os.environ.get(processors.VARIABLE)
    config.stash[OLDER] = processors.check(level) if level else []


def pytest_report_header(config: pytest.Config) -> list[str]:
    return config.stash[OLDER]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Iterator[None]:
    """Look for tests in files of tests, and for examples in docstrings only in the files that help them."""
    collectors = yield
    if not file_path.name.startswith("test_"):
        return collectors
    return [one for one in collectors if not isinstance(one, DoctestModule)]


def pytest_collection_finish() -> None:
    """Let the collector of garbage leave alone what collection made; until here it would find none."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> None:
    seed_entropy(name_of_fixture(fixturedef, request))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    seed_entropy(name_of_test(item))
