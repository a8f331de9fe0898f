"""Absorbed effects: the coefficients of everything else, as a fit with all indicators has them."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import privinf as pi
from privinf.errors import NotAvailableError, SchemaError
from privinf.glm.advice import MIN_HESSIAN_SDS
from privinf.results.effects import LEAST_STRENGTH, MOST_COLUMNS

FIRMS = [f"f{k:02d}" for k in range(8)]
YEARS = [2001, 2002, 2003]


def schema_of(levels=FIRMS, public=True):
    return pi.Schema(
        {
            "y": (-4.0, 6.0),
            "x": (-1.0, 1.0),
            "z": (-1.0, 1.0),
            "firm": pi.Factor(levels, public=public),
            "year": pi.Factor(YEARS, public=public),
        }
    )


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    n = 3000
    firm, effect = rng.integers(0, 8, n), np.linspace(-1.0, 1.0, 8)
    x = np.clip(0.5 * effect[firm] + rng.uniform(-0.5, 0.5, n), -1, 1)
    z = rng.uniform(-1, 1, n)
    y = 1.0 + 0.5 * x - 0.3 * z + effect[firm] + 0.3 * rng.uniform(-1, 1, n)
    return pd.DataFrame(
        {
            "y": y,
            "x": x,
            "z": z,
            "firm": np.array(FIRMS)[firm],
            "year": rng.choice(YEARS, n),
        }
    )


MODELS = pytest.mark.parametrize(
    ("model", "more"), [(pi.OLS, {}), (pi.GLM, {"family": "gaussian"}), (pi.MomentOLS, {})]
)


@MODELS
@pytest.mark.parametrize("kind", ["nonrobust", "HC1"])
def test_without_noise_they_are_statsmodels_fits_with_all_indicators(data, model, more, kind):
    theirs = smf.ols("y ~ x + z + C(firm) + C(year)", data).fit(cov_type=kind, use_t=True)
    made = model.from_formula("y ~ x + z | firm + C(year)", data, schema=schema_of(), **more)
    if (model, kind) == (pi.GLM, "nonrobust"):
        made = pi.OLS.from_formula("y ~ x + z | firm + year", data, schema=schema_of())
    ours = made.fit(epsilon=math.inf, cov_type=kind)
    assert ours.names == ("x", "z")
    shared = ["x", "z"]
    np.testing.assert_allclose(ours.params, theirs.params[shared], rtol=1e-8)
    np.testing.assert_allclose(ours.bse, theirs.bse[shared], rtol=1e-8)
    np.testing.assert_allclose(ours.pvalues, theirs.pvalues[shared], rtol=1e-6, atol=1e-300)
    assert (ours.df_resid, ours.df_model) == (theirs.df_resid, theirs.df_model)
    for figure in ("rsquared", "rsquared_adj", "ssr", "mse_resid", "ess"):
        assert getattr(ours, figure) == pytest.approx(getattr(theirs, figure), rel=1e-8), figure


@pytest.mark.audit
@MODELS
def test_with_noise_they_are_the_same_fits_less_the_effects(data, model, more, tmp_path):
    given = {"mu": 3.0, "rng": 1}
    full, less = (
        model.from_formula(f"y ~ x + z {end}", data, schema=schema_of(), **more).fit(**given)
        for end in ("+ C(firm)", "| firm")
    )
    both = ["x", "z"]
    np.testing.assert_allclose(less.params, full.params[both], rtol=1e-12)
    np.testing.assert_allclose(less.cov_params(), full.cov_params().loc[both, both], rtol=1e-10)
    np.testing.assert_allclose(less.bse_sampling, full.bse_sampling[both], rtol=1e-10)
    np.testing.assert_allclose(less.conf_int(method="score"), full.conf_int(method="score").loc[both])
    for restriction in ("x = z", ["x", "z = 0.1"]):
        a, b = less.score_test(restriction), full.score_test(restriction)
        assert (a.statistic, a.df) == pytest.approx((b.statistic, b.df), rel=1e-8)
    assert less.score_test().statistic == pytest.approx(full.score_test(both).statistic, rel=1e-8)
    assert less.df_resid == full.df_resid
    assert "C(firm) (8 coefficients)" in str(less.summary())
    less.save(tmp_path / "less.npz")
    loaded = pi.load_results(tmp_path / "less.npz")
    assert loaded.names == less.names
    assert loaded.score_test("x = z").pvalue == pytest.approx(less.score_test("x = z").pvalue, rel=1e-9)
    with pytest.raises(NotAvailableError, match="effects that this fit absorbed"):
        less.predict(data)
    with pytest.raises(NotAvailableError, match="method='pairs'"):
        less.bootstrap(method="pairs")
    assert less.bootstrap(99, rng=0).summary_frame().shape[0] == 2


def test_what_cannot_be_absorbed_is_refused_with_the_reason(data):
    schema = schema_of()
    for formula, reason in {
        "y ~ x | z": "'z' must be declared with levels",
        "y ~ x | firm | year": "write one | followed by names of factors",
        "y ~ x | firm:year": "write one | followed by names of factors",
        "y ~ 1 | firm": "nothing to protect",
    }.items():
        with pytest.raises(pi.errors.PrivinfError, match=reason.replace("|", r"\|")):
            pi.MomentOLS.from_formula(formula, data, schema=schema)
    with pytest.raises(SchemaError, match="no column besides the absorbed effects"):
        pi.OLS.from_formula("y ~ 1 | firm", data, schema=schema)
    for model in (pi.Logit, pi.Poisson, pi.ModulatedOLS):
        with pytest.raises(SchemaError, match=r"write \+ C\(firm\) for other models"):
            model.from_formula("y ~ x | firm", data, schema=schema)
    many = pi.Schema(
        {"y": (-4.0, 6.0), "x": (-1.0, 1.0), "firm": pi.Factor([f"g{k}" for k in range(MOST_COLUMNS)])}
    )
    with pytest.raises(NotAvailableError, match="pool levels"):
        pi.MomentOLS.from_formula("y ~ x | firm", data, schema=many)


def test_a_bar_in_brackets_is_no_effect(data):
    r = pi.OLS.from_formula("y ~ x + I((x > 0) | (z > 0))", data, schema=schema_of()).fit(epsilon=math.inf)
    assert len(r.names) == 3


def test_one_release_absorbs_for_any_formula(data):
    schema = schema_of()
    release = pi.Moments(schema, columns=["y", "x", "z", "C(firm)"]).release(data, mu=3.0, rng=0)
    full, less = release.regress("y ~ x + z + C(firm)"), release.regress("y ~ x + z | firm")
    np.testing.assert_allclose(less.params, full.params[["x", "z"]], rtol=1e-12)
    np.testing.assert_allclose(less.bse, full.bse[["x", "z"]], rtol=1e-10)


def test_a_wide_fit_of_totals_says_what_makes_it_wide(data):
    """Bounds of the response, of a column, or that columns go together; and that OLS serves."""
    loose = pi.Schema({"y": (-60.0, 60.0), "x": (-1.0, 1.0), "z": (-1.0, 1.0)})
    far = pi.Schema({"y": (-4.0, 6.0), "x": (-30.0, 30.0), "z": (-1.0, 1.0)})
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 20_000)
    plain = pd.DataFrame({"x": x, "z": np.clip(x + rng.uniform(-0.05, 0.05, 20_000), -1, 1)})
    plain["y"] = 1.0 + 0.5 * x - 0.3 * plain.z + rng.uniform(-1, 1, 20_000)
    tight = pi.Schema({"y": (-1.0, 3.0), "x": (-1.0, 1.0), "z": (-1.0, 1.0)})
    cases = {
        ("y ~ x + z", "bounds of the response 'y'"): (data, loose, 2.0),
        ("y ~ x", "bounds of 'x', which are wide relative to its values"): (data, far, 6.0),
        ("y ~ z + x", "with other columns"): (plain, tight, 1.0),
    }
    for (formula, words), (rows, schema, mu) in cases.items():
        made = pi.MomentOLS.from_formula(formula, rows, schema=schema)
        r = made.fit(mu=mu, rng=1)
        said = [note for note in r.notes if words in note]
        assert said, r.notes
        assert "OLS with the same formula" in said[0]
        quiet = made.fit(mu=2000.0, rng=1)
        assert not any("of the wide intervals" in note for note in quiet.notes)
        assert not any("of the wide intervals" in note for note in made.fit(epsilon=math.inf).notes)


def test_a_release_for_many_fits_says_what_makes_one_wide(data):
    far = pi.Schema({"y": (-4.0, 6.0), "x": (-30.0, 30.0), "z": (-1.0, 1.0)})
    release = pi.Moments(far, columns=["z", "x", "y"]).release(data, mu=6.0, rng=1)
    (note,) = [note for note in release.regress("y ~ x").notes if "of the wide intervals" in note]
    assert "bounds of 'x', which are wide relative to its values" in note
    quiet = pi.Moments(far, columns=["z", "x", "y"]).release(data, mu=2000.0, rng=1)
    assert not any("of the wide intervals" in note for note in quiet.regress("y ~ x").notes)


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.02, "small variation of 'C(g)[T.b]'"), (0.5, "the variance of")],
)
def test_a_level_is_not_told_to_have_wide_bounds(share, words):
    """A factor has no bounds to be drawn tighter; what noise drowns is not told in numbers."""
    rng = np.random.default_rng(3)
    n = 400 if share == 0.5 else 40_000
    rows = pd.DataFrame({"y": rng.uniform(-1, 1, n), "g": np.where(rng.random(n) < share, "b", "a")})
    model = pi.MomentOLS.from_formula("y ~ C(g)", rows, schema=pi.Schema({"y": (-1, 1), "g": ["a", "b"]}))
    notes = [note for seed in range(8) for note in model.fit(mu=0.05, rng=seed).notes]
    assert any(words in note for note in notes), notes
    assert not any("bounds of 'C(g)" in note for note in notes)


@pytest.mark.audit
def test_a_fit_is_as_weak_with_its_effects_as_without(data):
    weak = []
    for seed in range(8):
        both = [
            pi.OLS.from_formula(formula, data, schema=schema_of()).fit(epsilon=2.0, delta=1e-6, rng=seed)
            for formula in ("y ~ x + z + C(firm)", "y ~ x + z | firm")
        ]
        assert both[0].identification == both[1].identification
        strength = both[0].identification
        assert strength.threshold >= LEAST_STRENGTH
        assert strength.weak == (strength.statistic < strength.threshold)
        weak.append(strength.weak and strength.statistic > 0.0)
    assert any(weak)
    plain = pi.OLS.from_formula("y ~ x + z", data, schema=schema_of()).fit(epsilon=2.0, delta=1e-6, rng=0)
    assert plain.identification.threshold == pytest.approx(MIN_HESSIAN_SDS / math.sqrt(6.0))
