"""Malformed replies, reduced (all: `benchmarks/hostile_frames.py`): always an error that names the site."""

import pytest
from reply_fuzzer import BAD, fuzz

from privinf.federation import messages, rounds, trusted
from privinf.federation.messages import Reply


@pytest.mark.audit
def test_whatever_a_site_sends_the_error_names_it():
    found = fuzz(1200, 20261124)
    assert not found, (found.foreign[:3], found.used[:3], found.unnamed[:3])
    assert {"AlignmentError", "StorageError", "ArgumentError"} <= set(found.refused)
    assert sum(found.refused.values()) == found.asked == 1200


# ---- mutants: as it was


def nothing_checked_of_a_reply(monkeypatch):
    """A reply is whatever JSON gives."""
    monkeypatch.setattr(Reply, "__post_init__", lambda reply: None)


def descriptions_as_they_come(monkeypatch):
    """A description is read without a look at its types."""
    monkeypatch.setattr(messages, "_is_description", lambda facts: True)


def designs_as_they_come(monkeypatch):
    """The first site's design is the design."""
    monkeypatch.setattr(
        rounds, "_described", lambda reply, asked: rounds.Design.from_dict(reply.facts["design"])
    )


def sums_of_any_size(monkeypatch):
    """A site may send any finite sum."""
    monkeypatch.setattr(trusted, "TOLERANCE", 1e9)


@pytest.mark.audit
@pytest.mark.parametrize(
    "mutant",
    [nothing_checked_of_a_reply, descriptions_as_they_come, designs_as_they_come, sums_of_any_size],
)
def test_the_fuzzer_sees_what_is_not_checked(monkeypatch, mutant):
    mutant(monkeypatch)
    assert fuzz(400, 3)


def test_the_bad_site_is_one_of_several():
    assert BAD == "south"
