"""Parts of several parties: least squares per party without noise, recovery and coverage with it, prices."""

import math

import numpy as np
import pytest

from privinf.engines.machine_parts import MachineBudget, machine_fits
from privinf.engines.sparse_sums import SparseSums, Units
from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer
from privinf.schema import Design
from privinf.simulation import binomial_limits
from privinf.simulation.lasso import LassoDesign

SHARES = (0.03, 0.05, 0.04, 0.18, 0.20, 0.05, 0.08, 0.04, 0.33)


def fitted(sample, rho, targets, rng, shared=3, own=2):
    p = sample.X.shape[1]
    design = Design.from_arrays([f"x{j}" for j in range(p)], bounds=[(-6.0, 6.0)] * p, y_bounds=(-80.0, 80.0))
    policy = SitePolicy(trusted_server=True, simulation=True)
    sites = {
        str(i): Site((y, X), design, policy=policy)
        for i, (y, X) in enumerate(sample.rows(i) for i in range(len(sample.params)))
    }
    server = TrustedServer(InProcessFederation(sites), rng=rng)
    units = Units(np.zeros(p), np.ones(p), np.full(p, 6.0), 0.0, 5.0, set())
    parties = {name: SparseSums(server, units, len(site), (name,)) for name, site in sites.items()}
    budget = MachineBudget(*(share * rho for share in SHARES))
    found = machine_fits(
        SparseSums(server, units, server.nobs), parties, targets, budget,
        shared_sparsity=shared, own_sparsity=own,
    )  # fmt: skip
    return found, server


def test_without_noise_it_is_least_squares_of_each_party():
    sample = LassoDesign(machines=3, n=500, p=6, sparsity=4, shared_sparsity=3).draw(0)
    found, _ = fitted(sample, math.inf, range(6), None, own=1)
    for i in range(3):
        y, X = sample.rows(i)
        slopes = np.linalg.lstsq(X, y, rcond=None)[0]
        # Columns and slopes are pooled: the same up to the parties' differences in Sigma and P(|r| < R).
        assert np.abs(found.debiased[str(i)].params - slopes).max() < 0.25 * 0.5 / math.sqrt(500)


@pytest.fixture(scope="module")
def strong():
    design = LassoDesign(machines=4, n=6_000, p=30, sparsity=5, shared_sparsity=3)
    return [(sample := design.draw(rep), *fitted(sample, 0.2, range(30), rep)) for rep in range(6)]


def test_parts_are_found(strong):
    for sample, found, _ in strong:
        assert sorted(found.shared) == [0, 1, 2]
        for i, truth in enumerate(sample.params):
            fit = found.own[str(i)]
            kept = [fit.support[k] for k in fit.kept]
            assert sorted(kept) == np.flatnonzero(truth).tolist()
            assert np.abs(fit.beta[fit.kept] - truth[kept]).max() < 0.1


def test_intervals_cover_at_every_party(strong):
    """Each interval has a noise of its own; what they share moves the variance of the mean little."""
    shares = []
    for sample, found, _ in strong:
        hits = []
        for i, truth in enumerate(sample.params):
            one = found.debiased[str(i)]
            hits.append(np.abs(one.params - truth) < 1.96 * np.sqrt(one.variance))
        shares.append(np.mean(hits))
    low, high = binomial_limits(0.95, 6 * 4 * 30, level=0.999)
    assert low <= np.mean(shares) <= high


def test_the_ledger_counts_every_coordinate(strong):
    """Prices of one interval times how many were released; parties are disjoint."""
    _, _, server = strong[0]
    rho = 0.2
    joint = server.ledger.total().rho
    size = 3 + 2 + 3 + 3 + 1
    wanted = rho * (sum(SHARES[:5]) + 30 * (SHARES[5] + SHARES[7] + SHARES[8]) + (30 / size) ** 2 * SHARES[6])
    assert joint == pytest.approx(wanted, rel=1e-6)
