"""Picks from noisy vectors of products: the radius, the errors of entries, what is found, what is refused."""

import math

import numpy as np
import pytest

from privinf.errors import NotAvailableError
from privinf.federation import InProcessFederation, SecureServer, Site, SitePolicy, pinned_keys
from privinf.lasso.precision import clearance
from privinf.lasso.rows import SparseUnits
from privinf.lasso.selection import RADII, VectorServer, detectable_sds, entry_sd, sharpest, vector_radius
from privinf.lasso.sums import SparseSums
from privinf.schema import Design
from studies.simulation import binomial_limits

P, N = 60, 4_000


def server_of(y, X, rng, **options):
    design = Design.from_arrays([f"x{j}" for j in range(P)], bounds=[(-6, 6)] * P, y_bounds=(-60, 60))
    keys, roster = pinned_keys(["a", "b"])
    policy = SitePolicy(secure_sums=True, simulation=True)
    sites = {
        name: Site((y[k::2], X[k::2]), design, policy=policy, key=keys[name], roster=roster)
        for k, name in enumerate(keys)
    }
    server = SecureServer(InProcessFederation(sites), rng=rng, **options)
    low, high = np.full(P, -6.0), np.full(P, 6.0)
    vectors = VectorServer(server=server, n=server.nobs, low=low, high=high, response=60.0, clip=1.5)
    return SparseSums(
        server=vectors,
        units=SparseUnits(
            center=np.zeros(P), scale=np.ones(P), max_abs=high, intercept=0.0, y_max_abs=8.0, y_limit=8.0
        ),
        n=N,
    ), vectors


def sample(seed, effect=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P))
    return effect * X[:, 3] + rng.standard_normal(N), X


@pytest.mark.parametrize(("rows", "rho"), [(1, 0.5), (1, 1e-3), (5, 0.05), (5, math.inf)])
def test_the_radius_is_the_best_of_all(rows, rho):
    radius = vector_radius(rows * P, rows, N, rho)
    if math.isinf(rho):
        assert radius == math.inf
        return
    noise = [2.0 * R * math.sqrt(rows * P / (2.0 * rho)) / N for R in RADII]
    sizes = [entry_sd(R, rows, N, sd) for R, sd in zip(RADII, noise, strict=True)]
    found = entry_sd(radius, rows, N, 2.0 * radius * math.sqrt(rows * P / (2.0 * rho)) / N)
    assert found == min(sizes)


@pytest.mark.audit
@pytest.mark.parametrize("rho", [0.3, 0.01])
def test_the_error_of_an_entry_is_as_stated(rho, monkeypatch):
    """Released entries of 12 samples without effects, over the slope of one entry in its effect."""
    seen, original = [], SecureServer.vector_sum

    def vector_sum(self, op, args, **options):
        seen.append(original(self, op, args, **options))
        return seen[-1]

    monkeypatch.setattr(SecureServer, "vector_sum", vector_sum)
    squares, slopes, effect = [], [], 0.1
    for seed in range(12):
        y, X = sample(seed)
        for response in (y, y + effect * X[:, 3]):
            sums, vectors = server_of(response, X, seed)
            sums.select((), np.empty(0), 1.5, 1, np.ones(P, bool), rho, "selection")
        without, with_effect = (found.mean for found in seen[-2:])
        slopes.append((with_effect - without)[3] / effect)
        squares.append(without**2)
    error = math.sqrt(np.mean(squares)) / np.mean(slopes)
    # The root of a chi-square of 12 P entries, and of a slope from 12 differences of the same noise.
    assert error == pytest.approx(vectors.releases[0].sd, rel=0.08)


@pytest.mark.parametrize("rho", [0.3, 0.01])
def test_the_error_of_a_correlation_is_as_stated(rho, monkeypatch):
    """The same of products of two targets with all columns, of which one is correlated with a target."""
    seen, original = [], SecureServer.vector_sum

    def vector_sum(self, op, args, **options):
        seen.append(original(self, op, args, **options))
        return seen[-1]

    monkeypatch.setattr(SecureServer, "vector_sum", vector_sum)
    for seed in range(12):
        y, X = sample(seed)
        X[:, 4] = 0.6 * X[:, 0] + 0.8 * X[:, 4]
        sums, vectors = server_of(y, X, seed)
        sums.neighbors([0, 1], 2, np.ones((2, P), bool), rho)
    entries = np.array([found.mean for found in seen])
    error = np.sqrt(np.mean(entries[:, :, 5:] ** 2)) / (np.mean(entries[:, 0, 4]) / 0.6)
    assert error == pytest.approx(vectors.releases[0].sd, rel=0.08)


@pytest.mark.audit
def test_what_is_found_from_is_found():
    found = []
    for seed in range(60):
        y, X = sample(seed, effect=0.0)
        sums, vectors = server_of(y, X, seed)
        radius = vector_radius(P, 1, N, 0.02)
        effect = detectable_sds(P) * entry_sd(radius, 1, N, 2.0 * radius * math.sqrt(P / 0.04) / N)
        y = y + effect * X[:, 3]
        sums, vectors = server_of(y, X, seed)
        found.append(sums.select((), np.empty(0), 1.5, 1, np.ones(P, bool), 0.02, "selection")[0] == 3)
        assert vectors.releases[0].found_from == pytest.approx(effect, rel=1e-3)
    assert np.mean(found) >= binomial_limits(0.9, len(found))[0]


def test_colluders_make_it_worse():
    y, X = sample(0)
    sds = []
    for colluding in (0, 1):
        sums, vectors = server_of(y, X, 0, max_colluding=colluding)
        sums.neighbors([0, 1], 2, np.ones((2, P), bool), 0.1)
        sds.append(vectors.releases[0].sd)
    assert 1.1 < sds[1] / sds[0] <= math.sqrt(2.0)


def test_the_sharpest_look_counts():
    y, X = sample(0)
    sums, vectors = server_of(y, X, 0)
    for rho in (0.1, 0.4, 0.2):
        sums.select((), np.empty(0), 1.5, 1, np.ones(P, bool), rho, "selection")
    assert sharpest(vectors.releases, "selection") is vectors.releases[1]
    assert sharpest(vectors.releases, "neighbours") is None


def test_picks_keep_to_the_candidates_and_come_largest_first():
    y, X = sample(0, effect=1.0)
    sums, _ = server_of(y + 0.5 * X[:, 7], X, 0)
    allowed = np.ones(P, bool)
    assert sums.select((), np.empty(0), 1.5, 2, allowed, math.inf, "selection") == [3, 7]
    allowed[3] = False
    assert sums.select((), np.empty(0), 1.5, 1, allowed, math.inf, "selection") == [7]


def test_the_noise_that_hides_a_gram_matrix_is_that_of_its_eigenvalues():
    rng = np.random.default_rng(0)
    for size in (20, 60):
        entries = rng.standard_normal((size, size)) * 0.1
        noise = np.triu(entries, 1) / math.sqrt(2.0)
        noise = noise + noise.T + np.diag(np.diag(entries))
        edge = np.abs(np.linalg.eigvalsh(noise)).max()
        assert edge == pytest.approx(0.1 * math.sqrt(2.0 * size), rel=0.2)
    assert clearance(np.diag([1.0, 0.3]), 0.15) == pytest.approx(1.0)
    assert clearance(np.diag([1.0, 0.3]), 0.0) == np.inf


def test_what_has_no_vector_is_refused():
    y, X = sample(0)
    _, vectors = server_of(y, X, 0)
    options = {"label": "x", "rho": 0.1, "candidates": np.ones(P, bool), "sites": None}
    for op, values in (("quadratic_forms", False), ("clipped_products", True)):
        with pytest.raises(NotAvailableError, match="requires a trusted server"):
            vectors.top_k(op, {"bound": 1.0}, 1, values=values, **options)
