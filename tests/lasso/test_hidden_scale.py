"""The typical size of residuals: bounds for its noise, and what a result states where the noise hides it."""

import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import GaussianLoss, LedgerEntry
from privinf.errors import NotAvailableError
from privinf.federation import NoisySum
from privinf.lasso.radii import ResidualSizes, TypicalSize
from privinf.lasso.results import LassoResults
from studies.simulation import binomial_limits

TOP = 8.0
EDGES = TOP * 2.0 ** (-np.arange(56, -1, -1) / 4.0)
N = 4000
LINE = LedgerEntry(
    mechanism="gaussian",
    label="sizes of residuals",
    unit="record",
    relation="replace-one",
    trust="server",
    loss=GaussianLoss(1.0),
    source="test",
    secure=False,
)


def counts_of(values, sd, seed, rows=None):
    cells = np.bincount(np.searchsorted(EDGES, np.abs(values), side="right"), minlength=len(EDGES) + 1)
    noisy = cells + sd * np.random.default_rng(seed).standard_normal(len(cells))
    return NoisySum(
        values=noisy,
        rows=len(values) if rows is None else rows,
        sites=("one",),
        scale=sd,
        mu=1.0,
        entries=(LINE,),
    )


@pytest.mark.parametrize("shape", ["normal", "heavy", "two values"])
def test_bounds_contain_the_point_and_all_counts_estimate_it_better(shape):
    """200 histograms with noise of sd 150 (a fit at epsilon 0.7): 95% bounds, errors beyond a factor of 2."""
    rng = np.random.default_rng(4)
    values = {
        "normal": 0.7 * rng.standard_normal(N),
        "heavy": 0.4 * rng.standard_t(3, N),
        "two values": np.where(rng.random(N) < 0.25, 0.75, -0.25),
    }[shape]
    truth = float(np.quantile(np.abs(values), 0.6827))
    sizes = [ResidualSizes.from_counts(counts_of(values, 150.0, seed), EDGES) for seed in range(200)]
    typical = [one.typical for one in sizes]
    assert np.mean([one.low <= truth <= one.high for one in typical]) >= binomial_limits(0.95, 200)[0]
    off = np.mean([not truth / 2.0 <= one.value <= 2.0 * truth for one in typical])
    off_of_middle = np.mean([not truth / 2.0 <= one.middle <= 2.0 * truth for one in sizes])
    assert off < off_of_middle
    if shape != "two values":  # whose 68% point is between them
        assert off < 0.05 < 0.2 < off_of_middle
    assert all(truth / 2.0 <= one.value <= 2.0 * truth for one in typical if one.known)


def test_without_noise_both_points_are_the_same():
    values = np.random.default_rng(0).standard_normal(N)
    sizes = ResidualSizes.from_counts(counts_of(values, 0.0, 0), EDGES)
    assert sizes.typical.value == pytest.approx(sizes.middle, rel=1e-12)
    assert sizes.typical.low <= sizes.middle <= sizes.typical.high
    assert sizes.typical.high / sizes.typical.low == pytest.approx(2.0**0.25)
    assert sizes.typical.known
    assert sizes.typical_scale == pytest.approx(sizes.scale, rel=1e-12)


def test_an_estimated_number_of_rows_widens_the_bounds():
    """The number of rows is off by 100 (an sd); in 200 histograms the bounds hold."""
    rng = np.random.default_rng(2)
    values = 0.7 * rng.standard_normal(N)
    truth = float(np.quantile(np.abs(values), 0.6827))
    inside = []
    for seed in range(200):
        counts = counts_of(values, 20.0, seed, rows=round(N + 100.0 * rng.standard_normal()))
        wide, narrow = (TypicalSize.from_counts(counts, EDGES, sd) for sd in (100.0, 0.0))
        assert wide.low <= narrow.low <= narrow.high <= wide.high
        inside.append(wide.low <= truth <= wide.high)
    assert np.mean(inside) >= binomial_limits(0.95, 200)[0]


def test_noise_alone_leaves_no_bounds():
    typical = TypicalSize.from_counts(counts_of(np.full(50, 0.5), 1e4, 0), EDGES)
    assert (typical.low, typical.high) == (0.0, math.inf)
    assert not typical.known


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, 30))
    y = X[:, 0] - 0.5 * X[:, 1] + 0.7 * rng.standard_normal(N)
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(30)]).assign(y=np.clip(y, -4, 4))


def fit(frame, epsilon):
    schema = pi.Schema({**{f"x{j}": (-1, 1) for j in range(30)}, "y": (-4, 4)})
    formula = "y ~ " + " + ".join(f"x{j}" for j in range(30))
    return pi.DebiasedLasso.from_formula(formula, frame, schema=schema).fit(
        epsilon=epsilon, delta=1e-6, rng=0, targets=["x0", "x1", "x5"], noise_variance=True
    )


@pytest.mark.filterwarnings("ignore")
def test_a_hidden_scale_is_refused_with_its_bounds(frame, tmp_path):
    result = fit(frame, 0.5)
    low, high = result.residual_scale_bounds
    assert low <= 0.7 <= high
    with pytest.raises(NotAvailableError, match=f"between {low:.3g} and {high:.3g}"):
        result.residual_scale
    text = " ".join(str(result.summary(notes="all")).split())
    assert "The privacy noise leaves the typical size of the residuals known only to be" in text
    result.save(tmp_path / "hidden")
    assert LassoResults.load(tmp_path / "hidden").residual_scale_bounds == (low, high)


@pytest.mark.filterwarnings("ignore")
def test_a_known_scale_and_the_variance_are_stated_with_their_noise(frame):
    result = fit(frame, 4.0)
    low, high = result.residual_scale_bounds
    assert low <= result.residual_scale <= high
    assert result.residual_scale == pytest.approx(0.7, rel=0.3)
    variance = result.noise_variance
    assert variance.value == pytest.approx(0.49, rel=0.1)
    assert variance.clip >= 2.5 * result.residual_scale
    text = " ".join(str(result.summary(notes="all")).split())
    assert f"is {result.residual_scale:.3g}; the privacy noise leaves it between {low:.3g}" in text
    assert f"The variance of the errors (noise_variance) is {variance.value:.3g}" in text
    assert "assumes normal errors" in text
