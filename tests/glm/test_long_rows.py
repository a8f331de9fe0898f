"""Negative binomial fits in which the rows of a rare level make up the tail of the scores."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.glm.curved import TailBias
from privinf.glm.long_rows import long_rows, note_of_levels
from studies.simulation import binomial_limits

SCHEMA = pi.Schema({"visits": (0, 40), "age": (-1, 1), "region": ["north", "south", "island"]})
LEVEL = "C(region)[T.island]"
NOTE = "few records have the level 'C(region)[T.island]', and their large counts are clipped"


def people(seed, *, rows=24_000, share=0.01, effect=1.0):
    """Return counts with dispersion 0.5 and a level of few rows."""
    rng = np.random.default_rng(seed)
    region = rng.choice(3, rows, p=[0.6 - share, 0.4, share])
    age = rng.uniform(-1.0, 1.0, rows)
    mean = np.exp(-0.2 + 0.2 * (region == 1) + effect * (region == 2) + 0.5 * age)
    visits = np.minimum(rng.poisson(mean * rng.gamma(2.0, 0.5, rows)), 40)
    names = np.array(SCHEMA["region"].levels)[region]
    return pd.DataFrame({"visits": visits, "age": age, "region": names})


def fit_of(data, seed, model=pi.NegativeBinomial):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.from_formula("visits ~ age + C(region)", data, schema=SCHEMA).fit(
            epsilon=2.0, delta=1e-6, rng=seed, progress=False
        )


def notes_of(fit):
    return " ".join(str(fit.summary(notes="all")).split()).lower()


def test_the_interval_of_a_rare_level_allows_for_the_whole_tail():
    fit = fit_of(people(0), 0)
    assert NOTE.lower() in notes_of(fit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        half = fit.conf_int().diff(axis=1).iloc[:, 1] / (2.0 * 1.96 * fit.bse)
    assert half[LEVEL] > 2.0
    assert (half.drop(["Intercept", LEVEL]) < 1.5).all()


def test_levels_of_more_rows_and_poisson_fits_are_as_before():
    assert NOTE.lower() not in notes_of(fit_of(people(1, share=0.2), 1))
    assert NOTE.lower() not in notes_of(fit_of(people(1), 1, pi.Poisson))


def outcome_of(*, share=0.02, along=True):
    mean = np.array([1.0, share, -0.8])
    second = np.array([[1.0, share, -0.8], [share, share, -0.8 * share], [-0.8, -0.8 * share, 0.67]])
    hidden = TailBias(upper=np.zeros(3), upper_sd=0.0, between=2.0, ratio=0.1, along=mean if along else None)
    return SimpleNamespace(
        hidden=hidden, walk=SimpleNamespace(second=second), place=SimpleNamespace(transform=np.eye(3))
    )


ROWS = SimpleNamespace(
    p=3,
    limits=(np.array([1.0, 0.0, -1.0]), np.ones(3)),
    design=SimpleNamespace(
        constant=0, columns=[SimpleNamespace(indicator=name) for name in (False, True, False)]
    ),
)


def test_directions_are_those_of_rows_with_the_level_and_of_rows_far_out():
    found = long_rows(ROWS, outcome_of())
    assert found.levels == [1]
    level, far = np.array([1.0, 1.0, -0.8]), np.array([1.0, 0.02, 1.0])
    expected = [level / np.linalg.norm(level), 0.25 * far / np.linalg.norm(far)]
    np.testing.assert_allclose(found.directions, expected)


def test_levels_that_are_not_rare_and_poisson_fits_have_no_directions():
    assert long_rows(ROWS, outcome_of(share=0.2)).levels == []
    assert long_rows(ROWS, outcome_of(along=False)).directions.shape == (0, 3)


def test_the_bias_along_directions_is_the_excess_and_its_noise():
    tail = TailBias(upper=np.zeros(2), upper_sd=1.0, between=2.0, ratio=0.1, curvature=0.2, beyond_sd=0.05)
    influence = np.array([[3.0, 4.0], [0.0, 1.0]])
    np.testing.assert_allclose(
        tail.bias_along(influence, np.array([[1.0, 0.0], [0.0, 0.5]])), [0.25 * 3.0 + 0.5, 0.25 * 0.5 + 0.1]
    )
    np.testing.assert_allclose(tail.bias_along(influence, np.empty((0, 2))), [0.5, 0.1])


def test_the_note_names_the_level_with_the_largest_bias():
    names = ("Intercept", "f[b]", "f[c]")
    assert note_of_levels(names, [1, 2], np.array([9.0, 0.5, 0.9])) == ()
    assert note_of_levels(names, [], np.full(3, 9.0)) == ()
    (note,) = note_of_levels(names, [1, 2], np.array([9.0, 1.5, 2.5]))
    assert note.columns == ("f[c]",)
    assert "2.5 standard errors" in note.text


@pytest.mark.audit
def test_intervals_cover_the_coefficient_of_a_rare_level():
    """Without the allowance they covered 3 of 10 in benchmarks/results/rare_levels.md."""
    held = []
    for seed in range(40):
        fit = fit_of(people(100 + seed), seed)
        if fit.estimate.cov is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            low, high = fit.conf_int().loc[LEVEL]
        held.append(low <= 1.0 <= high)
    assert len(held) >= 30
    assert np.mean(held) >= binomial_limits(0.95, len(held))[0]
