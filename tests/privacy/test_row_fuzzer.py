"""The fuzzer of rows in short, the smallest case of every kind of fault that it has seen, and mutants.

In full: ``benchmarks/fuzz_rows.py``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from row_fuzzer import ENTRY_POINTS, POLICY, SITES, fuzz_rows, keys

import privinf as pi
from privinf.accounting import Ledger
from privinf.errors import ArgumentError, NotAvailableError, PrivinfWarning, SchemaError, SensitivityError
from privinf.federation import InProcessFederation, Site
from privinf.glm.sums import GlmSums
from privinf.mechanisms.rows import Rows
from privinf.moments.model import MomentOLS
from privinf.stats import association

SCHEMA = pi.Schema({"y": (-4.0, 6.0), "a": (-1.0, 1.0), "b": (0.0, 3.0), "g": ["u", "v", "w"]})


def table(n: int = 120) -> pd.DataFrame:
    """Return rows of `SCHEMA`."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.uniform(-1, 1, n), "b": rng.uniform(0, 3, n), "g": rng.choice(list("uvw"), n)}
    )
    return frame.assign(y=1.0 + frame.a + rng.normal(0.0, 0.5, n))


@pytest.mark.audit
def test_no_fit_of_hostile_rows_raises_after_its_charge():
    found = fuzz_rows(len(ENTRY_POINTS), seed=38, names=list(ENTRY_POINTS))
    assert not found.faults, "\n".join(found.faults)
    outcomes = sum((counts for counts in found.outcomes.values()), start=type(found.outcomes["OLS"])())
    assert outcomes["returned"] > found.runs / 3


@pytest.mark.slow
def test_no_fit_of_hostile_rows_raises_after_its_charge_in_many_runs():
    found = fuzz_rows(2000, seed=39, names=list(ENTRY_POINTS))
    assert not found.faults, "\n".join(found.faults)


def test_every_public_model_and_test_is_fuzzed():
    fitted = {name for name in dir(pi) if hasattr(getattr(pi, name), "fit")} - {"PrivacyReport"}
    tested = {
        f"stats.{name}"
        for name in dir(pi.stats)
        if name.islower() and callable(getattr(pi.stats, name)) and not name.startswith("plan_")  # no rows
    }
    entry_points = " ".join(ENTRY_POINTS)
    assert [name for name in sorted(fitted | tested) if name not in entry_points] == []


# ---- refused in advance


@pytest.mark.parametrize(
    ("call", "error", "reason"),
    [
        (
            lambda ledger: pi.stats.proportions_ztest(
                table().y > 0.0, groups=table().g, levels=["u", "v", "w"], mu=1.0, rng=0, ledger=ledger
            ),
            SchemaError,
            r"\(the outcome\) must each be",
        ),
        (
            lambda ledger: MomentOLS.from_formula("y ~ a", table(), schema=SCHEMA, ledger=ledger).fit(
                mu=1.0, rng=0, stabilization="fuller"
            ),
            NotAvailableError,
            "fuller",
        ),
        (
            lambda ledger: pi.ModulatedOLS.from_formula(
                "y ~ a + b", table(), schema=SCHEMA, ledger=ledger
            ).fit(method="iterative", rounds=1, estimator="last", mu=1.0, rng=0),
            ArgumentError,
            "several rounds",
        ),
        (
            lambda ledger: pi.Poisson.from_formula(
                "y ~ C(g) - 1",
                table().assign(y=lambda rows: np.round(rows.y.clip(0.0))),
                schema=pi.Schema({"y": (0.0, 9.0), "g": ["u", "v", "w"]}),
                ledger=ledger,
            ).fit(mu=30.0, rng=0, margins=True),
            NotAvailableError,
            "constant",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_options_that_mean_nothing_are_refused_before_the_charge(call, error, reason):
    ledger = Ledger()
    with pytest.raises(error, match=reason):
        call(ledger)
    assert len(ledger) == 0


@pytest.mark.parametrize("delta", [0.5, 0.999999, 1e-300])
@pytest.mark.parametrize("mu", [1e-6, 0.03])
def test_a_delta_at_its_ends_is_no_reason_to_fail_without_a_reason(mu, delta):
    """log10 of an epsilon of 0, which any delta near 1 has, was a ValueError."""
    model = pi.OLS.from_formula("y ~ a + b", table(), schema=SCHEMA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivinfWarning)
        made = model.fit(mu=mu, delta=delta, intervals="optional", rng=0)
    assert "no standard errors" in str(made.summary()).lower() or made.estimate.cov is not None
    with pytest.raises(NotAvailableError, match="would be enough"):
        model.fit(mu=mu, delta=delta, rng=0)


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
@pytest.mark.parametrize("mu", [1e-7 * 1.5**step for step in range(4, 13, 2)])
def test_a_second_round_that_the_noise_grid_cannot_carry_is_refused_before_the_first(trust, mu):
    frame, own_ledgers = table(60), []
    own, roster = keys()
    sites = {}
    for place, name in enumerate(SITES):
        rows = Rows(frame[["y", "a", "b", "g"]].iloc[place::2])
        own_ledgers.append(Ledger())
        sites[name] = Site(rows, SCHEMA, policy=POLICY, key=own[name], roster=roster, ledger=own_ledgers[-1])
    model = pi.MomentOLS.from_formula(
        "y ~ a + b + C(g)", InProcessFederation(sites), schema=SCHEMA, trust=trust, ledger=own_ledgers[0]
    )
    try:
        model.fit(mu=mu, cov_type="HC0")
    except SensitivityError:
        assert sum(map(len, own_ledgers)) == 0


@pytest.mark.parametrize("model", [pi.RMGMOLS, pi.DGMOLS, pi.BGMOLS])
@pytest.mark.parametrize("mu", [1e-6, 1.5e-6, 2e-6])
def test_a_party_whose_noise_has_no_grid_costs_the_others_nothing(model, mu):
    frame, ledger = table(12), Ledger()
    parties = {"one": ["a"], "two": ["b", "c", "d", "y"]}
    X = frame[["a", "b"]].assign(c=frame.b, d=frame.b)
    bounds = [(-1, 1), (0, 3), (0, 3), (0, 3)]
    made = model(frame.y, X, parties=parties, bounds=bounds, y_bounds=(-4, 6), ledger=ledger)
    try:
        made.release(mu=mu)
    except SensitivityError:
        assert len(ledger) == 0


# ---- returned with its marks


def fitted(call: Callable[[], Any]) -> Any:
    """Return what a call returns without a warning of numpy; its summary and its numbers can be shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PrivinfWarning)
        made = call()
        str(made.summary())
        made.to_dict()
    return made


def test_as_many_rows_as_coefficients_have_a_summary():
    model = MomentOLS.from_formula("y ~ a + b", table(3), schema=SCHEMA)
    made = fitted(lambda: model.fit(mu=30.0, rng=0))
    with pytest.raises(NotAvailableError, match="as many coefficients as rows"):
        _ = made.rsquared_adj


@pytest.mark.parametrize("seed", range(4))
def test_a_test_within_its_noise_does_not_overflow(seed):
    frame = table(50)
    made = fitted(lambda: pi.stats.anova_oneway("y ~ g", data=frame, schema=SCHEMA, mu=1e-6, rng=seed))
    assert all(row.low == -4.0 and row.high == 6.0 for row in made.rows)


def test_a_correlation_whose_variances_are_hidden_has_the_widest_interval():
    frame = table(13).assign(a=0.0)
    for seed in range(5):
        made = fitted(
            lambda seed=seed: pi.stats.pearsonr("a", "y", data=frame, schema=SCHEMA, mu=1e-3, rng=seed)
        )
        assert (made.rows[0].low, made.rows[0].high) == (-1.0, 1.0)
        assert made.rows[0].bse == 1.0 or math.isnan(made.rows[0].bse)  # nan where there is no estimate


def test_a_step_that_is_far_too_long_returns_coefficients_without_intervals():
    model = pi.GLM.from_formula("y ~ a", table(), schema=SCHEMA, family="gaussian")
    steps = pi.DPSGD(epochs=2, batches=2, step=1e40)
    made = fitted(lambda: model.fit(optimizer=steps, mu=1.0, rng=0, intervals="optional"))
    assert np.abs(made.trace.to_numpy()).max() == 1e29
    assert made.estimate.cov is None


def test_a_model_of_examples_without_slopes_has_a_summary():
    frame = table().assign(y=lambda rows: np.where(rows.y > 1.0, "yes", "no"))
    schema = pi.Schema({"y": ["no", "yes"]})
    model = pi.IWPGLM.from_formula("y ~ 1", frame[["y"]], schema=schema)
    made = fitted(lambda: model.fit(epsilon=1.0, delta=1e-3, rng=0))
    with pytest.raises(NotAvailableError, match="no column except the constant"):
        made.score_test()


@pytest.mark.parametrize("family", ["binomial", "gaussian"])
@pytest.mark.parametrize("seed", range(3))
def test_a_column_that_never_varies_returns_coefficients_at_hardly_any_noise(family, seed):
    """The last release was a singular matrix within rounding, and its covariance or its inverse none."""
    frame = table(50).assign(b=1.5)
    frame["y"] = (frame.y > 1.0).astype(float)
    schema = pi.Schema({"y": (0.0, 1.0), "b": (0.0, 3.0)})
    formula = "y ~ bs(b, knots=[1.0], degree=3, lower_bound=0, upper_bound=3)"
    parts = {name: frame.iloc[place::2] for place, name in enumerate(SITES)}
    own, roster = keys()
    sites = {
        name: Site(Rows(part[["y", "b"]]), schema, policy=POLICY, key=own[name], roster=roster)
        for name, part in parts.items()
    }
    model = pi.FederatedGLM.from_formula(
        formula, InProcessFederation(sites), schema=schema, family=family, trust="secure-sum"
    )
    made = fitted(lambda: model.fit(mu=1e8, rng=seed, intervals="optional"))
    assert made.estimate.cov is None or made.cautions


@pytest.mark.audit
def test_as_many_rows_as_coefficients_have_no_standard_errors_where_residuals_are_zero():
    frame = table(3)
    model = pi.DGMOLS(
        frame.y,
        frame[["a", "b"]],
        parties={"one": ["a"], "two": ["b", "y"]},
        bounds=[(-1, 1), (0, 3)],
        y_bounds=(-4, 6),
        intercept=True,
    )
    made = [fitted(lambda seed=seed: model.fit(mu=1e8, rng=seed)) for seed in range(30)]
    assert all(one.estimate.cov is None for one in made)
    assert any("no more rows than coefficients" in one.estimate.weak_reason for one in made)


def test_a_tiny_mean_of_counts_is_an_argument_that_statistics_take():
    sums = GlmSums(
        server=None, model={"mean_cap": 9.0}, n=100, p=1, low=np.array([1.0]), high=np.array([1.0])
    )  # type: ignore[arg-type]
    assert sums.args(np.array([-1e4]))["mean_cap"] == 1e-30
    assert sums.args(np.array([0.0]))["mean_cap"] == pytest.approx(1.0)
    assert sums.args(np.array([1e4]))["mean_cap"] == 9.0


# ---- mutants: what the fuzzer must see


def test_refusals_after_the_charge_are_seen(monkeypatch):
    def late(release: Any) -> Any:
        raise ArgumentError("a table of two rows")

    monkeypatch.setattr(association, "table_model", late)
    found = fuzz_rows(3, seed=1, names=["stats.chi2_contingency"])
    assert any("after the charge ArgumentError" in fault for fault in found.faults)


def test_exceptions_that_are_not_ours_are_seen(monkeypatch):
    monkeypatch.setattr(association, "table_model", lambda release: math.log10(0.0))
    found = fuzz_rows(3, seed=1, names=["stats.chi2_contingency"])
    assert any("charged, foreign UnforeseenError" in fault for fault in found.faults)


def test_warnings_of_numpy_are_seen(monkeypatch):
    plain = association.table_model

    def loud(release: Any) -> Any:
        np.zeros(1) / np.zeros(1)
        return plain(release)

    monkeypatch.setattr(association, "table_model", loud)
    found = fuzz_rows(3, seed=1, names=["stats.chi2_contingency"])
    assert any("warning RuntimeWarning" in fault for fault in found.faults)


def test_noise_that_few_records_do_not_show_leaves_coefficients_without_errors():
    model = pi.ModulatedOLS.from_formula("y ~ a + b + C(g)", table(8), schema=SCHEMA)
    fit = model.fit(rho=1.0, stabilization="fuller", rng=3)
    assert np.isfinite(fit.params).all()
    with pytest.raises(NotAvailableError, match="too few to estimate the noise part"):
        fit.conf_int()
    assert "too few to estimate the noise part" in " ".join(str(fit.summary()).split())
