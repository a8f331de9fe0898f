"""The peers' side: fits and audit draws, run by the peers' own Python on arrays that `measure.py` sends.

``python worker.py JOB.npz ANSWER.npz``: JOB has a `tool`, a `task` and the arrays that they need. Every tool is
called as its documentation says, with public bounds, and its noise is not seeded.
"""

from __future__ import annotations

import functools
import sys
import warnings

import numpy as np


def dp_statsmodels_ols(X, y, given):
    """Noisy X'X, X'y and y'y."""
    from dp_statsmodels.models.ols import DPOLS

    model = DPOLS(given["epsilon"], given["delta"], bounds_X=(-1, 1), bounds_y=given["y_bounds"])
    found = model.fit(y, X, add_constant=given["intercept"])
    return found.params, found.conf_int()


def dp_statsmodels_logit(X, y, given):
    """Objective perturbation."""
    from dp_statsmodels.models.logit import DPLogit

    model = DPLogit(given["epsilon"], given["delta"], bounds_X=(-1, 1))
    found = model.fit(y, X, add_constant=given["intercept"])
    return found.params, found.conf_int()


def binagg_ols(X, y, given):
    """PrivTree bins and noisy sums; the constant, which it does not add, is a column."""
    from binagg import dp_linear_regression, mu_from_eps_delta

    bounds = [(-1, 1)] * X.shape[1]
    if given["intercept"]:
        X, bounds = np.column_stack([np.ones(len(X)), X]), [(1, 1), *bounds]
    mu = mu_from_eps_delta(given["epsilon"], given["delta"])
    found = dp_linear_regression(X, y, bounds, given["y_bounds"], mu=mu)
    return found.coefficients, found.confidence_intervals


def diffprivlib_ols(X, y, given):
    """The functional mechanism; pure epsilon."""
    from diffprivlib.models import LinearRegression

    settings = {"bounds_X": (-1, 1), "bounds_y": given["y_bounds"], "fit_intercept": given["intercept"]}
    found = LinearRegression(epsilon=given["epsilon"], **settings).fit(X, y)
    return joined(found, given), None


def diffprivlib_logit(X, y, given):
    """Objective perturbation; pure epsilon, at its default penalty."""
    from diffprivlib.models import LogisticRegression

    norm = np.sqrt(X.shape[1])
    found = LogisticRegression(
        epsilon=given["epsilon"], data_norm=norm, fit_intercept=given["intercept"], max_iter=1000
    ).fit(X, y)
    return joined(found, given), None


@functools.cache
def opendp_model(epsilon, y_bounds):
    """Return the model whose scale spends epsilon on replacing one record: two changes."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")

    def model(scale):
        bounds = {"x_bounds": [(-1, 1)], "y_bounds": y_bounds}
        return dp.sklearn.linear_model.LinearRegression(dp.max_divergence(), scale=scale, **bounds)

    return model(dp.binary_search(lambda s: model(s).measurement.map(2) <= epsilon, bounds=(1e-3, 1e3)))


def opendp_ols(X, y, given):
    """Theil and Sen's slope of one feature; pure epsilon."""
    return joined(opendp_model(given["epsilon"], given["y_bounds"]).fit(X, y), given), None


def joined(found, given):
    """Return intercept and slopes of a scikit-learn estimator."""
    slopes = np.ravel(found.coef_)
    return np.r_[np.ravel(found.intercept_), slopes] if given["intercept"] else slopes


FITS = {
    "dp-statsmodels OLS": dp_statsmodels_ols,
    "dp-statsmodels Logit": dp_statsmodels_logit,
    "BinAgg": binagg_ols,
    "diffprivlib LinearRegression": diffprivlib_ols,
    "diffprivlib LogisticRegression": diffprivlib_logit,
    "OpenDP LinearRegression": opendp_ols,
}


def fits(job):
    """Return params and intervals (nan without) of every data set X[i], y[i]."""
    given = {name: job[name].item() for name in ("epsilon", "delta", "intercept")}
    given["y_bounds"] = tuple(job["y_bounds"].tolist())
    X, y, fit = job["X"], job["y"], FITS[job["tool"].item()]
    width = X.shape[2] + given["intercept"]
    params, intervals = np.full((len(X), width), np.nan), np.full((len(X), width, 2), np.nan)
    for i in range(len(X)):
        params[i], interval = fit(X[i], y[i], given)
        if interval is not None:
            intervals[i] = interval
    return {"params": params, "intervals": intervals}


def dp_statsmodels_ols_release(X, y, given):
    """One coefficient."""
    return dp_statsmodels_ols(X, y, {**given, "y_bounds": (-1, 1), "intercept": False})[0][0]


def dp_statsmodels_logit_release(X, y, given):
    """One coefficient, at the default penalty."""
    return dp_statsmodels_logit(X, y, {**given, "intercept": False})[0][0]


def diffprivlib_ols_release(X, y, given):
    """The size of the slope, with an intercept, of a feature between 0 and 100."""
    from diffprivlib.models import LinearRegression

    found = LinearRegression(epsilon=given["epsilon"], bounds_X=(0, 100), bounds_y=(0, 1)).fit(X, y)
    return -np.abs(found.coef_[0])


def opendp_ols_release(X, y, given):
    """The slope."""
    return opendp_ols(X, y, {**given, "y_bounds": (-1, 1), "intercept": True})[0][1]


def binagg_release(X, y, given):
    """The noisy sums of the bin of the corner (1, ..., 1), in units of their noise; no count is read.

    Under add or remove one record the sums of a bin move by one record at most.
    """
    from binagg import privatize_aggregates, privtree_binning
    from binagg.privacy import allocate_budget

    d = X.shape[1]
    mu_bin, mu_c, mu_s, mu_t = allocate_budget(given["mu"], (1, 3, 3, 3))
    bins = privtree_binning(X, y, [(-1, 1)] * d, mu_bin)
    shares = (mu_c, mu_s, mu_t)
    released = privatize_aggregates(bins, 1.0, float(np.linalg.norm(shares)), shares)
    corner = [i for i, one in enumerate(released.bins) if all(high >= 1.0 for _, high in one)]
    if not corner:
        return -np.inf
    i = corner[0]
    x = np.sum(released.noisy_sum_x[i] / released.sensitivity_x[i])
    return x * mu_s**2 + released.noisy_sum_y[i] * mu_t**2


RELEASES = {
    "dp-statsmodels OLS": dp_statsmodels_ols_release,
    "dp-statsmodels Logit": dp_statsmodels_logit_release,
    "diffprivlib LinearRegression": diffprivlib_ols_release,
    "OpenDP LinearRegression": opendp_ols_release,
    "BinAgg": binagg_release,
}


def releases(job):
    """Return a number that the tool releases of each of two neighbouring tables, `draws` times."""
    given = {name: job[name].item() for name in ("epsilon", "delta", "mu") if name in job}
    release, found = RELEASES[job["tool"].item()], []
    for world in ("0", "1"):
        X, y = job["X" + world], job["y" + world]
        found.append(np.array([release(X, y, given) for _ in range(job["draws"].item())]))
    return {"null": found[0], "alternative": found[1]}


def noises(job):
    """Return the tool's noise added to 0 and to 1, `draws` times each."""
    add, draws = NOISES[job["tool"].item()](), range(job["draws"].item())
    return {"null": np.array([add(0.0) for _ in draws]), "alternative": np.array([add(1.0) for _ in draws])}


def diffprivlib_laplace():
    from diffprivlib.mechanisms import Laplace

    return Laplace(epsilon=1.0, sensitivity=1.0).randomise


def dp_statsmodels_gaussian():
    from dp_statsmodels.privacy import GaussianMechanism

    return GaussianMechanism(1.0, 1.0, 1e-5).add_noise


def opendp_laplace():
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp.m.make_laplace(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=1.0)


NOISES = {
    "diffprivlib Laplace": diffprivlib_laplace,
    "dp-statsmodels GaussianMechanism": dp_statsmodels_gaussian,
    "OpenDP make_laplace": opendp_laplace,
}

TASKS = {"fits": fits, "releases": releases, "noises": noises}


def main(job_path, answer_path):
    warnings.simplefilter("ignore")
    with np.load(job_path) as stored:
        job = {name: stored[name] for name in stored.files}
    np.savez(answer_path, **TASKS[job["task"].item()](job))


if __name__ == "__main__":
    main(*sys.argv[1:])
