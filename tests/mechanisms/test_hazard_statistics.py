"""Statistics of proportional hazards: values, scores of mean zero, exact sums, refusals."""

import math

import numpy as np
import pytest
from privacy.mutation import Mutant

from privinf.errors import ArgumentError
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.mechanisms.statistics.isometric import from_isometric
from privinf.mechanisms.statistics.summands import counts_above
from studies.hazards.records import Hazard, Records, follow, shrunk_to

HAZARDS = "mechanisms.statistics.hazards"
AT = {
    "columns": np.array([0, 1]),
    "status": 2,
    "edges": np.array([0.5, 1.0, 2.0]),
    "increments": np.array([0.2, 0.3, 0.1]),
    "blocks": np.array([0.0, 1.0, 1.0]),
    "theta": np.array([0.4, -0.2]),
    "transform": np.array([[1.0, 0.2, 0.1], [-0.1, 1.0, 0.3]]),
    "offsets": np.array([[0.4, 0.0, 0.1], [0.1, 0.3, -0.2]]),
}


def block(records, events=None):
    x = records.x
    status = records.event if events is None else events
    ends = np.ones(x.shape[1] + 1)
    return SiteBlock(
        features=np.column_stack([x, status.astype(float)]),
        response=records.time,
        low=-ends,
        high=ends,
        response_low=0.0,
        response_high=10.0,
    )


def place(rng):
    """Return any public hazard, theta, W and stop."""
    q, count, d = int(rng.integers(1, 4)), int(rng.integers(4, 9)), int(rng.integers(1, 4))
    blocks = np.sort(np.concatenate([np.arange(q), rng.integers(0, q, count - q)]))
    edges = np.cumsum(rng.uniform(0.05, 1.0, count))
    hazard = Hazard(edges=edges, increments=rng.exponential(0.5, count), block=blocks)
    stop = float(rng.choice([0.7, 1.0, 2.0, math.inf]))
    return hazard, rng.normal(0.0, 1.0, q + d), rng.normal(size=(q + d, q + d)), stop


def arguments(hazard, theta, transform, stop):
    q = hazard.blocks
    args = {
        "columns": np.arange(len(theta) - q),
        "status": len(theta) - q,
        "edges": hazard.edges,
        "increments": hazard.increments * np.exp(math.sqrt(q) * theta[:q])[hazard.block],
        "blocks": hazard.block.astype(float),
        "theta": theta[q:],
        "transform": transform[:, q:].T,
        "offsets": math.sqrt(q) * transform[:, :q].T,
    }
    return args if math.isinf(stop) else args | {"stop": stop}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("bits", [0, 36], ids=["floats", "exact"])
def test_sums_are_those_of_their_definition(bits, seed):
    rng = np.random.default_rng(seed)
    hazard, theta, transform, stop = place(rng)
    d = len(theta) - hazard.blocks
    time = rng.choice([0.0, *hazard.edges, *rng.uniform(0.0, 1.2 * hazard.edges[-1], 20)], 60)
    records = Records(x=rng.uniform(-1.0, 1.0, (60, d)), time=time, event=rng.random(60) < 0.5)
    at = follow(records, hazard, theta, transform, stop)
    bound = float(np.quantile(at.size, 0.6)) + 0.1
    trace = float(np.quantile(at.traces(bound), 0.6)) + 0.01
    step = rng.normal(size=len(theta))
    args = arguments(hazard, theta, transform, stop) | {"score_bound": bound, "bits": bits}

    def total(name, **more):
        return SITE_OPS[name].total(block(records), args | more)

    close = {"rtol": 1e-9, "atol": 1e-9} if not bits else {"rtol": 1e-4, "atol": 1e-4}
    scores = shrunk_to(at.scores(bound), 0.8 * bound)
    np.testing.assert_allclose(total("hazards.score", high=0.8 * bound), scores.sum(axis=0), **close)
    meat = from_isometric(total("hazards.meat", high=0.8 * bound))
    np.testing.assert_allclose(meat, scores.T @ scores, **close)
    factors = at.hessians(bound, trace, step)
    hessian = from_isometric(total("hazards.secant", step=step, clip=trace))
    np.testing.assert_allclose(hessian, factors.T @ factors, **{**close, "atol": 1e-4, "rtol": 1e-4})
    for of, values in (("score", at.size), ("curvature", at.traces(bound))):
        cuts = np.unique(np.quantile(values, [0.3, 0.7]) + 0.01)
        counts = counts_above(total("hazards.counts", of=of, thresholds=cuts), 0.0)[0]
        np.testing.assert_allclose(counts, [(values > cut).sum() for cut in cuts])


def at_truth(n, seed):
    """Return rows and the arguments of their true hazard: 0.6 a unit of time up to 1."""
    rng = np.random.default_rng(seed)
    theta = np.array([0.8, -0.6])
    x = rng.uniform(-1.0, 1.0, (n, 2))
    failure = rng.exponential(size=n) / (0.6 * np.exp(x @ theta))
    end = rng.uniform(0.3, 1.6, n)
    records = Records(x=x, time=np.minimum(failure, end), event=failure <= end)
    args = AT | {
        "edges": np.arange(1.0, 9.0) / 8.0,
        "increments": np.full(8, 0.6 / 8),
        "blocks": np.repeat([0.0, 1.0], 4),
        "theta": theta,
        "stop": 0.5,
        "score_bound": 0.5,
        "high": 0.5,
    }
    return block(records), args


def standardized_score(rows, args):
    covariance = from_isometric(SITE_OPS["hazards.meat"].function(rows, args))
    return SITE_OPS["hazards.score"].function(rows, args) / np.sqrt(np.diag(covariance))


def test_stop_and_weights_in_x_alone_leave_the_right_coefficients_where_they_are():
    """Weights by the residual, or a stop that events pass, would move them."""
    rows, args = at_truth(200_000, 0)
    assert np.abs(standardized_score(rows, args)).max() < 4.0
    by_outcome = Mutant(
        HAZARDS, "_FollowUp.__init__", "np.maximum(1.0, self.risk * total[last])", "np.where(event, 3.0, 1.0)"
    )
    past_stop = Mutant(HAZARDS, "_FollowUp.__init__", "(time <= ends * same) & (last > 0)", "(last > 0)")
    for mutant in (by_outcome, past_stop):
        with mutant.applied():
            assert np.abs(standardized_score(rows, args)).max() > 8.0


def test_what_happens_after_the_last_edge_is_cut():
    """Event, censoring and missing time beyond it are the same."""
    x = np.zeros((3, 2))
    late = Records(x=x, time=np.array([2.0, 5.0, 5.0]), event=np.array([False, True, False]))
    sums = [
        SITE_OPS["hazards.score"].total(
            block(Records(x=x[:1], time=late.time[i : i + 1], event=late.event[i : i + 1])),
            AT | {"high": 9.0},
        )
        for i in range(3)
    ]
    np.testing.assert_array_equal(sums[0], sums[1])
    np.testing.assert_array_equal(sums[0], sums[2])


@pytest.mark.parametrize("edge", [0.5, 1.0, 2.0])
def test_a_time_that_differs_from_an_edge_by_rounding_is_at_it(edge):
    """The edges 0.5 and 2 end a block and the grid: an event beyond is in another block, or in none."""
    x = np.array([[0.3, -0.7]])

    def score(time):
        rows = block(Records(x=x, time=np.array([time]), event=np.array([True])))
        return SITE_OPS["hazards.score"].function(rows, AT | {"high": 9.0})

    np.testing.assert_allclose(score(edge * (1.0 + 1e-12)), score(edge), rtol=1e-9)
    assert np.abs(score(edge * (1.0 + 1e-6)) - score(edge)).max() > (0.0 if edge == 1.0 else 0.1)


def test_rows_without_numbers_add_finite_sums():
    broken = Records(
        x=np.array([[np.nan, 0.0], [0.0, np.inf]]),
        time=np.array([np.nan, np.inf]),
        event=np.array([True, True]),
    )
    for name, more in (("score", {"high": 1.0}), ("secant", {"clip": 1.0, "step": np.zeros(3)})):
        for bits in (0, 36):
            total = SITE_OPS[f"hazards.{name}"].total(block(broken), AT | more | {"bits": bits})
            assert np.isfinite(total).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": np.array([], dtype=int)},
        {"status": 3},
        {"theta": np.zeros(3)},
        {"edges": np.array([0.0, 1.0, 2.0])},
        {"edges": np.array([1.0, 1.0, 2.0])},
        {"increments": np.array([0.2, -0.3, 0.1])},
        {"increments": np.array([0.2, 0.3])},
        {"blocks": np.array([0.0, 2.0, 1.0])},
        {"blocks": np.array([0.0, 0.0, 0.0])},
        {"blocks": np.array([1.0, 1.0, 1.0])},
        {"transform": np.eye(2)},
        {"offsets": np.zeros((2, 2))},
        {"transform": np.zeros((2, 5)), "offsets": np.zeros((2, 5))},
        {"stop": 0.0},
        {"score_bound": -1.0},
        {"high": 0.0},
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong):
    with pytest.raises(ArgumentError):
        SITE_OPS["hazards.score"].record_sensitivity(AT | {"high": 1.0} | wrong, 3)


def test_counts_of_unknown_sizes_and_steps_of_wrong_length_are_refused():
    with pytest.raises(ArgumentError):
        SITE_OPS["hazards.counts"].record_sensitivity(AT | {"of": "residual", "thresholds": [1.0]}, 3)
    with pytest.raises(ArgumentError):
        SITE_OPS["hazards.secant"].record_sensitivity(AT | {"step": np.zeros(2), "clip": 1.0}, 3)
