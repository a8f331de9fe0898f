"""Audit of the one sign that leaves a machine, on its worst pair, with mutants that must fail.

A release by many machines with the same rows is as many independent draws of one machine's loss. In the pair
all rows of the machine differ.
"""

import numpy as np
import pytest

from privinf.mechanisms import RandomizedResponse
from privinf.mechanisms.local import signs as sign_channel
from privinf.mechanisms.local.signs import SignChannel
from studies.audit import audit_mechanism

DRAWS = 100_000
EPSILON = 1.2
PAIR = (np.array([[-1.0, -2.0], [-3.0, -0.5]]), np.array([[2.0, 5.0], [1.0, 0.1]]))
FAR = tuple(1e12 * rows for rows in PAIR)
# Here the coordinates of the larger mean differ too.
TILTED = (np.array([[-9.0, -1.0]]), np.array([[1.0, 9.0]]))
ODDS = EPSILON  # log of the odds that an answer is the sign
SEEDED, SECURE = True, False


def released(pair, world, count, rng, *, seeded=SEEDED):
    samples = np.broadcast_to(pair[world], (count, *pair[world].shape))
    return SignChannel(EPSILON).release(
        samples, public_seed=rng, **({"rng": np.random.default_rng((7, world))} if seeded else {})
    )


def audit(pair=PAIR, *, seeded=SEEDED, score=None, exact=EPSILON):
    return audit_mechanism(
        lambda world, count, rng: released(pair, world, count, rng, seeded=seeded),
        score or (lambda sent: ODDS * (2.0 * sent.answers - 1.0)),
        draws=DRAWS,
        rng=0,
        epsilon=EPSILON,
        exact_epsilon=exact,
    )


@pytest.mark.audit
@pytest.mark.parametrize("seeded", [SEEDED, SECURE], ids=["seeded", "secure"])
@pytest.mark.parametrize("pair", [PAIR, FAR, TILTED], ids=["near", "far", "tilted"])
def test_a_whole_machine_in_its_worst_pair(pair, seeded):
    result = audit(pair, seeded=seeded)
    assert result.passed, result


def coordinate_and_answer(sent):
    """Score both parts of the message, as a coordinate that looks at the data would be found by."""
    return 10.0 * sent.coordinates + sent.answers


def test_which_coordinate_is_asked_tells_nothing():
    result = audit(TILTED, score=coordinate_and_answer, exact=None)
    assert not result.exceeded
    assert result.epsilon_lower < EPSILON


respond = RandomizedResponse.respond


def twice_the_epsilon(self, codes, source):
    return respond(RandomizedResponse(2, 2.0 * self.epsilon), codes, source)


def in_clear(self, codes, source):
    return np.asarray(codes)


def swapped(self, codes, source):
    return 1 - respond(self, codes, source)


def two_answers(self, codes, source):
    """Both coordinates of the machine, each at the whole epsilon, in one message."""
    return respond(self, codes, source) + respond(self, codes, source)


@pytest.mark.audit
@pytest.mark.parametrize("mutant", [twice_the_epsilon, in_clear, two_answers])
def test_mutants_of_the_response_are_caught(mutant, monkeypatch):
    monkeypatch.setattr(RandomizedResponse, "respond", mutant)
    score = (lambda sent: 1.0 * sent.answers) if mutant is two_answers else None
    assert audit(score=score).exceeded


def test_a_channel_that_says_the_opposite_is_seen(monkeypatch):
    monkeypatch.setattr(RandomizedResponse, "respond", swapped)
    assert audit().blind


@pytest.mark.audit
def test_mutant_asks_about_the_largest_mean(monkeypatch):
    def largest(samples):
        machines = found(samples)
        monkeypatch.setattr(
            sign_channel,
            "assign_coordinates",
            lambda m, p, seed: np.array([np.abs(rows.mean(axis=0)).argmax() for rows in machines]),
        )
        return machines

    found = sign_channel._machines
    monkeypatch.setattr(sign_channel, "_machines", largest)
    assert audit(TILTED, score=coordinate_and_answer, exact=None).exceeded


@pytest.mark.audit
def test_mutant_sends_the_size_of_the_mean(monkeypatch):
    """A larger mean is answered more truthfully: no response any more at the stated odds."""
    size = sign_channel.mean_sign
    monkeypatch.setattr(sign_channel, "mean_sign", lambda rows, j: size(rows, j) + 2 * (abs(rows).max() > 8))

    def truthful(self, codes, source):
        sure = np.asarray(codes) >= 2
        return np.where(sure, codes % 2, respond(self, codes % 2, source))

    monkeypatch.setattr(RandomizedResponse, "respond", truthful)
    assert audit(FAR).exceeded
