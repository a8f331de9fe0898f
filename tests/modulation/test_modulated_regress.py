"""Regressions on some of the columns of one modulated release; the response is any numeric column."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.modulation.equation import averaged_rows, feature_noise, part_system
from privinf.schema.columns import sub_design

SCHEMA = pi.Schema(
    {
        "y": (-5.0, 8.0),
        "a": (0.0, 4.0),
        "b": (-1.0, 1.0),
        "g": ["low", "mid", "top"],
        "q": pi.Numeric(-1.0, 1.0, public=True),
    }
)
FORMULAS = [
    "y ~ a + b",
    "a ~ b + C(g) - 1",
    "b ~ y + a",
    "a ~ q + y",
    "q ~ a",
    "y ~ C(g, Treatment('top')) + q",
]
OPTIONS = {"amplitude": 1.0, "contraction": 0.1}
MECHANISM = pi.Modulation(SCHEMA, "y ~ a + b + g + q", **OPTIONS)


def table(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    g = rng.choice(["low", "mid", "top"], n)
    a, b, q = rng.uniform(0, 4, n), rng.uniform(-1, 1, n), rng.uniform(-1, 1, n)
    y = 1 + 0.5 * a - 0.7 * b + 0.5 * (g == "mid") + 0.3 * rng.standard_normal(n)
    return pd.DataFrame({"g": g, "a": a, "b": b, "q": q, "y": np.clip(y, -5, 8)})


ROWS = table()
EXACT = MECHANISM.release(ROWS, epsilon=math.inf)


@pytest.mark.parametrize("formula", FORMULAS)
def test_without_noise_it_is_statsmodels(formula):
    fit, expected = EXACT.regress(formula), smf.ols(formula, ROWS).fit(cov_type="HC0")
    np.testing.assert_allclose(fit.params, expected.params, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(fit.bse, expected.bse, rtol=1e-8)
    assert list(fit.names) == list(expected.params.index)


@pytest.mark.audit
def test_scores_are_unbiased_with_the_noise_that_is_claimed():
    """Along the modulation's directions the noises of two columns go together, in mean and in variance."""
    formulas = FORMULAS[:4]
    maps = {formula: sub_design(MECHANISM.design, formula).maps for formula in formulas}
    truth = {}
    for formula in formulas:
        exact = part_system(EXACT, maps[formula])
        truth[formula] = np.linalg.solve(exact.A, exact.g)
    scores, claimed = ({formula: [] for formula in formulas} for _ in range(2))
    rng = np.random.default_rng(1)
    for _ in range(150):
        release = MECHANISM.release(ROWS, mu=40.0, rng=rng)
        for formula, b in truth.items():
            system = part_system(release, maps[formula])
            scores[formula].append(system.g - system.A @ b)
            claimed[formula].append(np.diag(system.noise_meat(b)) / system.n)
    for formula in formulas:
        found = np.array(scores[formula])
        assert (np.abs(found.mean(axis=0)) < 4.5 * found.std(axis=0) / math.sqrt(len(found))).all(), formula
        ratio = found.std(axis=0) / np.sqrt(np.mean(claimed[formula], axis=0))
        assert (np.abs(ratio - 1.0) < 4.5 / math.sqrt(2 * len(found))).all(), (formula, ratio)


@pytest.mark.audit
def test_noise_meat_is_what_follows_from_the_clean_rows():
    """mean r^2 S + q (mean x x' + S) + d d' + fourth cumulants, at the clean rows' own coefficients."""
    for formula in FORMULAS[:4]:
        maps = sub_design(MECHANISM.design, formula).maps
        exact = part_system(EXACT, maps)
        b = np.linalg.solve(exact.A, exact.g)
        w = np.append(-b, 1.0)
        clean = np.column_stack([averaged_rows(EXACT), EXACT.arrays["response"]]) @ maps.T
        x, r = clean[:, :-1], clean @ w
        releases = [MECHANISM.release(ROWS, mu=40.0, rng=seed) for seed in range(25)]
        found = np.mean([part_system(release, maps).noise_meat(b) for release in releases], axis=0)
        law, noise = releases[0].noise_model, feature_noise(releases[0])
        S = np.zeros((maps.shape[1],) * 2)
        S[:-1, :-1], S[-1, -1] = noise.cov, law["response_scale"] ** 2
        S = maps @ S @ maps.T
        q, d = w @ S @ w, (S @ w)[:-1]
        along = np.column_stack([noise.directions, np.zeros(len(noise.directions))]) @ maps.T
        fourth = (along[:, :-1].T * (noise.cumulants * (along @ w) ** 2)) @ along[:, :-1]
        S = S[:-1, :-1]
        expected = np.mean(r**2) * S + q * (x.T @ x / len(x) + S) + np.outer(d, d) + fourth
        size = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
        assert (np.abs(found - expected) < 0.02 * size).all(), formula


def test_noise_of_the_response_that_goes_with_that_of_a_column_is_subtracted():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (100_000, 1))
    shared = rng.standard_normal((100_000, 1))
    seen, y = x + shared, 2.0 * x[:, 0] + 0.5 * shared[:, 0]
    system = CorrectedLeastSquares(seen, y, [[1.0]], y_noise_var=0.25, y_noise_cross=[0.5])
    b = np.linalg.solve(system.A, system.g)
    assert b[0] == pytest.approx(2.0, abs=0.05)
    assert system.residual_variance(b) == pytest.approx(0.0, abs=0.05)
    assert system.tensor().shape == (2, 2, 1, 1)
    w = np.append(b, 1.0)
    np.testing.assert_allclose(np.einsum("k,l,klab->ab", w, w, system.tensor()), system.meat(b), rtol=1e-9)
    for wrong in ({"y_noise_cross": [0.5, 0.5]}, {"fourth_response": [1.0]}):
        with pytest.raises(ArgumentError, match=r"must have length [01]"):
            CorrectedLeastSquares(seen, y, [[1.0]], **wrong)


def test_a_fit_of_a_part_saves_loads_and_flags():
    release = MECHANISM.release(ROWS, mu=40.0, rng=0)
    fit = release.regress("a ~ y + C(g) - 1")
    assert not fit.identification.weak
    assert (
        np.abs(fit.params - smf.ols("a ~ y + C(g) - 1", ROWS).fit().params.to_numpy()) < 5 * fit.bse
    ).all()
    weak = MECHANISM.release(ROWS, mu=0.5, rng=0).regress("a ~ y + C(g) - 1")
    assert weak.identification.weak
    assert list(release.regress("y + a ~ b")) == ["y", "a"]
    assert release.regress("y ~ a", stabilization="fuller").options["Stabilization"].startswith("Fuller")


def test_results_come_back_from_files(tmp_path):
    release = MECHANISM.release(ROWS, mu=40.0, rng=0)
    release.save(tmp_path / "release.npz")
    fit = pi.load_release(tmp_path / "release.npz").regress("b ~ y + a")
    fit.save(tmp_path / "fit.npz")
    again = pi.load_results(tmp_path / "fit.npz")
    assert again.params.equals(release.regress("b ~ y + a").params)
    assert again.score_test().statistic == fit.score_test().statistic


def test_rounds_are_averaged():
    model = pi.ModulatedOLS.from_formula("y ~ a + b", ROWS, schema=SCHEMA)
    release = model.release(method="iterative", rounds=3, mu=60.0, rng=0)
    fit = release.regress("a ~ y")
    assert (np.abs(fit.params - smf.ols("a ~ y", ROWS).fit().params.to_numpy()) < 5 * fit.bse).all()
    assert release.regress("y ~ a + b").params.to_numpy() == pytest.approx(
        release.regress().params.to_numpy()
    )


def test_what_is_refused():
    with pytest.raises(NotAvailableError, match="declared"):
        EXACT.regress("y ~ a * b")
    with pytest.raises(ArgumentError, match="estimator"):
        EXACT.regress("y ~ a", estimator="pooled")
    with pytest.raises(ArgumentError, match="'ridged' is not an"):
        EXACT.regress("y ~ a", ridged=1.0)
    with pytest.raises(ArgumentError, match="release"):
        pi.ModulatedOLS.from_formula("y ~ a + b", ROWS, schema=SCHEMA).regress("y ~ a")
    for name in ("means", "corr", "partial_corr"):
        with pytest.raises(NotAvailableError, match=name):
            getattr(EXACT, name)()
