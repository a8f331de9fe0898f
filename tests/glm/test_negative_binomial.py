"""Negative binomial regression: statsmodels without noise, its dispersion with noise, and refusals."""

import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import nbinom

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError, SchemaError
from privinf.glm import dispersion
from privinf.glm.dispersion import CountCells, Dispersion, DispersionEquation
from privinf.glm.margins import at_point
from privinf.inference.estimate import Estimate

B = np.array([0.5, 0.5, -0.3])
SCHEMA = pi.Schema({"y": (0, 60), "a": (-1, 1), "b": (-1, 1), "t": (0.5, 2.0)})


def people(n, alpha=1.0, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.uniform(-1.0, 1.0, (n, 2)), columns=["a", "b"])
    frame["t"] = rng.uniform(0.5, 2.0, n)
    mean = frame.t * np.exp(B[0] + frame[["a", "b"]].to_numpy() @ B[1:])
    mixed = mean * rng.gamma(1.0 / alpha, alpha, n) if alpha else mean
    frame["y"] = np.minimum(rng.poisson(mixed), 60).astype(float)
    return frame


def fitted(frame, **options):
    kind = {"epsilon": 2.0, "delta": 1e-6, "rng": 1} | options
    return pi.NegativeBinomial.from_formula("y ~ a + b", frame, schema=SCHEMA, exposure="t").fit(**kind)


@pytest.fixture(scope="module")
def frame():
    return people(8_000)


@pytest.fixture(scope="module")
def private(frame):
    return fitted(frame)


def test_without_noise_it_is_maximum_likelihood(frame):
    result = fitted(frame, epsilon=math.inf)
    X = sm.add_constant(frame[["a", "b"]])
    theirs = sm.NegativeBinomial(frame.y, X, exposure=frame.t).fit(disp=0)
    np.testing.assert_allclose(result.params, theirs.params[:-1], atol=2e-4)
    assert result.alpha == pytest.approx(theirs.params["alpha"], abs=2e-3)
    assert result.alpha_bse == pytest.approx(theirs.bse["alpha"], rel=0.1)
    at_alpha = sm.GLM(frame.y, X, sm.families.NegativeBinomial(alpha=result.alpha), exposure=frame.t)
    robust = at_alpha.fit(cov_type="HC0")
    np.testing.assert_allclose(result.params, robust.params, atol=1e-7)
    np.testing.assert_allclose(result.bse, robust.bse, rtol=0.03)


def test_counts_of_a_poisson_model_have_no_dispersion():
    result = fitted(people(20_000, 0.0))
    low, high = result.alpha_conf_int()
    assert low == 0.0
    assert high < 0.1
    assert result.alpha < 0.05


def test_coefficients_and_dispersion_are_near_the_truth(private):
    assert (np.abs(private.params - B) < 4.0 * private.bse).all()
    low, high = private.alpha_conf_int()
    assert low < 1.0 < high
    assert low < private.alpha < high
    wider = private.alpha_conf_int(0.01)
    assert wider[0] < low
    assert wider[1] > high
    assert f"Dispersion:          {private.alpha:.3g} [{low:.3g}, {high:.3g}]" in str(private.summary())


def test_the_budget_is_spent_and_no_more(private):
    assert private.privacy.mu == pytest.approx(pi.Budget(epsilon=2.0, delta=1e-6).mu, rel=1e-9)
    labels = [entry.label for entry in private.privacy.entries]
    assert labels.count("dispersion") == labels.count("dispersion, slope") == 2
    assert labels.count("dispersion, variance of the equation") == 1


@pytest.mark.parametrize("member", ["params", "bse", "pvalues", "tvalues"])
def test_alpha_is_named_where_statsmodels_has_it(private, member):
    series = getattr(private, member)
    with pytest.raises(KeyError, match=r"use result\.alpha, result\.alpha_bse"):
        series["alpha"]
    assert series.get("alpha") is None
    assert series["a"] == series.iloc[1]
    assert type(series * 2.0) is pd.Series
    pd.testing.assert_series_equal(pickle.loads(pickle.dumps(series)), series)
    with pytest.raises(KeyError):
        series["nonsense"]
    assert not series.to_numpy().flags.writeable


def test_what_a_result_offers(private, tmp_path):
    assert private.family == "negative-binomial"
    np.testing.assert_allclose(private.rate_ratios().iloc[:, 0], np.exp(private.params))
    private.save(tmp_path / "fit")
    loaded = pi.load_results(tmp_path / "fit")
    assert type(loaded) is type(private)
    assert loaded.alpha_conf_int() == private.alpha_conf_int()
    json.dumps(private.to_dict())
    assert pi.compare([private, loaded]) is not None
    new = {"a": [0.0, 0.5], "b": [0.0, 0.5]}
    prediction = private.get_prediction(new)
    mean = prediction.predicted_mean
    ends = nbinom.ppf([0.025, 0.975], 1.0 / private.alpha, 1.0 / (1.0 + private.alpha * mean.iloc[0]))
    np.testing.assert_allclose(
        prediction.summary_frame()[["obs_ci_lower", "obs_ci_upper"]].iloc[0], ends, atol=1
    )
    assert private.get_margeff(at="mean").margeff.shape == (2,)
    with pytest.raises(NotAvailableError, match="margins=True"):
        private.get_margeff()


def test_average_effects_are_those_of_the_mean(frame):
    result = fitted(frame, epsilon=8.0, margins=True)
    effects = result.get_margeff()
    truth = frame.y.mean() * B[1:]
    assert (np.abs(effects.margeff - truth) < 4.0 * effects.margeff_se).all()


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
def test_sites_sum_what_a_curator_sums(frame, trust):
    halves = {"north": frame.iloc[:5_000], "south": frame.iloc[5_000:]}
    pairs = {name: (part.y, pi.add_constant(part[["a", "b"]])) for name, part in halves.items()}
    model = pi.NegativeBinomial.from_arrays(
        pairs, bounds={"a": (-1, 1), "b": (-1, 1)}, y_bounds=(0, 60), trust=trust
    )
    result = model.fit(epsilon=4.0, delta=1e-6, rng=0)
    assert result.alpha_conf_int()[0] < 1.2
    assert result.privacy.trust == trust


def test_incomplete_rows_are_dropped(frame):
    rows = frame.copy()
    rows.loc[::4, "a"] = np.nan
    model = pi.NegativeBinomial.from_formula("y ~ a + b", rows, schema=SCHEMA, exposure="t", missing="drop")
    result = model.fit(epsilon=4.0, delta=1e-6, rng=2)
    assert abs(result.nobs / len(rows) - 0.75) < 0.05
    assert (np.abs(result.params - B) < 4.5 * result.bse).all()
    low, high = result.alpha_conf_int(0.001)
    assert low < 1.0 < high


def test_what_other_models_of_counts_have_is_refused(frame):
    model = pi.NegativeBinomial.from_formula("y ~ a + b", frame, schema=SCHEMA)
    with pytest.raises(ArgumentError, match="dispersion is that of single counts"):
        pi.NegativeBinomial.from_formula("y ~ a", frame, schema=SCHEMA, weights="t")
    with pytest.raises(ArgumentError, match="use Poisson"):
        model.fit(epsilon=1.0, delta=1e-6, optimizer=pi.Newton())
    with pytest.raises(NotAvailableError, match="HC1"):
        model.fit(epsilon=1.0, delta=1e-6, cov_type="HC1")
    with pytest.raises(ArgumentError, match="family"):
        pi.GLM.from_formula("y ~ a", frame, schema=SCHEMA, family="negative-binomial")
    assert not hasattr(pi.Poisson.from_formula("y ~ a", frame, schema=SCHEMA).fit(mu=1.0, rng=0), "alpha")


@pytest.mark.parametrize("count", [0.0, 1.0, 60.0])
def test_counts_that_do_not_vary_end_without_a_crash(count):
    result = fitted(people(4_000).assign(y=count), epsilon=4.0)
    if result.estimate.cov is not None:
        low, high = result.alpha_conf_int()
        assert 0.0 <= low <= high


def test_too_few_rows_are_refused_before_a_charge():
    model = pi.NegativeBinomial.from_formula("y ~ a + b", people(60), schema=SCHEMA)
    with pytest.raises(NotAvailableError, match="Poisson"):
        model.fit(epsilon=0.2, delta=1e-6)
    assert len(model.ledger) == 0
    assert "no intervals" in model.without_intervals(epsilon=0.2, delta=1e-6)


# ---- the equation of the dispersion


@pytest.mark.parametrize("alpha", [0.01, 0.5, 5.0])
@pytest.mark.parametrize("end", [4.0, 30.0])
def test_psi_has_mean_zero_and_does_not_move_with_the_mean(alpha, end):
    means = np.array([0.1, 1.0, 6.0])
    cells = CountCells.up_to(end, alpha)
    psi = DispersionEquation.at(cells, means, alpha)
    assert np.allclose(cells.chances(means, alpha).sum(axis=1), 1.0)

    def expected(moved):
        g, y = cells.expected(means * moved, alpha)
        return g - psi.factors * y - psi.centers

    assert np.abs(expected(1.0)).max() < 1e-12
    slope = (expected(1.01) - expected(0.99)) / 0.02
    bend = np.abs(expected(1.01) + expected(0.99)) / 0.01**2
    assert (np.abs(slope) < 1e-3 * (1.0 + bend)).all()
    assert (psi.slopes > 0.0).all()


@pytest.mark.parametrize("width", [1.0, 3.0])
def test_probabilities_of_cells_are_negative_binomial(width):
    cells = CountCells(width, np.zeros((2, 5)))
    means = np.array([0.5, 4.0])
    chances = cells.chances(means, 0.8)
    for mean, row in zip(means, chances, strict=True):
        law = nbinom(1.0 / 0.8, 1.0 / (1.0 + 0.8 * mean))
        ends = width * np.arange(1, 5)
        np.testing.assert_allclose(np.cumsum(row)[:-1], law.cdf(ends - 1.0), atol=1e-12)


def test_wide_cells_hold_many_counts(monkeypatch):
    monkeypatch.setattr(dispersion, "MOST_CELLS", 120)
    frame = people(20_000)
    result = fitted(frame, epsilon=math.inf)
    assert result.alpha == pytest.approx(1.0, abs=0.08)


def test_weights_keep_psi_between_its_ends():
    psi = DispersionEquation.at(CountCells.up_to(20.0, 1.0), np.array([0.2, 1.0, 9.0]), 1.0)
    r = psi.weights(-0.3, 0.8)
    assert (r * psi.lowest >= -0.3 - 1e-12).all()
    assert (r * psi.highest <= 0.8 + 1e-12).all()


def test_an_estimate_survives_a_file_and_knows_when_it_is_hidden():
    kind = {"working": 1.0, "mean": 0.01, "sampling": 1e-6, "noise": 1e-6, "slope": 0.1}
    one = Dispersion(**kind, alphas=(0.001, 1.0, 20.0), expected=(-0.1, 0.0, 1.9))
    assert Dispersion.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    assert one.estimate == pytest.approx(1.1)
    hidden = Dispersion(**kind, alphas=(0.001, 1.0, 20.0), expected=(-0.1, 0.0, 1.9), identified=False)
    assert hidden.interval(0.05) == (0.0, math.inf)
    biased = one.at_error(0.01).interval(0.05)
    assert biased[0] < one.interval(0.05)[0]


@pytest.mark.parametrize("role", ["exposure", "offset"])
def test_an_exposure_that_is_computed_is_refused_by_its_own_name(role):
    schema = pi.Schema({"visits": (0, 20), "age": (20, 80), "months": (1, 12)})
    rows = {"visits": [1.0] * 50, "age": [40.0] * 50, "months": [6.0] * 50}
    with pytest.raises(SchemaError, match=f"{role}='months/12' must be the name of a column: add its values"):
        pi.Poisson.from_formula("visits ~ age", rows, schema=schema, **{role: "months/12"})


def test_the_effect_of_a_column_does_not_have_the_bias_of_a_rare_level():
    """The bound was the largest ratio of a bias to a standard error, 3 here, for every effect."""
    cov = np.diag([0.01, 0.02, 0.03]) ** 2
    bias = np.array([0.0, 0.0, 0.09])
    estimate = Estimate(np.array([0.1, 0.5, 0.8]), cov, ("const", "x", "rare"), 5_000, bias=bias)
    effects = at_point("poisson", estimate, np.array([1.0, 0.2, 0.01]), 0, "dydx")
    mean = math.exp(0.1 + 0.1 + 0.008)
    # x: its effect is mean * 0.5, and the bias of the rare level moves the mean alone.
    np.testing.assert_allclose(effects.precision.bias, mean * np.array([0.5 * 0.01, 1.0 + 0.8 * 0.01]) * 0.09)
    assert effects.precision.bias[0] < 0.1 * effects.precision.se[0]


def test_tables_for_papers_name_the_exposure():
    model = pi.NegativeBinomial.from_formula("y ~ a + b", people(6_000), schema=SCHEMA, exposure="t")
    fit = model.fit(epsilon=4.0, delta=1e-6, rng=0)
    for text in (fit.to_latex(), fit.to_html(), fit.rate_ratios().to_latex()):
        assert "Exposure: t." in text
    assert "Exposure: t = 1." in fit.get_margeff("mean").to_latex()
    assert "Exposure of counts: t." in pi.compare({"counts": fit}).to_latex()
