"""A test draws noise by its name, and one that has been renamed by the name that it had."""

from __future__ import annotations

import pytest
from support.streams import stream

from privinf.noise import entropy

HERE = "test_seed_names.py"
WORDS = 32  # bytes that are compared: no two streams agree in them


def drawn_as(name):
    """Return whether the noise of this moment is that of a test, or of a fixture, of a name."""
    return entropy.system_bytes(WORDS) == stream(name).bytes(WORDS)


@pytest.fixture
def of_this_test():
    return entropy.system_bytes(WORDS)


@pytest.fixture(scope="module")
def of_the_module():
    return entropy.system_bytes(WORDS)


def test_a_test_draws_by_its_own_name():
    assert drawn_as(f"{HERE}::test_a_test_draws_by_its_own_name")


@pytest.mark.seed_name("tests/anywhere/test_before.py::test_by_another_name")
def test_a_renamed_test_draws_as_before(of_this_test, of_the_module):
    assert drawn_as("test_before.py::test_by_another_name")
    assert of_this_test == stream("test_before.py::of_this_test::0").bytes(WORDS)
    assert of_the_module == stream(f"{HERE}::of_the_module::0").bytes(WORDS)


@pytest.mark.parametrize("word", ["a", "b"])
@pytest.mark.seed_name("tests/test_before.py::test_by_another_name")
def test_parameters_are_added_to_the_old_name(word):
    assert drawn_as(f"test_before.py::test_by_another_name[{word}]")


@pytest.mark.parametrize(
    "word", ["a", pytest.param("b", marks=pytest.mark.seed_name("tests/test_before.py::test_by_name[c-d]"))]
)
def test_parameters_of_the_old_name_stay(word):
    own = f"{HERE}::test_parameters_of_the_old_name_stay[a]"
    assert drawn_as(own if word == "a" else "test_before.py::test_by_name[c-d]")


@pytest.mark.seed_name("tests/test_before.py")
class TestOfAFileOfAnotherName:
    def test_it_draws_as_in_that_file(self, of_this_test):
        assert drawn_as("test_before.py::TestOfAFileOfAnotherName::test_it_draws_as_in_that_file")
        assert of_this_test == stream("test_before.py::of_this_test::0").bytes(WORDS)
