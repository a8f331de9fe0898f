"""Rows and fits that the tests of dask and of Spark share."""

import numpy as np
import pandas as pd

import privinf as pi

SCHEMA = pi.Schema(
    {
        "y": (0, 10),
        "x": (-1, 2),
        "w": (-3, 7),
        "g": ["a", "b", "c"],
        "b": (0, 1),
        "c": (0, 9),
        "t": (0, 12),
        "d": (0, 1),
    }
)
DECLARED = ("family", "status")  # options of `from_formula`; the others are those of `fit`
FITS = [
    (pi.MomentOLS, "y ~ x + w + g", {}),
    (pi.MomentOLS, "y ~ x + w", {"cov_type": "nonrobust"}),
    (pi.OLS, "y ~ x + w + g", {}),
    (pi.Logit, "b ~ x + g", {}),
    (pi.Poisson, "c ~ x + np.log(w + 10)", {}),
    (pi.GLM, "y ~ x + g", {"family": "gaussian"}),
    (pi.GLM, "b ~ x + w", {"family": "binomial"}),
    (pi.GLM, "c ~ x + g", {"family": "poisson"}),
    (pi.NegativeBinomial, "c ~ x + g", {}),
    (pi.PHReg, "t ~ x + g", {"status": "d"}),
]


def curves(data):
    """Return the numbers of survival curves of groups, with their log-rank test."""
    fit = pi.survival.KaplanMeier("t", "d", by="g", data=data, schema=SCHEMA).fit(mu=2.0, rng=4)
    return fit.tidy().to_numpy(dtype=str).tolist(), fit.logrank().statistic


def table(n=3000):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "y": rng.normal(3, 3, n),
            "x": rng.normal(0, 1, n),
            "w": rng.integers(-5, 9, n).astype(float),
            "g": rng.choice(["a", "b", "c"], n),
        }
    )
    frame = frame.assign(b=(frame["y"] > 3).astype(int), c=frame["w"].clip(lower=0))
    times = rng.exponential(5.0 * np.exp(-0.5 * frame["x"]), n).clip(max=12.0)
    return frame.assign(t=times, d=(rng.uniform(size=n) < 0.7).astype(int))


def fit_of(model, formula, options, data, **words):
    """Return the fit of a line of `FITS`."""
    words |= {name: option for name, option in options.items() if name in DECLARED}
    spent = {name: option for name, option in options.items() if name not in DECLARED}
    return model.from_formula(formula, data, schema=SCHEMA, **words).fit(mu=2.0, rng=4, **spent)


def fitted(model, formula, options, data):
    fit = fit_of(model, formula, options, data)
    return fit.nobs, fit.params.to_numpy().tobytes(), fit.bse.to_numpy().tobytes()
