"""Noise that takes the operating system's entropy gets a stream of its own in each test and fixture.

The code that runs is the secure one, word by word; only the words are those of a generator seeded with
the names of the file and of the test, so that a Monte Carlo test of secure noise passes or fails for
everybody alike, and goes on to do so when its file moves to another folder.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import os
import shutil
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest
from support import processors

from privinf.noise import entropy

# Not looked through for doctests: this file's name stands in other folders too; flwr's import warns.
collect_ignore = ["conftest.py", "federation/local_grid.py"]

# What each library runs with where a run is for an older processor (tests/support/processors.py).
OLDER = pytest.StashKey[list[str]]()

# Anchors of ledgers that the tests make lie in a folder of this run.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="privinf-anchors-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


def seed_entropy(name: str) -> None:
    """Let ``privinf.noise.entropy`` read a stream that depends on nothing but a name."""
    words = np.random.default_rng(np.frombuffer(hashlib.sha256(name.encode()).digest(), dtype=np.uint32))
    entropy.os = SimpleNamespace(urandom=words.bytes)
    entropy.system_bytes = words.bytes


def without_folder(nodeid: str) -> str:
    """Return a test's name with that of its file, but not with the folders that the file lies in."""
    path, *rest = nodeid.split("::")
    return "::".join([path.rpartition("/")[2], *rest])


def pytest_configure(config: pytest.Config) -> None:
    """Let a run for an older processor end at once where a library goes on using this one's features."""
    level = os.environ.get(processors.VARIABLE)
    config.stash[OLDER] = processors.check(level) if level else []


def pytest_report_header(config: pytest.Config) -> list[str]:
    return config.stash[OLDER]


def pytest_collection_finish() -> None:
    """Let the collector leave alone what collection made."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> None:
    seed_entropy(f"{without_folder(fixturedef.baseid)}::{fixturedef.argname}::{request.param_index}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    seed_entropy(without_folder(item.nodeid))
