"""A finite epsilon needs a delta wherever noise is Gaussian; pure epsilon is asked for by delta=0."""

import contextlib
import math
import warnings

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import Budget, Ledger, calibrate_mu, plan
from privinf.errors import ArgumentError, LargeDeltaWarning, NotAvailableError
from privinf.federation import IdentityKey
from privinf.federation.envelope import Analyst
from privinf.mechanisms import NoisyTopK, noisy_scalar, private_max

N = 400
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"x": RNG.uniform(-1, 1, N), "z": RNG.uniform(-1, 1, N), "g": np.resize(["u", "v"], N)})
TABLE["y"] = (0.5 * TABLE.x + 0.2 * RNG.standard_normal(N)).clip(-1, 1)
TABLE["b"] = (TABLE.x > 0).astype(float)
SCHEMA = pi.Schema(dict.fromkeys(("x", "z", "y"), (-1, 1)) | {"g": ["u", "v"], "b": (0, 1)})
PARTIES = {"one": ["x"], "two": ["y"]}
# Every entry point that spends an epsilon by Gaussian noise: what it releases, given words and a ledger.
ENTRY_POINTS = {
    "OLS": lambda ledger, **words: of(pi.OLS, ledger).fit(**words),
    "Logit": lambda ledger, **words: of(pi.Logit, ledger, "b ~ x").fit(**words),
    "Poisson": lambda ledger, **words: of(pi.Poisson, ledger, "b ~ x").fit(**words),
    "GLM": lambda ledger, **words: of(pi.GLM, ledger, family="gaussian").fit(**words),
    "MomentOLS": lambda ledger, **words: of(pi.MomentOLS, ledger).fit(**words),
    "MomentOLS local": lambda ledger, **words: of(pi.MomentOLS, ledger, trust="local").release(**words),
    "DebiasedLasso": lambda ledger, **words: of(pi.DebiasedLasso, ledger).fit(
        sparsity=1, targets=["x"], **words
    ),
    "ModulatedOLS": lambda ledger, **words: of(pi.ModulatedOLS, ledger).release(**words),
    "IWPGLM": lambda ledger, **words: of(pi.IWPGLM, ledger, loss="squared").release(**words),
    "RMGMOLS": lambda ledger, **words: of(pi.RMGMOLS, ledger, parties=PARTIES).release(**words),
    "Moments": lambda ledger, **words: pi.Moments(SCHEMA, "y ~ x").release(TABLE, ledger=ledger, **words),
    "RandomMixing": lambda ledger, **words: pi.RandomMixing(SCHEMA, k=9, seed=1).release(
        TABLE, ledger=ledger, **words
    ),
    "find_bounds": lambda ledger, **words: pi.find_bounds(TABLE, ["x"], ledger=ledger, **words),
    "stats.mean": lambda ledger, **words: of_stats(pi.stats.mean, ledger, words),
    "stats.quantile": lambda ledger, **words: of_stats(
        lambda *a, **w: pi.stats.quantile(*a, 0.5, **w), ledger, words
    ),
    "stats.describe": lambda ledger, **words: pi.stats.describe(
        TABLE[["x"]], schema=pi.Schema({"x": (-1, 1)}), ledger=ledger, **words
    ),
    "noisy_scalar": lambda ledger, **words: noisy_scalar(1.0, 1.0, ledger=ledger, **words),
    "private_max": lambda ledger, **words: private_max([1.0, 2.0], 1.0, ledger=ledger, **words),
}
PURE = ("stats.mean",)
LOCAL = ("MomentOLS local", "ModulatedOLS", "IWPGLM")  # each record's own release, of which 1/n says nothing
NO_SUCH_LEVEL = (("IWPGLM", "mu"), ("IWPGLM", "rho"), ("DebiasedLasso", "mu"))


def of(model, ledger, formula="y ~ x", **options):
    return model.from_formula(formula, TABLE, schema=SCHEMA, ledger=ledger, **options)


def of_stats(test, ledger, words):
    return test(TABLE.x, bounds=(-1, 1), ledger=ledger, **words)


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_an_epsilon_without_delta_is_refused_with_a_delta_to_name(name):
    ledger = Ledger()
    with pytest.raises(
        ArgumentError, match=r"delta= is missing.*delta=1e-06, and delta should be at most 1/n"
    ):
        ENTRY_POINTS[name](ledger, epsilon=1.0, rng=0)
    assert not ledger.entries


@pytest.mark.parametrize("name", [name for name in ENTRY_POINTS if name not in PURE])
def test_pure_epsilon_is_refused_where_noise_is_gaussian(name):
    ledger = Ledger()
    with pytest.raises(ArgumentError, match="delta=0"):
        ENTRY_POINTS[name](ledger, epsilon=1.0, delta=0, rng=0)
    assert not ledger.entries


@pytest.mark.parametrize("name", ["OLS", "DebiasedLasso"])
def test_the_number_of_rows_is_named_where_it_is_known(name):
    with pytest.raises(ArgumentError, match=r"at most 1/n = 0\.0025"):
        ENTRY_POINTS[name](Ledger(), epsilon=1.0)


@pytest.mark.audit
@pytest.mark.parametrize("word", ["mu", "rho"])
@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_other_levels_need_no_delta(name, word):
    ledger = Ledger()
    refused = (NotAvailableError, ArgumentError) if (name, word) in NO_SUCH_LEVEL else NotAvailableError
    with contextlib.suppress(refused):  # a level that the model has not, or too few rows for a fit
        ENTRY_POINTS[name](ledger, **{word: 3.0}, rng=0)


@pytest.mark.parametrize(
    "name", ["OLS", "Logit", "MomentOLS", "find_bounds", "stats.mean", "stats.quantile", "stats.describe"]
)
def test_a_default_delta_is_at_most_one_in_two_n(name, monkeypatch):
    monkeypatch.setattr("privinf.accounting.report.DEFAULT_DELTA", 0.5)
    assert ENTRY_POINTS[name](Ledger(), mu=1.0, rng=0).privacy.default_delta == 0.5 / N


def test_default_deltas_of_clipped_means_and_of_curves_are_at_most_one_in_two_n(monkeypatch):
    monkeypatch.setattr("privinf.accounting.report.DEFAULT_DELTA", 0.5)
    mean = pi.stats.mean(TABLE.x, bounds=(-1, 1), clip="auto", mu=1.0, rng=0)
    curve = pi.survival.KaplanMeier(TABLE.x + 1.0, TABLE.b, horizon=2.0).fit(mu=1.0, rng=0)
    assert mean.privacy.default_delta == curve.privacy.default_delta == 0.5 / N


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
@pytest.mark.parametrize("name", ["OLS", "MomentOLS", "stats.mean", "noisy_scalar", "DebiasedLasso"])
def test_no_noise_needs_no_delta(name):
    ENTRY_POINTS[name](Ledger(), epsilon=math.inf)


def test_pure_epsilon_is_asked_for():
    for words in ({"delta": 0}, {"noise": "laplace"}, {"noise": "laplace", "delta": 0}):
        found = pi.stats.mean(TABLE.x, bounds=(-1, 1), epsilon=1.0, rng=0, **words)
        assert [entry.loss.to_dict()["kind"] for entry in found.privacy.entries] == ["pure"]
    with pytest.raises(ArgumentError, match=r"For pure epsilon-differential privacy .*, pass noise="):
        pi.stats.mean(TABLE.x, bounds=(-1, 1), epsilon=1.0, rng=0)
    with pytest.raises(ArgumentError, match="delta=0"):
        pi.stats.mean(TABLE.x, bounds=(-1, 1), epsilon=1.0, delta=0, noise="gaussian", rng=0)
    assert NoisyTopK(2, 1.0, epsilon=1.0, delta=0, values=False).cost.values is None
    assert NoisyTopK(2, 1.0, epsilon=1.0, delta=0, method="laplace").cost.values is not None
    with pytest.raises(ArgumentError, match="only with epsilon="):
        NoisyTopK(2, 1.0, rho=1.0, delta=0)


def test_limits_name_a_delta_and_stored_pure_limits_load_as_they_are():
    with pytest.raises(ArgumentError, match=r"delta= is missing.*delta=0 declares a limit in pure epsilon"):
        Budget(epsilon=1.0)
    pure = Budget(epsilon=1.0, delta=0)
    assert pure.currency == "pure"
    assert Budget.from_dict({"currency": "pure", "limit": "1", "delta": None}) == pure
    assert Budget.from_dict(pure.to_dict()) == pure
    with pytest.raises(ArgumentError, match="delta"):
        Budget(epsilon=1.0, delta=False)
    stored = Analyst("ada", IdentityKey().verifying, {"epsilon": 1.0})
    assert stored.budget == pure


def test_calibrations_and_plans():
    with pytest.raises(ArgumentError, match="delta= is missing"):
        calibrate_mu(epsilon=1.0)
    with pytest.raises(ArgumentError, match="delta=0 means pure epsilon"):
        calibrate_mu(epsilon=1.0, delta=0)
    with pytest.raises(ArgumentError, match="delta"):
        plan([{"mechanism": "gaussian", "epsilon": 1.0, "delta": 0}], delta=1e-6)
    with pytest.raises(ArgumentError, match="delta= is missing"):
        pi.plan_study(SCHEMA, "y ~ x", 2000, epsilon=1.0, progress=False)


@pytest.mark.filterwarnings("ignore::privinf.errors.WeakIdentificationWarning")
@pytest.mark.parametrize("name", [name for name in ENTRY_POINTS if not name.startswith(("noisy", "private"))])
def test_a_delta_of_one_in_n_is_warned_of(name):
    with warnings.catch_warnings(record=True) as raised, contextlib.suppress(NotAvailableError):
        warnings.simplefilter("always")
        ENTRY_POINTS[name](Ledger(), epsilon=4.0, delta=1.0 / N, rng=0)
    warned = any(one.category is LargeDeltaWarning and "1/n" in str(one.message) for one in raised)
    assert warned == (name not in LOCAL)
    with warnings.catch_warnings(), contextlib.suppress(NotAvailableError):
        warnings.simplefilter("error", LargeDeltaWarning)
        ENTRY_POINTS[name](Ledger(), epsilon=4.0, delta=0.1 / N, rng=0)


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_a_summary_says_that_a_delta_is_large():
    for name in ("OLS", "stats.mean", "MomentOLS"):
        large = ENTRY_POINTS[name](Ledger(), epsilon=20.0, delta=1.0 / N, rng=0)
        small = ENTRY_POINTS[name](Ledger(), epsilon=20.0, delta=0.1 / N, rng=0)
        assert "is at least 1/n" in " ".join(str(large.summary()).split()), name
        assert "is at least 1/n" not in " ".join(str(small.summary()).split()), name
