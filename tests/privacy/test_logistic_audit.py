"""Statistics of a sparse logistic fit: values, swaps of records within each charge, mutants beyond it."""

from contextlib import nullcontext

import attained
import numpy as np
import pytest
from mutation import Mutant
from record_replay import audit
from replay_fits import ASKED, allowed, run_of
from scipy.special import expit

from privinf.errors import ArgumentError
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.block import SiteBlock

P, EDGE = 4, 2.0
PRODUCTS, CURVED = "mechanisms.statistics.regression", "mechanisms.statistics.curved"
SUMMANDS = "mechanisms.statistics.summands"
SPARSE = {"support": np.array([0, 2]), "beta": np.array([0.8, -0.5]), "intercept": -1.0, "bound": 0.3}
BESIDE = {
    "family": "binomial",
    "columns": np.array([2, 0]),
    "theta": np.array([-0.5, 0.8]),
    "intercept": -1.0,
    "transform": np.array([[1.0, 0.2, 0.0], [-0.1, 0.8, 0.3]]),
    "offset": np.array([0.4, -0.3, 1.0]),
    "score_bound": 0.7,
    "curvature_bound": 0.2,
}
STATISTICS = {
    "logistic_products": SPARSE,
    "curved.score": BESIDE | {"high": 0.7},
    "curved.meat": BESIDE | {"high": 0.7},
    "curved.secant": BESIDE | {"clip": 0.2, "step": np.array([0.6, -0.9, 0.2])},
}


def block(y, X):
    ends = np.full(X.shape[1], EDGE)
    return SiteBlock(features=X, response=y, low=-ends, high=ends, response_low=0.0, response_high=1.0)


def swapped(name, rng, bits=0, tries=12, steps=25):
    """Return the largest move of the sum, in shares of its sensitivities, that climbs over swaps find."""
    op, args = SITE_OPS[name], STATISTICS[name] | {"bits": bits}
    record_sensitivity = op.record_sensitivity(args, P)

    def moved(y, x):
        apart = np.subtract(*(op.function(block(y[i : i + 1], x[i : i + 1]), args) for i in (0, 1)))
        return max(
            np.linalg.norm(apart) / record_sensitivity.l2, np.abs(apart).max() / record_sensitivity.linf
        )

    best = 0.0
    for _ in range(tries):
        x = rng.normal(0.0, 1.2, (2, P)) if rng.random() < 0.5 else EDGE * rng.choice([-1.0, 1.0], (2, P))
        y = rng.choice([0.0, 1.0], 2)
        here = moved(y, x)
        for _ in range(steps):
            other = x + rng.normal(0.0, 0.4, (2, P)) * (rng.random((2, P)) < 0.5), rng.choice([0.0, 1.0], 2)
            if (there := moved(other[1], other[0])) > here:
                (x, y), here = other, there
        best = max(best, here)
    return best


@pytest.mark.audit
@pytest.mark.parametrize("bits", [0, 36], ids=["floats", "exact"])
@pytest.mark.parametrize("name", STATISTICS)
def test_no_climb_of_swaps_passes_the_charge(name, bits):
    assert 0.3 < swapped(name, np.random.default_rng(0), bits) <= 1.0 + 1e-9


def test_a_climb_sees_products_that_are_not_clipped():
    with Mutant(SUMMANDS, "Box.numbers", "clipped(values, self.bound)", "2.0 * values").applied():
        assert swapped("logistic_products", np.random.default_rng(0)) > 1.5


def test_a_pair_sees_half_a_charge():
    with Mutant(SUMMANDS, "Box.sensitivity", "l2=2.0 * norm", "l2=norm").applied():
        assert attained.complaints("logistic_products")
    assert not attained.complaints("logistic_products")


def test_products_have_the_mean_zero_at_a_right_mean_however_skewed_and_rare():
    """The mutant clips the product: one side of a rare response is cut, so that nulls look like signals."""
    rng = np.random.default_rng(0)
    X = np.minimum(rng.standard_exponential((200_000, P)), 2.0 * EDGE) - 1.0
    eta = -3.0 + X[:, [0, 2]] @ SPARSE["beta"]
    y = (rng.random(len(X)) < expit(eta)).astype(float)
    told = SPARSE | {"intercept": -3.0}

    def z_scores():
        ends = np.full(P, 4.0 * EDGE)
        whole = SiteBlock(features=X, response=y, low=-ends, high=ends, response_low=0.0, response_high=1.0)
        each = np.minimum(np.abs(X), 0.31) * (y - expit(eta))[:, None]
        return SITE_OPS["logistic_products"].total(whole, told) / np.sqrt((each**2).sum(axis=0))

    assert np.abs(z_scores()).max() < 4.0
    late = Mutant(
        PRODUCTS, "logistic_products", "(box.bound / np.maximum(mean, 1.0 - mean))", "9.0 + 0.0 * mean"
    )
    with late.applied():
        assert np.abs(z_scores()).max() > 10.0


def test_some_columns_and_an_offset_are_all_columns_and_a_constant():
    rng = np.random.default_rng(1)
    X, y = rng.normal(0.0, 0.8, (300, P)), rng.integers(0, 2, 300).astype(float)
    wide = np.column_stack([X, np.ones(300)])
    theta, transform = np.zeros(P + 1), np.zeros((P + 1, 3))
    theta[BESIDE["columns"]], transform[BESIDE["columns"]] = BESIDE["theta"], BESIDE["transform"]
    transform[-1] = BESIDE["offset"]
    for name, args in STATISTICS.items():
        if name == "logistic_products":
            continue
        whole = {key: value for key, value in args.items() if key not in ("columns", "offset")}
        found = SITE_OPS[name].total(block(y, X), args)
        wanted = SITE_OPS[name].total(block(y, wide), whole | {"theta": theta, "transform": transform})
        np.testing.assert_allclose(found, wanted, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("curved.score", {"columns": np.array([2, 2])}),
        ("curved.score", {"columns": np.array([2, P])}),
        ("curved.score", {"theta": np.zeros(P)}),
        ("curved.score", {"offset": np.zeros(2)}),
        ("curved.score", {"transform": np.ones((2, 4)), "offset": np.zeros(4)}),
        ("logistic_products", {"bound": 0.0}),
        ("logistic_products", {"beta": np.zeros(3)}),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name, change):
    with pytest.raises(ArgumentError):
        SITE_OPS[name].record_sensitivity(STATISTICS[name] | change, P)


def test_no_row_leaves_the_finite_numbers():
    wild = np.array(
        [[1e300, -1e300, 1e300, np.nan], [np.inf, np.nan, -np.inf, 0.0], [5e-324, 0.0, -0.0, 1.0]]
    )
    for name, args in STATISTICS.items():
        found = SITE_OPS[name].total(block(np.array([np.nan, np.inf, -1e300]), wild), args)
        assert np.isfinite(found).all()
        assert np.abs(found).max() <= 3.0 * SITE_OPS[name].record_sensitivity(args, P).bound * (1.0 + 1e-9)


SITES = "DebiasedLasso logistic, heterogeneous"


@pytest.mark.audit
@pytest.mark.parametrize(
    "name",
    [
        "DebiasedLasso logistic",
        "DebiasedLasso logistic, parties, selected",
        SITES,
        "DebiasedLasso dropped rows, logistic, heterogeneous",
    ],
)
def test_a_replayed_fit_of_neighbours_is_charged_for_all_that_differs(name):
    found = audit(run_of(name), allowed=allowed(name))
    assert not found.complaints
    assert not found.refused


DEAR = {
    "a block at the price of all": (
        "DebiasedLasso logistic",
        Mutant(
            "lasso.logistic",
            "LogisticBlocks.selected",
            "budget.selection * size / selections",
            "budget.selection",
        ),
    ),
    "the fit of a site on the rows of all sites": (
        SITES,
        Mutant(
            "lasso.heterogeneous.logistic",
            "_own_sums",
            "replace(sums, units=own)",
            "replace(sums, units=own, sites=None)",
        ),
    ),
    "the rate of the response at its price twice": (
        SITES,
        Mutant("lasso.plan", "LogisticSiteShares.own_fit", "self.rate * rho / 2.0", "self.rate * rho"),
    ),
}


@pytest.mark.audit
@pytest.mark.parametrize("kind", DEAR)
def test_a_whole_fit_that_spends_more_than_asked_is_seen(kind):
    name, dear = DEAR[kind]
    asked, delta = ASKED[name]
    for expected, broken in ((False, nullcontext()), (True, dear.applied())):
        with broken:
            spent = audit(run_of(name), allowed=allowed(name)).ledger.total().epsilon(delta)
        assert (spent > asked * (1.0 + 1e-9)) is expected
