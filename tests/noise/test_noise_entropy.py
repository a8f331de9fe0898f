"""Secure noise reads the operating system, anew at every call."""

import os
import subprocess
import sys

import numpy as np

from privinf.noise import LatticeNoise, entropy


def test_words_are_those_of_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "urandom", lambda count: asked.append(count) or bytes(range(count)))
    monkeypatch.setattr(entropy, "os", os)
    assert entropy.SYSTEM.words(2).tobytes() == bytes(range(16))
    assert entropy.SYSTEM.word() == int.from_bytes(bytes(range(8)), "little")
    assert entropy.SYSTEM.key() == bytes(range(32))
    assert asked == [16, 8, 32]


def test_entropy_of_the_package_is_that_of_os():
    # this process reads a stream of its test's own (conftest.py): a fresh one is asked
    code = "import os; from privinf.noise import entropy; assert entropy.os is os"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_draws_differ_between_calls():
    first, second = (LatticeNoise().perturb(np.zeros(8), 1.0) for _ in range(2))
    assert (first != second).any()
