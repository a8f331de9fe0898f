"""The law of where noisy rounds end, against simulation, and the verdict on a last step."""

import math

import numpy as np
import pytest

from privinf.glm.convergence import Convergence, Round, Trajectory, error_of_start, judge_convergence

P, N = 3, 400
BREAD = np.array([[1.0, 0.3, 0.0], [0.3, 0.8, 0.1], [0.0, 0.1, 0.5]])


def simulated(rounds, averaged, meat, draws=20_000):
    """Return the covariance of the mean of the last iterates, started at the solution."""
    rng = np.random.default_rng(0)
    theta, total = np.zeros((draws, P)), np.zeros((draws, P))
    root = np.linalg.cholesky(meat)
    for number, one in enumerate(rounds, 1):
        gain = np.diag(one.gain) if one.gain.ndim == 1 else one.gain
        score = -theta @ BREAD + rng.standard_normal((draws, P)) * np.sqrt(one.noise)
        own = rng.standard_normal((draws, P)) @ root.T
        score = score + math.sqrt((one.batches - 1.0) / N) * own
        theta = theta + score @ gain.T
        if number > len(rounds) - averaged:
            total += theta
    return np.cov(total.T / averaged)


@pytest.mark.parametrize(
    ("averaged", "batches", "kind"),
    [(1, 1.0, "matrix"), (1, 1.0, "diagonal"), (6, 1.0, "diagonal"), (5, 4.0, "diagonal")],
)
def test_the_noise_of_the_rounds_is_followed_to_where_they_end(averaged, batches, kind):
    rng = np.random.default_rng(1)
    meat = np.diag([2.0, 1.0, 0.5])
    rounds = []
    for number in range(10):
        noise = rng.uniform(0.5, 1.5, P) * 0.01
        if kind == "matrix":
            gain = np.linalg.inv(BREAD + 0.2 * np.eye(P)) * (1.0 - 0.05 * number)
        else:
            gain = np.array([0.3, 0.6, 0.9])
        rounds.append(Round(gain, noise, batches))
    trajectory = Trajectory(
        params=np.zeros(P), path=[np.zeros(P)], length=len(rounds), rounds=rounds, averaged=averaged
    )
    found = error_of_start(trajectory, BREAD, meat, N)
    np.testing.assert_allclose(found, simulated(rounds, averaged, meat), rtol=0.06, atol=0.03 * found.max())


def test_a_step_of_the_noise_alone_has_length_one():
    rng = np.random.default_rng(2)
    trajectory = Trajectory(
        params=np.zeros(P), path=[], length=1, rounds=[Round(np.linalg.inv(BREAD), np.full(P, 0.04))]
    )
    start = error_of_start(trajectory, BREAD, np.eye(P), N)
    reported = 0.2 * np.linalg.inv(BREAD)
    steps = rng.multivariate_normal(np.zeros(P), reported + start, 4000)
    lengths = np.array([judge_convergence(step, reported, start, 0.1).length for step in steps])
    assert (lengths**2).mean() == pytest.approx(1.0, abs=0.06)
    # chi-square of three degrees beyond 3 x 1.5^2
    assert (lengths > 1.5).mean() == pytest.approx(0.08, abs=0.02)


def test_the_verdict():
    assert Convergence(1.4, 0.5, 3.0).converged
    assert not Convergence(1.6, 0.5, 3.0).converged
    # long in standard errors, and harmless: the curvature did not change on the way
    assert Convergence(4.0, 0.01, 0.1).converged
    # so long that the curvature cannot be the same, whatever the noise
    assert not Convergence(0.5, 1.1, 0.1).converged
    # rounds without noise that converged, where a perfect fit has no error at all
    perfect = judge_convergence(np.full(2, 1e-18), np.zeros((2, 2)), np.zeros((2, 2)), 1e-17)
    assert perfect.converged
