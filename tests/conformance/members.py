"""Every public member of a results object can be touched: it has words, and gives a value or a reason."""

import inspect
import warnings
from functools import cache
from types import SimpleNamespace
from zlib import crc32

import numpy as np
import pytest
from privacy.replay_fits import FIRST, FITS

import privinf as pi
from privinf.accounting import Ledger
from privinf.noise import entropy
from privinf.results.rendering import UnavailableAttributes

WITHHELD = {name for name in vars(UnavailableAttributes) if not name.startswith("_")}
SQUARES = {
    "scale_noise",
    "rsquared_noise",
    "centered_tss",
    "ssr",
    "ess",
    "mse_resid",
    "mse_model",
    "mse_total",
}


def score_tests_are_consistent(results):
    """Restrictions in all forms are one test; those of all slopes are the default test."""
    slopes = [name for name in results.names if name != "Intercept"]
    one = results.score_test(f"{slopes[0]} = {slopes[1]}")
    assert one.df == 1
    assert 0.0 <= one.pvalue <= 1.0
    R = np.zeros((1, len(results.names)))
    R[0, [results.names.index(name) for name in slopes[:2]]] = 1.0, -1.0
    for same in (R, (R, 0.0), (2.0 * R, [0.0]), [f"{slopes[0]} - {slopes[1]}"]):
        assert results.score_test(same).statistic == pytest.approx(one.statistic, rel=1e-6)
    some = results.score_test(slopes[:2])
    assert some.df == 2
    values = results.score_test({slopes[0]: 0.3, slopes[1]: -0.1})
    assert values.null.tolist() == [0.3, -0.1]
    every, default = results.score_test(slopes), results.score_test()
    assert every.df == default.df
    assert every.statistic == pytest.approx(default.statistic, rel=1e-5)
    for wrong in ("nothing = 0", ["a", "2 * a"], np.zeros((1, len(results.names))), "a ~ b"):
        with pytest.raises(pi.errors.ArgumentError):
            results.score_test(wrong)


def touch_all(results, refused):
    """Touch every public member; those of `refused` must say why they have no value."""
    for member in dir(type(results)):
        if member.startswith("_"):
            continue
        attribute = inspect.getattr_static(type(results), member)
        told = inspect.getdoc(getattr(type(results), member, None))
        assert told or isinstance(attribute, property), member
        if isinstance(attribute, property) or type(attribute).__name__ == "cached_property":
            if member in refused:
                with pytest.raises(pi.errors.NotAvailableError, match=r"\w+ \w+"):
                    getattr(results, member)
            else:
                getattr(results, member)


# ---- one fit of every model and kind of result, on rows or sites; most are too weak to be trusted

KINDS_OF_FIT = (
    "MomentOLS central",
    "MomentOLS central, HC0",
    "MomentOLS central, public columns",
    "MomentOLS central, radius",
    "MomentOLS central, weak",
    "MomentOLS local",
    "MomentOLS local, ridge",
    "MomentOLS secure sums",
    "MomentOLS trusted server, HC0",
    "Moments of columns, all that is made of them",
    "Moments of columns, local",
    "MomentOLS of arrays, public column",
    "ModulatedOLS one-shot",
    "ModulatedOLS iterative",
    "ModulatedOLS public response",
    "ModulatedOLS radius and public columns",
    "IWPGLM quadratic",
    "IWPGLM logistic, conditional",
    "IWPGLM logistic, series",
    "IWPGLM logistic, single pass",
    "IWPGLM multinomial",
    "IWPGLM counts",
    "IWPGLM exponential, radius",
    "IWPGLM logistic, Laplace noise",
    "RMGMOLS signs",
    "RMGMOLS the paper's estimate",
    "RMGMOLS shrunk",
    "DGMOLS",
    "DGMOLS finite population",
    "BGMOLS",
    "FederatedGLM gaussian, server",
    "FederatedGLM binomial, secure-sum",
    "FederatedGLM poisson, server",
    "FederatedGLM binomial, server, targets",
    "FederatedGLM binomial, server, Newton",
    "FederatedGLM gaussian, secure-sum, DPSGD",
    "FederatedGLM binomial, server, DOME",
    "FederatedGLM of arrays",
    "OLS central",
    "OLS central, factors",
    "OLS central, nonrobust",
    "OLS central, too little to spend",
    "Logit central",
    "Logit central, weak",
    "Poisson central",
    "PHReg central",
    "PHReg secure sums",
    "NegativeBinomial central",
    "OLS secure sums",
    "DebiasedLasso of named targets",
    "DebiasedLasso with a constant",
    "DebiasedLasso bias bound, eigenvalues, noise variance",
    "DebiasedLasso heterogeneous",
    "DebiasedLasso logistic",
    "DebiasedLasso logistic, heterogeneous",
    "DebiasedLasso secure sums",
)
SAMPLE = np.random.default_rng(7).normal(5.0, 1.0, 600).clip(0.0, 10.0)
GROUP = np.resize(["u", "v", "w"], 600)
SPEND = {"epsilon": 1.0, "delta": 1e-6, "rng": 0}
GROUPED = {"levels": ["u", "v", "w"], "bounds": (0, 10), **SPEND}
TESTS = {
    "mean": lambda: pi.stats.mean(SAMPLE, bounds=(0, 10), **SPEND),
    "mean, clip chosen": lambda: pi.stats.mean(SAMPLE, bounds=(0, 1000), clip="auto", **SPEND),
    "mean at a bound": lambda: pi.stats.mean(SAMPLE / 100.0, bounds=(0, 10), **SPEND),
    "t-test": lambda: pi.stats.ttest_1samp(SAMPLE, 4.0, bounds=(0, 10), alternative="greater", **SPEND),
    "t-test beyond the bounds": lambda: pi.stats.ttest_1samp(SAMPLE, -4.0, bounds=(0, 10), **SPEND),
    "two samples": lambda: pi.stats.ttest_ind(SAMPLE, SAMPLE[::-1] + 0.1, bounds=(0, 10), **SPEND),
    "anova": lambda: pi.stats.anova_oneway(SAMPLE, GROUP, **GROUPED),
    "pairs": lambda: pi.stats.anova_oneway(SAMPLE, GROUP, **GROUPED).pairwise(),
    "anova at a bound": lambda: pi.stats.anova_oneway(
        SAMPLE / 100.0 + 1.0, GROUP, **GROUPED | {"bounds": (1, 11), "epsilon": 30.0}
    ),
    "proportion": lambda: pi.stats.proportions_ztest(SAMPLE > 5.0, value=0.4, **SPEND),
    "quantiles": lambda: pi.stats.quantile(SAMPLE, [0.25, 0.5], bounds=(0, 10), **SPEND),
    "counts": lambda: pi.stats.counts(GROUP, levels=["u", "v", "w"], **SPEND),
    "crosstab of shares": lambda: pi.stats.crosstab(
        GROUP, SAMPLE > 5.0, levels=(["u", "v", "w"], [False, True]), target="population", **SPEND
    ).suppress(60.0),
    "shares of rows": lambda: pi.stats.crosstab(
        GROUP, SAMPLE > 5.0, levels=(["u", "v", "w"], [False, True]), **SPEND
    ).row_shares(),
    "histogram": lambda: pi.stats.histogram(SAMPLE, 12, bounds=(0, 10), simultaneous=True, **SPEND),
    "sums": lambda: pi.stats.sum(SAMPLE, by=GROUP, **GROUPED),
    "means by group": lambda: pi.stats.mean(SAMPLE, by=GROUP, target="table", **GROUPED),
    "medians by group": lambda: pi.stats.median(SAMPLE, by=GROUP, simultaneous=True, **GROUPED),
    "proportions": lambda: pi.stats.proportion_confint(GROUP, levels=["u", "v", "w"], **SPEND),
    "ranks": lambda: pi.stats.mannwhitneyu(SAMPLE, SAMPLE[::-1] + 0.1, **SPEND),
}


def results_in(made):
    """Return the results among what a fit made, those of parties as one."""
    if hasattr(made, "summary"):
        return [made]
    parts = made.values() if isinstance(made, dict) else made if isinstance(made, (tuple, list)) else ()
    return [found for part in parts for found in results_in(part)]


@cache
def fits_of(name):
    """Return the results of one of `KINDS_OF_FIT`, the same in every test, and what the fit warned of."""
    words = np.random.default_rng(crc32(name.encode()))
    with warnings.catch_warnings(record=True) as told, pytest.MonkeyPatch.context() as patch:
        patch.setattr(entropy, "system_bytes", words.bytes)
        patch.setattr(entropy, "os", SimpleNamespace(urandom=words.bytes))
        warnings.simplefilter("always", pi.errors.PrivinfWarning)
        made = FITS[name](FIRST, 0, Ledger())
    return results_in(made), [(one.category, str(one.message)) for one in told]
