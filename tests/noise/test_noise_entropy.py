"""Secure noise reads ChaCha20 under keys of the operating system: no fork, thread or pickle repeats words."""

import importlib.util
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from support.forks import in_a_fork

from privinf.noise import LatticeNoise, entropy


@pytest.fixture
def fresh():
    """A second copy of the module, whose words are not those of conftest.py."""
    spec = importlib.util.spec_from_file_location("fresh_entropy", entropy.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def keys(fresh, monkeypatch):
    """The keys that were asked for: 0, 1, 2, ..."""
    drawn = []

    def urandom(count):
        drawn.append(len(drawn).to_bytes(count, "little"))
        return drawn[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    return drawn


def stream(key, count):
    return entropy.Keystream(key).words(count).tobytes()


def test_words_are_the_key_stream_of_keys_of_the_operating_system(fresh, keys):
    first, second, third = fresh.SYSTEM.words(2), fresh.SYSTEM.word(), fresh.SYSTEM.words(0)
    assert len(keys) == 1
    assert len(third) == 0
    assert first.tobytes() + second.to_bytes(8, "little") == stream(keys[0], 3)
    assert fresh.SYSTEM.key() == keys[1]


def test_every_mebibyte_has_a_key_of_its_own(fresh, keys):
    words = fresh.RESEED // 8
    assert fresh.RESEED == 2**20
    drawn = fresh.SYSTEM.words(10).tobytes() + fresh.SYSTEM.words(2 * words).tobytes()
    assert len(keys) == 3
    assert drawn == b"".join(stream(key, words) for key in keys)[: len(drawn)]
    fresh.SYSTEM.words(words - 10)
    assert len(keys) == 3
    fresh.SYSTEM.word()
    assert len(keys) == 4


def test_entropy_of_the_package_is_that_of_os():
    # this process reads a stream of its test's own (conftest.py): a fresh one is asked
    code = (
        "import os; from privinf.noise import entropy; asked = []; true = os.urandom; "
        "os.urandom = lambda count: asked.append(count) or true(count); "
        "assert entropy.os is os; entropy.SYSTEM.words(4); entropy.SYSTEM.word(); assert asked == [32]; "
        "entropy.SYSTEM.words(2**18); assert asked == [32] * 3"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_draws_differ_between_calls():
    first, second = (LatticeNoise().perturb(np.zeros(8), 1.0) for _ in range(2))
    assert (first != second).any()


def test_threads_have_keys_of_their_own(fresh, keys):
    drawn, start = [], threading.Barrier(4)

    def work():
        start.wait()
        drawn.append(np.concatenate([fresh.SYSTEM.words(1000) for _ in range(3)]).tobytes())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(drawn) == sorted(stream(key, 3000) for key in keys)
    assert len(set(keys)) == 4


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
class TestForks:
    def test_no_child_repeats_its_parent_or_another_child(self, fresh):
        def words():
            return fresh.SYSTEM.words(8).tobytes()

        words()
        children = [in_a_fork(words) for _ in range(3)]
        grandchild = in_a_fork(lambda: in_a_fork(words))
        assert len({words(), grandchild, *children}) == 5
        assert all(len(found) == 64 for found in (grandchild, *children))

    @pytest.mark.parametrize("guard", ["hook", "process", "none"])
    def test_each_guard_is_enough_and_without_them_words_repeat(self, fresh, guard, monkeypatch):
        parent, kept = os.getpid(), fresh._streams
        fresh.SYSTEM.words(1)

        def words():
            if guard != "hook":
                fresh._streams = kept  # as after a fork that Python was not told of
            if guard != "process":
                monkeypatch.setattr(os, "getpid", lambda: parent)  # as if the child had its parent's id
            return fresh.SYSTEM.words(8).tobytes()

        child = in_a_fork(words)
        assert (child == fresh.SYSTEM.words(8).tobytes()) is (guard == "none")


def test_no_pickle_holds_a_key(fresh, keys):
    source = LatticeNoise(fresh.SystemEntropy())
    entropy_bytes = fresh.SYSTEM.words(1).tobytes()
    for secret in (fresh._streams, fresh._streams.stream):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(secret)
    assert not hasattr(source._entropy, "__dict__")
    again = pickle.loads(pickle.dumps(entropy.SystemEntropy()))
    assert again.words(1).tobytes() != entropy_bytes
