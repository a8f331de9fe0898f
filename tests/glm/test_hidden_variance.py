"""The residual variance of least squares with its noise: hidden, floored and in prediction intervals."""

import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import NotAvailableError
from privinf.glm.least_squares import FitMeasures
from privinf.inference.noisy_variance import NoisyVariance, is_hidden


def skewed(seed, n=4000):
    g = np.random.default_rng(seed)
    age = np.clip(g.normal(62, 16, n), 18, 99)
    los = np.ceil(np.exp(1.0 + 0.012 * (age - 60) + g.normal(0, 0.7, n)))
    return pd.DataFrame({"age": age, "los": np.clip(los, 0, 90)})


SCHEMA = pi.Schema({"age": (18, 100), "los": (0, 90)})


def fitted(seed, epsilon, **options):
    model = pi.OLS.from_formula("los ~ age", skewed(seed), schema=SCHEMA)
    return model.fit(epsilon=epsilon, delta=1e-6, rng=seed, **options)


def hidden_fit(**options):
    """Return a fit of strong noise that hides the residual variance."""
    return next(r for r in (fitted(s, 0.5, **options) for s in range(60)) if r._context.variance_hidden)


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_a_hidden_residual_variance_is_not_printed_and_predictions_still_scatter():
    r = hidden_fit()
    text = " ".join(r.summary(notes="all").as_text().split())
    assert "1.0000" not in text.split("R-squared (corrected):")[1][:20]
    assert "Residual variance: not available" in text
    assert "Hidden residual variance" in text
    for name in ("rsquared", "scale", "rsquared_adj", "ssr"):
        with pytest.raises(NotAvailableError, match="hides the residual variance"):
            getattr(r, name)
    assert math.isnan(r.glance().sigma[0])
    assert math.isnan(r.glance().r_squared[0])
    frame = r.get_prediction({"age": [60]}).summary_frame().iloc[0]
    assert frame.obs_ci_upper - frame.mean_ci_upper > math.sqrt(2.0 * r.scale_noise) * 0.5


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_a_visible_residual_variance_has_its_noise():
    r = fitted(1, 20.0)
    truth = np.var(skewed(1).los)
    assert r.scale_noise < 0.2 * truth
    assert 0.0 < r.rsquared_noise < 0.2
    text = r.summary().as_text()
    assert f"Noise in variance: {r.scale_noise:.4f}" in " ".join(text.split())


def test_without_noise_nothing_is_added():
    r = pi.OLS.from_formula("los ~ age", skewed(1), schema=SCHEMA).fit(epsilon=math.inf)
    assert r.scale_noise == 0.0
    assert "Noise in" not in r.summary().as_text()


def test_intervals_of_new_observations_allow_for_few_degrees_of_freedom():
    from scipy.stats import t

    scatter = NoisyVariance(estimate=4.0, noise=1e-9, df=18.0)
    assert scatter.half_length(0.05) == pytest.approx(2.0 * t.ppf(0.975, 18), rel=1e-6)
    rows = pd.DataFrame({"age": np.linspace(20.0, 90.0, 40)})
    rows["los"] = 45.0 + 0.2 * rows.age + 20.0 * np.sin(np.arange(40.0))
    r = pi.OLS.from_formula("los ~ age", rows, schema=SCHEMA).fit(epsilon=3000.0, delta=1e-6, rng=1)
    frame = r.get_prediction({"age": [62.0]}).summary_frame()
    assert r.scale_noise > 0.0
    assert frame.obs_ci_upper[0] - frame["mean"][0] > t.ppf(0.975, 38) * math.sqrt(r.scale)


def test_a_residual_variance_above_that_of_the_response_is_hidden():
    measures = FitMeasures(0.5, 0.05, 0.1, 0.01)
    assert measures.checked(0.4) is measures  # within two sds of its noise
    hidden = measures.checked(0.3)
    assert hidden.visible() == (None, None)
    assert hidden.residual_floor == pytest.approx(0.3)


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_residuals_of_a_far_initial_estimate_are_not_the_residual_variance():
    """A response of 0 and 1, and a rare value: the estimate was 4.6, the variance of the response is 0.2."""
    from statsmodels.datasets import randhie

    rows = randhie.load_pandas().data.sample(frac=1.0, replace=True, random_state=4)
    rows["seen"] = (rows.mdvis > 0) * 1.0
    schema = pi.Schema({"seen": (0, 1), "lncoins": (0, 5), "hlthp": (0, 1)})
    model = pi.OLS.from_formula("seen ~ lncoins + hlthp", rows, schema=schema)
    r = model.fit(epsilon=1.0, delta=1e-6, rng=4)
    assert r._context.variance_hidden
    with pytest.raises(NotAvailableError, match="exceeds the variance of the response"):
        _ = r.scale


@pytest.mark.parametrize("relative", [0.05, 0.2, 0.35, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_intervals_of_new_observations_have_their_average_coverage(relative, alpha):
    from scipy.special import ndtr, ndtri

    z = -ndtri(alpha / 2.0)
    draws = 1.0 + relative * np.random.default_rng(0).standard_normal(20_000)
    limits = np.array([NoisyVariance(estimate=s, noise=relative).limit(alpha) for s in draws])
    coverage = np.mean(2.0 * ndtr(z * np.sqrt(limits)) - 1.0)
    assert coverage > 1.0 - alpha - 0.1 * alpha - 0.002


@pytest.mark.parametrize("relative", [0.1, 0.25, 0.4, 1.0, 3.0])
def test_a_visible_variance_is_rarely_below_half_of_the_truth(relative):
    draws = 1.0 + relative * np.random.default_rng(0).standard_normal(20_000)
    false = [not is_hidden(s, relative) and s < 0.5 for s in draws]
    assert np.mean(false) < 0.027


@pytest.mark.parametrize(("variance", "noise"), [(0.1, 0.3), (1.0, 0.3), (4.0, 0.1)])
def test_intervals_of_a_variance_cover(variance, noise):
    draws = variance + noise * np.random.default_rng(0).standard_normal(20_000)
    ends = np.array([NoisyVariance(estimate=s, noise=noise).interval(1.96) for s in draws])
    assert np.mean((ends[:, 0] <= variance) & (variance <= ends[:, 1])) > 0.945
