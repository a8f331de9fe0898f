"""Least squares where clipped scores move a coefficient in one direction."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import HeavyTailWarning
from privinf.glm.least_squares import OneStepFit
from privinf.glm.one_sided import note_of, one_sided_columns
from privinf.inference.tails import Clip
from studies.simulation import binomial_limits

SLOPE = 0.0025
NOTE = "are far from their means on one side only"
SCHEMA = pi.Schema({"y": [0, 1], "km": (1, 60)})


def rare_outcome(seed, *, rows=8_000, share=0.1):
    """Return a yes/no response whose rate is linear in a column that is skewed to the right."""
    rng = np.random.default_rng(seed)
    km = np.clip(rng.lognormal(2.4, 0.5, rows), 1.0, 60.0)
    return pd.DataFrame({"km": km, "y": (rng.random(rows) < share + SLOPE * (km - 12.0)).astype(int)})


def notes_of(fit):
    return " ".join(str(fit.summary(notes="all")).split())


def fit_of(data, schema=SCHEMA, seed=0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pi.OLS.from_formula("y ~ km", data, schema=schema).fit(epsilon=1.0, delta=1e-6, rng=seed)


def test_a_rare_outcome_of_a_skewed_column_is_named_with_the_remedy():
    fit = fit_of(rare_outcome(0))
    text = notes_of(fit)
    assert f"the values of 'km' and of the response {NOTE}".lower() in text.lower()
    assert "MomentOLS" in text
    with pytest.warns(HeavyTailWarning, match=NOTE):
        intervals = fit.conf_int()
    assert (intervals.diff(axis=1).iloc[:, 1] > 1.3 * 2.0 * 1.96 * fit.bse).all()


@pytest.mark.parametrize("case", ["common outcome", "even column", "tight bounds"])
def test_fits_with_long_scores_of_both_signs_are_as_before(case):
    data = rare_outcome(1, share=0.5 if case == "common outcome" else 0.1)
    schema = SCHEMA
    if case == "even column":
        data["km"] = np.random.default_rng(2).uniform(1.0, 60.0, len(data))
    if case == "tight bounds":
        schema = pi.Schema({"y": [0, 1], "km": (1, 25)})
        data["km"] = data["km"].clip(upper=25.0)
    assert NOTE not in notes_of(fit_of(data, schema))


def test_without_noise_nothing_is_named():
    fit = pi.OLS.from_formula("y ~ km", rare_outcome(3), schema=SCHEMA).fit(epsilon=np.inf)
    assert NOTE not in notes_of(fit)


def one_step(**clip):
    values = {"low": 5.0, "high": 15.0, "ratio": 0.1, "weight": 1.06, "between": 900.0, "cut": 40.0}
    return SimpleNamespace(
        clip=Clip(**values | clip),
        influence=np.diag([2.0, 1.0]),
        initial=SimpleNamespace(
            gram=np.array([[1.0, -0.8], [-0.8, 0.67]]),
            whitening=np.eye(2),
            theta=np.array([-0.8, 0.0]),
            unit=0.2,
        ),
        n=1_000,
    )


def rows_of(*, low=-1.0, indicator=False, bounds=(1.0, 60.0)):
    design = SimpleNamespace(
        constant=0,
        names=("Intercept", "km"),
        columns=[SimpleNamespace(indicator=False), SimpleNamespace(indicator=indicator)],
        low=np.array([1.0, bounds[0]]),
        high=np.array([1.0, bounds[1]]),
        y_low=0.0,
        y_high=1.0,
    )
    limits = np.array([1.0, -1.0]), np.ones(2)
    return SimpleNamespace(p=2, design=design, limits=limits, response_units=(0.5, 0.5, low, 1.0))


def test_the_allowance_is_the_excess_beyond_the_clip_along_rows_far_out():
    """X(C) = 90 and one sd of it, 36 / 3.6 * 15 / 2 = 75, along (1, 1)/sqrt 2, over n."""
    step = one_step(beyond=90.0, hidden=36.0)
    columns, along = one_sided_columns(rows_of(), step)
    assert columns == [1]
    np.testing.assert_allclose(along, [[np.sqrt(0.5), np.sqrt(0.5)]])
    expected = 165.0 * np.array([2.0, 1.0]) * np.sqrt(0.5) / 1_000
    np.testing.assert_allclose(OneStepFit.bias_along(step, np.eye(2), along), expected)
    np.testing.assert_array_equal(OneStepFit.bias_along(step, np.eye(2), np.empty((0, 2))), [0.0, 0.0])


def test_score_tests_count_the_excess_as_noise_along_the_same_directions():
    """(X(C)/n)^2 d d' is added to the covariance that noise and tails give the scores, times n."""
    step = one_step(beyond=90.0)
    parts = {"lower": np.zeros(2), "upper": np.zeros(2), "hessian": np.eye(2), "released_hessian": np.eye(2)}
    parts |= {"meat": np.eye(2), "score_sd": 0.1, "upper_sd": 0.0, "hessian_sd": 0.1}
    vars(step).update(parts, measures=SimpleNamespace(residual_floor=1.0))
    known = [
        OneStepFit.score_equation(step, np.eye(2), np.zeros(2, bool), "HC0", directions).known
        for directions in (np.empty((0, 2)), np.array([[0.6, 0.8]]))
    ]
    expected = 1_000 * (90.0 / 1_000) ** 2 * np.array([[0.36, 0.48], [0.48, 0.64]])
    np.testing.assert_allclose(known[1] - known[0], expected)


def test_responses_and_columns_that_reach_both_ways_and_indicators_are_left_out():
    step = one_step(beyond=90.0, hidden=36.0)
    assert one_sided_columns(rows_of(low=-1.8), step)[0] == []
    assert one_sided_columns(rows_of(indicator=True), step)[0] == []
    assert one_sided_columns(rows_of(bounds=(0.0, 1.0)), step)[0] == []
    assert one_sided_columns(rows_of(), one_step(beyond=0.0))[0] == []
    assert one_sided_columns(rows_of(), one_step(beyond=90.0, high=8.0))[0] == []
    longer = one_step(beyond=90.0, high=30.0)
    assert one_sided_columns(rows_of(), longer)[0] == [1]
    longer.initial.unit = 0.1  # residuals of up to 18 typical ones
    assert one_sided_columns(rows_of(), longer)[0] == []
    step.initial.gram = np.array([[1.0, -0.2], [-0.2, 0.1]])
    assert one_sided_columns(rows_of(), step)[0] == []


def test_a_note_is_given_from_half_a_standard_error():
    assert note_of(rows_of(), [1], np.array([0.0, 0.4])) == ()
    assert note_of(rows_of(), [], np.array([9.0, 9.0])) == ()
    (note,) = note_of(rows_of(), [1], np.array([0.0, 1.2]))
    assert note.columns == ("km",)
    assert "1.2 standard errors" in note.text


@pytest.mark.audit
def test_intervals_cover_the_slope_of_a_rare_outcome():
    """The extrapolated tail alone covered 127 of 160."""
    fits = 120
    held = 0
    for seed in range(fits):
        fit = fit_of(rare_outcome(1_000 + seed), seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            low, high = fit.conf_int().loc["km"]
        held += low <= SLOPE <= high
    assert held / fits >= binomial_limits(0.95, fits)[0]
