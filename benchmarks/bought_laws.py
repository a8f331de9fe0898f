"""Laws of one column for benchmarks of bounds, quantiles and means: those of the method's page, and others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Law = Callable[[int, np.random.Generator], np.ndarray]

# On which the rules were chosen.
PAGE: dict[str, Law] = {
    "normal": lambda n, r: r.standard_normal(n),
    "uniform": lambda n, r: r.random(n),
    "exponential": lambda n, r: r.exponential(size=n),
    "lognormal .75": lambda n, r: np.exp(0.75 * r.standard_normal(n)),
    "t3": lambda n, r: r.standard_t(3, n),
    "gamma .5": lambda n, r: r.gamma(0.5, size=n),
    "bimodal": lambda n, r: np.where(r.random(n) < 0.3, -5, 5) + r.standard_normal(n),
    "heaped log income": lambda n, r: np.round(
        np.log(1e4 + 1e3 * np.round(60 * np.exp(0.9 * r.standard_normal(n)))), 2
    ),
    "Pareto 2.2": lambda n, r: r.random(n) ** (-1 / 2.2),
}
# On which nothing was chosen.
OWN: dict[str, Law] = {
    "years 1990-2019": lambda n, r: np.floor(1990 + 30 * r.random(n)),
    "Kelvin 280, sd 8": lambda n, r: 280 + 8 * r.standard_normal(n),
    "Poisson 2": lambda n, r: r.poisson(2, n).astype(float),
    "0/1, .3": lambda n, r: (r.random(n) < 0.3) * 1.0,
    "0/1, .03": lambda n, r: (r.random(n) < 0.03) * 1.0,
    "40% zero, lognormal 1": lambda n, r: (r.random(n) < 0.6) * np.exp(8 + r.standard_normal(n)),
    "90% zero, lognormal 1": lambda n, r: (r.random(n) < 0.1) * np.exp(8 + r.standard_normal(n)),
    "Weibull .6": lambda n, r: r.weibull(0.6, n),
    "Laplace at 1e6": lambda n, r: 1e6 + 100 * r.laplace(size=n),
    "5% at 50 sd": lambda n, r: r.standard_normal(n) + 50 * (r.random(n) < 0.05),
    "log-logistic 2.5": lambda n, r: (1 / r.random(n) - 1) ** -0.4,
}
