"""Means, correlations and instruments of one release: exact without noise, right in their errors with it."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError, SchemaError, WeakIdentificationWarning
from studies.simulation import binomial_limits

NAMES = ["z", "v", "x", "w", "y"]
SLOPE = 0.5
BOUNDS = {"z": 3.0, "v": 3.0, "x": 3.0, "w": 4.0, "y": 5.0}
SCHEMA = pi.Schema({name: (-reach, reach) for name, reach in BOUNDS.items()})
MECHANISM = pi.Moments(SCHEMA, columns=NAMES)


def table(n=4000, seed=0, strength=0.6):
    rng = np.random.default_rng(seed)
    z, v, x, u, e, f = np.clip(rng.standard_normal((6, n)), -3.0, 3.0)
    w = strength * z + 0.3 * v + 0.3 * x + 0.5 * u + 0.3 * e
    y = SLOPE * w - 0.3 * x + 0.4 * u + 0.3 * f
    frame = pd.DataFrame({"z": z, "v": v, "x": x, "w": w, "y": y})
    return frame.clip(-pd.Series(BOUNDS), pd.Series(BOUNDS), axis=1)


ROWS = table()
EXACT = MECHANISM.release(ROWS, epsilon=math.inf)


# ---- means


def test_means_without_noise_are_those_of_the_rows():
    found = EXACT.means()
    np.testing.assert_allclose(found.params, ROWS.mean(), atol=1e-12)
    np.testing.assert_allclose(found.bse, ROWS.std() / math.sqrt(len(ROWS)), rtol=1e-9)
    expected = stats.ttest_1samp(ROWS.x, 0.0)
    assert found.pvalues["x"] == pytest.approx(expected.pvalue, rel=1e-6)
    compared = found.t_test("w = y")
    difference = stats.ttest_rel(ROWS.w, ROWS.y)
    assert float(np.squeeze(compared.tvalue)) == pytest.approx(difference.statistic, rel=1e-6)


def test_means_have_levels_of_factors_and_public_columns():
    rows = ROWS.assign(g=np.resize(["a", "b", "b", "c"], len(ROWS)), q=np.linspace(0, 1, len(ROWS)))
    schema = pi.Schema(
        {"y": (-5.0, 5.0), "x": (-3.0, 3.0), "g": list("abc"), "q": pi.Numeric(0.0, 1.0, public=True)}
    )
    release = pi.Moments(schema, columns=["y", "x", "g", "q"]).release(rows, mu=1.0, rng=0)
    found = release.means()
    assert found.names == ("g[T.b]", "g[T.c]", "y", "q", "x")
    assert found.params["q"] == pytest.approx(rows.q.mean(), abs=1e-12)
    assert found.bse_privacy["q"] == 0.0
    assert (
        np.abs(found.params[["g[T.b]", "g[T.c]"]] - [0.5, 0.25]) < 5 * found.bse[["g[T.b]", "g[T.c]"]]
    ).all()


@pytest.mark.audit
@pytest.mark.parametrize("trust", ["central", "local"])
def test_noise_of_means_has_the_spread_that_is_claimed(trust):
    mechanism = pi.Moments(SCHEMA, columns=NAMES, trust=trust)
    rng = np.random.default_rng(0)
    rows = ROWS[:500]
    made = [mechanism.release(rows, mu=2.0, rng=rng).means() for _ in range(100)]
    spread = np.std([found.params for found in made], axis=0)
    claimed = np.sqrt(np.mean([np.square(found.bse_privacy) for found in made], axis=0))
    assert (np.abs(spread / claimed - 1.0) < 4.5 / math.sqrt(200)).all(), spread / claimed


# ---- correlations


def test_correlations_without_noise_are_those_of_the_rows():
    found = EXACT.corr()
    np.testing.assert_allclose(found.params.loc[NAMES, NAMES], ROWS.corr(), atol=1e-12)
    expected = stats.pearsonr(ROWS.w, ROWS.y)
    interval = found.conf_int().loc[("w", "y")]
    np.testing.assert_allclose(interval, expected.confidence_interval(), rtol=1e-6)
    assert found.pvalues.loc["z", "v"] == pytest.approx(stats.pearsonr(ROWS.z, ROWS.v).pvalue, rel=2e-3)


def test_partial_correlations_without_noise_are_those_of_residuals():
    inverse = -np.linalg.inv(ROWS.cov())
    scale = np.sqrt(-np.diag(inverse))
    expected = pd.DataFrame(inverse / np.outer(scale, scale), NAMES, NAMES)
    found = EXACT.partial_corr()
    off = ~np.eye(5, dtype=bool)
    np.testing.assert_allclose(
        found.params.loc[NAMES, NAMES].to_numpy()[off], expected.to_numpy()[off], atol=1e-9
    )
    some = EXACT.partial_corr(["y", "w"], given=["x"])
    design = np.column_stack([np.ones(len(ROWS)), ROWS.x])
    left = ROWS[["y", "w"]].to_numpy()
    left = left - design @ np.linalg.lstsq(design, left, rcond=None)[0]
    assert some.params.loc["y", "w"] == pytest.approx(np.corrcoef(left.T)[0, 1], abs=1e-10)
    assert "given x" in str(some)
    assert "all others" in str(found)


@pytest.mark.parametrize("trust", ["central", "local"])
def test_errors_of_correlations_are_what_each_entry_moves(trust):
    """To first order: of totals the noise's part, of records the spread of their own entries."""
    columns = ["x", "w", "y"]
    release = pi.Moments(SCHEMA, columns=columns, trust=trust).release(ROWS, mu=50.0, rng=0)
    for ask in (lambda r: r.corr(), lambda r: r.partial_corr()):
        here, entries, moved = ask(release).table, release.arrays["moments"], []
        step = 1e-4 if trust == "central" else 1e-6
        for entry in range(entries.shape[-1]):
            nudged = entries.copy()
            nudged[..., entry] += step
            other = dataclasses.replace(release, arrays={**release.arrays, "moments": nudged})
            moved.append((ask(other).table["corr"] - here["corr"]) / step)
        slopes, r = np.array(moved).T, here["corr"].to_numpy()
        if trust == "central":
            df = len(ROWS) - 3 - (1 if ask(release).given is None else 0)
            expected = release.noise_model["scale"] ** 2 * np.sum(slopes**2, axis=1) + (1 - r**2) ** 2 / df
        else:
            expected = np.var(entries @ slopes.T, axis=0) / len(ROWS)
        np.testing.assert_allclose(np.square(here["std err"]), expected, rtol=1e-3)


def test_the_interval_of_a_weak_pair_agrees_with_its_test():
    """A pair had P = 0.0000 next to [-1, 1]."""
    for seed in range(40):
        found = MECHANISM.release(ROWS, mu=0.1, rng=seed).corr()
        table = found.table
        for alpha in (0.05, 0.4):
            low, high = found._ends(alpha).to_numpy().T
            weak = table["weak"].to_numpy()
            excludes = (low >= 0.0) | (high <= 0.0)
            rejects = (table["P>|z|"] < alpha).to_numpy()
            assert (excludes == rejects)[weak].all()
            r = table["corr"].clip(-1.0, 1.0).to_numpy()
            assert ((low <= r) & (r <= high))[weak & ~np.isnan(r)].all()
    shown = str(MECHANISM.release(ROWS, mu=0.02, rng=0).corr())
    assert "[0.025" in shown
    assert "weak = True" in shown


def test_too_much_noise_leaves_the_whole_interval():
    found = MECHANISM.release(ROWS, mu=0.02, rng=0).corr()
    with pytest.warns(WeakIdentificationWarning, match=r"\[-1, 1\]"):
        interval = found.conf_int()
    undecided = found.table["weak"] & ~(found.table["P>|z|"] < 0.05)
    assert undecided.any()
    assert (interval.to_numpy()[undecided] == [-1.0, 1.0]).all()
    assert found.table["weak"].any()


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda r: r.corr(["x", "nothing"]), ArgumentError, "released columns"),
        (lambda r: r.corr(["x"]), ArgumentError, "two columns"),
        (lambda r: r.corr(["x", "x"]), ArgumentError, "without repeats"),
        (lambda r: r.partial_corr(["x", "y"], given=["x"]), ArgumentError, "none of which is in given="),
        (lambda r: r.partial_corr(["x", "y"], given="w"), ArgumentError, "given"),
    ],
)
def test_correlations_that_make_no_sense(ask, error, words):
    with pytest.raises(error, match=words):
        ask(EXACT)


def test_rows_that_are_weighted_dependent_or_not_centred_have_no_means():
    schema = pi.Schema({"x": (-3.0, 3.0), "y": (-5.0, 5.0), "k": pi.Numeric(0.5, 2.0, public=True)})
    rows = ROWS.assign(k=np.linspace(0.5, 2.0, len(ROWS)))
    weighted = pi.Moments(schema, columns=["x", "y"], weights="k").release(rows, mu=1.0, rng=0)
    people = pi.Schema({"x": (-3.0, 3.0), "y": (-5.0, 5.0)}, unit="who", max_rows=2)
    grouped = pi.Moments(people, columns=["x", "y"]).release(
        ROWS.assign(who=np.arange(len(ROWS)) // 2), mu=1.0, rng=0
    )
    bare = pi.Moments(SCHEMA, "y ~ x - 1").release(ROWS, mu=1.0, rng=0)
    for release, words in ((weighted, "weighted"), (grouped, "dependent"), (bare, "constant")):
        for ask in (lambda r: r.means(), lambda r: r.corr()):
            with pytest.raises(NotAvailableError, match=words):
                ask(release)


# ---- instruments


def two_stage(rows, exogenous, endogenous, instruments):
    ones = np.ones(len(rows))
    X = np.column_stack([ones, *(rows[name] for name in [*exogenous, *endogenous])])
    Z = np.column_stack([ones, *(rows[name] for name in [*exogenous, *instruments])])
    fitted = Z @ np.linalg.solve(Z.T @ Z, Z.T @ X)
    b = np.linalg.solve(fitted.T @ X, fitted.T @ rows.y)
    e = rows.y - X @ b
    return b, np.sqrt(np.diag(np.linalg.inv(fitted.T @ X)) * (e @ e) / len(rows))


@pytest.mark.parametrize(
    ("formula", "parts"),
    [
        ("y ~ x + [w ~ z]", (["x"], ["w"], ["z"])),
        ("y ~ [w ~ z + v]", ([], ["w"], ["z", "v"])),
        ("y ~ [x + w ~ z + v]", ([], ["x", "w"], ["z", "v"])),
    ],
)
def test_instruments_without_noise_are_two_stage_least_squares(formula, parts):
    fit, (b, se) = EXACT.iv(formula), two_stage(ROWS, *parts)
    names = ["Intercept", *parts[0], *parts[1]]
    np.testing.assert_allclose(fit.params[names], b, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(fit.bse[names], se, rtol=1e-9)
    assert fit.conf_int(method="score").loc["w", 0] < b[-1] < fit.conf_int(method="score").loc["w", 1]


def test_anderson_rubin_sets_invert_the_test():
    for release, formula in (
        (EXACT, "y ~ x + [w ~ z]"),
        (MECHANISM.release(ROWS, mu=1.0, rng=3), "y ~ [w ~ z + v]"),
    ):
        fit = release.iv(formula)
        for end in fit.score_set("w").pieces[0]:
            assert fit.score_test([end]).pvalue == pytest.approx(0.05, rel=1e-3)
        assert fit.score_test([float(fit.params["w"])]).pvalue > 0.05


def test_weak_instruments_are_flagged_and_their_set_may_be_unbounded():
    release = MECHANISM.release(table(4000, 5, strength=0.0), mu=0.5, rng=1)
    fit = release.iv("y ~ x + [w ~ z]")
    assert fit.identification.weak
    assert np.isinf(fit.conf_int(method="score").loc["w"]).any()
    with pytest.warns(WeakIdentificationWarning):
        fit.conf_int()


def test_instruments_that_contradict_one_another_leave_no_set():
    rows = table(20_000)
    rows["y"] = np.clip(rows.y + 0.8 * rows.v, -5, 5)  # v is no instrument
    fit = MECHANISM.release(rows, mu=3.0, rng=0).iv("y ~ x + [w ~ z + v]")
    with pytest.raises(NotAvailableError, match="agree with all the instruments"):
        fit.conf_int(method="score")


@pytest.mark.parametrize(
    ("formula", "error", "words"),
    [
        ("y ~ x + w", SchemaError, "brackets"),
        ("y ~ [w ~ z] + [x ~ v]", SchemaError, "brackets"),
        ("y ~ [w ~ w]", ArgumentError, "instruments"),
        ("y ~ [w + x ~ z]", ArgumentError, "1 instruments for 2"),
        ("y ~ [w ~ nothing]", SchemaError, "nothing"),
        ("y ~ [w ~ I(z**2)]", NotAvailableError, "declared"),
    ],
)
def test_formulas_that_name_no_instruments(formula, error, words):
    with pytest.raises(error, match=words):
        EXACT.iv(formula)


def test_instruments_of_records_are_refused():
    release = pi.Moments(SCHEMA, columns=NAMES, trust="local").release(ROWS, mu=50.0, rng=0)
    with pytest.raises(NotAvailableError, match="totals"):
        release.iv("y ~ [w ~ z]")


# ---- all of them, rows drawn anew (2,000 and two sizes: benchmarks/one_release.py)


@pytest.mark.audit
def test_intervals_cover_the_population():
    hits = {name: [] for name in ("iv", "Anderson-Rubin", "means", "w y", "partial")}
    truth = np.corrcoef(table(400_000, 99)[["w", "y"]].T)[0, 1]
    left = table(400_000, 98)
    partial = -np.linalg.inv(left.cov())
    partial = partial[3, 4] / math.sqrt(partial[3, 3] * partial[4, 4])
    for seed in range(60):
        release = MECHANISM.release(table(3000, seed), mu=6.0, rng=seed)
        fit = release.iv("y ~ x + [w ~ z]")
        hits["iv"].append(abs(fit.params["w"] - SLOPE) <= 1.96 * fit.bse["w"])
        hits["Anderson-Rubin"].append(fit.score_test([SLOPE]).pvalue > 0.05)
        hits["means"].append(abs(release.means().tvalues["y"]) <= 1.96)
        for name, found, value in (
            ("w y", release.corr(["w", "y"]).table, truth),
            ("partial", release.partial_corr(["w", "y"]).table, partial),
        ):
            hits[name].append(abs(found["z"].iloc[0] - np.arctanh(value)) <= 1.96 * found["se_z"].iloc[0])
    for name, covered in hits.items():
        low, high = binomial_limits(0.95, len(covered), 0.998)
        assert len(covered) > 30
        assert low <= np.mean(covered) <= high, (name, np.mean(covered))
