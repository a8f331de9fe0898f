"""Rows and fits that the tests of dask and of Spark share."""

import numpy as np
import pandas as pd

import privinf as pi

SCHEMA = pi.Schema({"y": (0, 10), "x": (-1, 2), "w": (-3, 7), "g": ["a", "b", "c"], "b": (0, 1), "c": (0, 9)})
FITS = [
    (pi.MomentOLS, "y ~ x + w + g", {}),
    (pi.MomentOLS, "y ~ x + w", {"cov_type": "nonrobust"}),
    (pi.OLS, "y ~ x + w + g", {}),
    (pi.Logit, "b ~ x + g", {}),
    (pi.Poisson, "c ~ x + np.log(w + 10)", {}),
]


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
    return frame.assign(b=(frame["y"] > 3).astype(int), c=frame["w"].clip(lower=0))


def fitted(model, formula, options, data):
    fit = model.from_formula(formula, data, schema=SCHEMA).fit(mu=2.0, rng=4, **options)
    return fit.nobs, fit.params.to_numpy().tobytes(), fit.bse.to_numpy().tobytes()
