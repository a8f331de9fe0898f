"""Audit of one release of all columns, `Moments(schema, columns=[...])`, on a pair that attains its price.

The constant and the three columns of the changed record are (1, 1, 1, 1) in one world and (1, -1, -1, 1) in
the other: orthogonal, so that the moments are as far apart as they can be. Both records lie far beyond the
bounds, which the mutants leave open.
"""

import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.mechanisms import moments as mechanism
from privinf.mechanisms.statistics import block, gridded
from privinf.mechanisms.statistics import moments as statistics
from studies.audit import audit_mechanism, gaussian_log_ratio

MU, DRAWS = 3.0, 1500
COLUMNS = ["a", "b", "c"]
SCHEMA = pi.Schema({name: (-1.0, 1.0) for name in COLUMNS})
FEW = [[0.4, -0.3, 0.2], [-0.1, 0.6, -0.5], [0.3, 0.2, 0.9]]
PAIR = ([9.0, 9.0, 9.0], [-9.0, -9.0, 9.0])


def tables():
    return [pd.DataFrame([*FEW, changed], columns=COLUMNS) for changed in PAIR]


def clean(changed):
    """Return the isometric entries of the sums inside the bounds, the constant's own left out."""
    z = np.column_stack([np.ones(4), np.clip([*FEW, changed], -1.0, 1.0)])
    rows, columns = np.triu_indices(4)
    sums = (z.T @ z)[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))
    return sums[1:]


def audit(draws=DRAWS, mu=MU):
    """Audit one release by the likelihood ratio of the law that it states."""
    releaser, worlds = pi.Moments(SCHEMA, columns=COLUMNS), tables()
    means = [releaser.release(table, epsilon=math.inf).arrays["moments"] for table in worlds]
    scores = []
    for world, table in enumerate(worlds):
        rng = np.random.default_rng(world)
        made = [releaser.release(table, mu=mu, rng=rng) for _ in range(draws)]
        seen = np.array([one.arrays["moments"] for one in made])
        scores.append(gaussian_log_ratio(seen, *means, made[0].noise_model["scale"]))
    return audit_mechanism(
        lambda world, count, rng: scores[world], lambda x: x, draws=draws, rng=0, mu=mu, exact_mu=mu
    )


@pytest.mark.audit
def test_one_release_of_all_columns_shows_no_more_than_its_price():
    result = audit()
    assert result.passed, result


def test_the_pair_attains_the_sensitivity():
    release = pi.Moments(SCHEMA, columns=COLUMNS).release(tables()[0], mu=MU, rng=0)
    exact = pi.Moments(SCHEMA, columns=COLUMNS).release(tables()[0], epsilon=math.inf)
    np.testing.assert_allclose(exact.arrays["moments"], clean(PAIR[0]), rtol=1e-12)
    assert np.linalg.norm(clean(PAIR[0]) - clean(PAIR[1])) == pytest.approx(
        release.noise_model["scale"] * MU, rel=1e-9
    )


def test_what_is_not_noised_is_the_number_of_records_alone():
    release = pi.Moments(SCHEMA, columns=COLUMNS).release(tables()[0], mu=MU, rng=0)
    np.testing.assert_array_equal(release.arrays["public_moments"], [[4.0]])
    assert set(release.arrays) == {"moments", "public_moments"}


# ---- mutants


@pytest.mark.audit
def test_sums_beside_the_constant_without_noise_are_seen(monkeypatch):
    honest = mechanism.noisy_total

    def bare_means(sums, scale, source):
        total = honest(sums, scale, source)
        total[:3] = sums.floats()[:3]
        return total

    monkeypatch.setattr(mechanism, "noisy_total", bare_means)
    assert audit(600).exceeded


@pytest.mark.audit
def test_a_last_column_that_is_not_clipped_is_seen(monkeypatch):
    leave_the_ends_open(monkeypatch, width=1)
    assert audit(600, mu=1.0).exceeded


@pytest.mark.audit
def test_columns_that_are_not_clipped_are_seen(monkeypatch):
    leave_the_ends_open(monkeypatch, width=2)
    assert audit(600, mu=1.0).exceeded


@pytest.mark.audit
def test_a_price_that_forgets_the_last_column_is_seen(monkeypatch):
    honest = statistics.second_moment_sensitivity
    monkeypatch.setattr(statistics, "second_moment_sensitivity", lambda x, y, q2=0.0: honest(x, 0.0, q2))
    assert audit().exceeded


def leave_the_ends_open(monkeypatch, width):
    """Put columns on their grid without an end: two beside the constant, or the last one, in doubles too."""
    honest = gridded.on_grid

    def on_grid(values, factor, shift, most, out):
        most = math.inf if len(out.T) == width else most
        return honest(values, factor, shift, most, out)

    monkeypatch.setattr(gridded, "on_grid", on_grid)
    if width == 1:
        monkeypatch.setattr(block.SiteBlock, "outcome", lambda self: self.response)
        monkeypatch.setattr(statistics, "clipped", lambda values, bound: values)
    else:
        monkeypatch.setattr(block.SiteBlock, "columns", lambda self, args, chosen=None: self.features * 1.0)
        monkeypatch.setattr(statistics, "clip_norms", lambda rows, norm: rows)
