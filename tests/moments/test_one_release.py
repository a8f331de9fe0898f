"""One release of second moments, many analyses: each against a fit made for it with the same noise."""

import dataclasses
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError, SchemaError
from privinf.mechanisms.statistics.moments import MomentLayout
from privinf.moments.analyses import part_of
from privinf.moments.model import moment_system
from privinf.releases import Release
from privinf.schema.columns import sub_design

SCHEMA = pi.Schema(
    {
        "a": (-1.0, 3.0),
        "b": (-2.0, 2.0),
        "c": (0.0, 5.0),
        "y": (-4.0, 6.0),
        "other": (0.0, 1.0),
        "w": pi.Numeric(0.0, 1.0, public=True),
        "g": ["low", "mid", "top"],
        "h": ["no", "yes"],
    }
)
COLUMNS = ["a", "b", "g", "c", "h", "w", "y", "a:b", "I(c**2)"]
NUMBERS = ["a", "b", "c", "y", "w", "I(c**2)"]


def table(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": rng.uniform(-1, 3, n),
            "b": rng.uniform(-2, 2, n),
            "c": rng.uniform(0, 5, n),
            "w": rng.uniform(0, 1, n),
            "g": rng.choice(["low", "mid", "top"], n),
            "h": rng.choice(["no", "yes"], n),
            "other": rng.uniform(0, 1, n),
        }
    )
    mean = 0.5 * frame.a - 0.3 * frame.b + 0.2 * frame.c + 0.4 * (frame.g == "mid")
    return frame.assign(y=np.clip(mean + 0.4 * rng.standard_normal(n), -4, 6))


ROWS = table()
MECHANISM = pi.Moments(SCHEMA, columns=COLUMNS)


@pytest.fixture(scope="module")
def release():
    return MECHANISM.release(ROWS, epsilon=20.0, delta=1e-6, rng=7)


def test_epsilon_of_a_release_of_many_rows_is_stated_at_half_of_one_over_n():
    release = pi.Moments(SCHEMA, columns=["a", "y"]).release(table(200), mu=0.5, rng=0)
    assert release.privacy.default_delta == 1e-6
    assert dataclasses.replace(release, nobs=5_000_000).privacy.default_delta == 1e-7


def random_formula(rng):
    response = rng.choice(NUMBERS)
    terms = [
        "a",
        "b",
        "c",
        "y",
        "w",
        "g",
        "h",
        "a:b",
        "I(c**2)",
        "C(g, Treatment('top'))",
        "C(h, Treatment('yes'))",
    ]
    terms = [term for term in terms if term != response]
    chosen = list(rng.choice(terms, size=rng.integers(1, 6), replace=False))
    if "g" in chosen:
        chosen = [term for term in chosen if not term.startswith("C(g")]
    if "h" in chosen:
        chosen = [term for term in chosen if not term.startswith("C(h")]
    return f"{response} ~ {' + '.join(chosen)}" + (" - 1" if rng.random() < 0.35 else "")


def random_formulas(count=50, seed=3):
    rng = np.random.default_rng(seed)
    found = {}
    while len(found) < count:
        found[random_formula(rng)] = None
    return list(found)


FORMULAS = random_formulas()


def isometric(matrix, layout):
    rows, columns, factors = layout.pairs()
    return matrix[rows, columns] * factors


def user_noise(release):
    """Return the release's noise in the sums of products of its columns, user units, response last."""
    clean = MECHANISM.release(ROWS, epsilon=math.inf)
    design = release.design
    layout = MomentLayout(int((~design.private).sum()), int(design.private.sum()))
    # Public columns have no noise, but are rounded to their grid.
    noise = layout.matrix(
        *(release.arrays[name] - clean.arrays[name] for name in ("moments", "public_moments"))
    )
    order = np.argsort(np.concatenate([np.flatnonzero(~design.private), np.flatnonzero(design.private)]))
    order = np.append(order, layout.size - 1)
    scale = np.append(design.scale, design.y_scale)
    center = np.append(design.center, design.y_center)
    lift = np.diag(scale)
    lift[:, design.constant] += center
    return lift @ noise[np.ix_(order, order)] @ lift.T


def user_loadings(formula):
    """Return the columns and the response of a formula as sums of the released columns, from made-up rows."""
    rng = np.random.default_rng(0)
    probe = table(400, seed=int(rng.integers(1 << 30)))
    fitted = pi.Design.from_formula(formula, SCHEMA)
    wanted = np.column_stack([fitted.matrix(probe), fitted.response_values(probe)])
    held = np.column_stack([MECHANISM.design.matrix(probe), MECHANISM.design.response_values(probe)])
    found, *_ = np.linalg.lstsq(held, wanted, rcond=None)
    np.testing.assert_allclose(held @ found, wanted, atol=1e-9)
    return np.where(np.abs(found) < 1e-9, 0.0, found).T


@pytest.mark.audit
@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_is_the_fit_of_rows_with_the_noise_added(formula, release):
    """50 formulas: least squares from the rows' own sums plus the very noise of the release, to 1e-10."""
    noise = user_noise(release)
    loadings = user_loadings(formula)
    design = pi.Design.from_formula(formula, SCHEMA)
    own = np.column_stack([design.matrix(ROWS), design.response_values(ROWS)])
    moments = own.T @ own + loadings @ noise @ loadings.T
    expected = np.linalg.solve(moments[:-1, :-1], moments[:-1, -1])
    fit = release.regress(formula)
    np.testing.assert_allclose(fit.params, expected, rtol=1e-10, atol=1e-10)
    assert fit.names == design.names
    assert fit.model.endog_names == design.response


@pytest.mark.audit
@pytest.mark.parametrize(
    "formula",
    [one for one in FORMULAS if "- 1" not in one and "Treatment" not in one and not one.startswith("w")],
)
def test_a_formula_with_a_constant_is_a_fit_of_moments_to_the_last_member(formula, release):
    """The same numbers as `MomentOLS` on a release for the formula alone that had the same noise."""
    clean = pi.Moments(SCHEMA, formula, response_weight=1.0).release(ROWS, epsilon=math.inf)
    design = clean.design
    noise = user_noise(release)
    loadings = user_loadings(formula)
    scale = np.append(design.scale, design.y_scale)
    lower = np.linalg.inv(
        np.diag(scale)
        + np.outer(np.append(design.center, design.y_center), np.eye(len(scale))[design.constant])
    )
    noise = lower @ loadings @ noise @ loadings.T @ lower.T
    layout = MomentLayout(int((~design.private).sum()), int(design.private.sum()))
    order = np.concatenate(
        [np.flatnonzero(~design.private), np.flatnonzero(design.private), [len(scale) - 1]]
    )
    moments = clean.arrays["moments"] + isometric(noise[np.ix_(order, order)], layout)
    kept = order[: layout.public]
    public = clean.arrays["public_moments"] + noise[np.ix_(kept, kept)]
    made = Release(
        kind="moments",
        arrays=dict(clean.arrays) | {"moments": moments, "public_moments": public},
        noise_model=dict(clean.noise_model) | {"scale": release.noise_model["scale"], "noise_free": False},
        design=design,
        entries=release.entries,
        nobs=release.nobs,
    )
    for target in ("population", "sample"):
        one, other = (
            release.regress(formula, target=target),
            pi.MomentOLS.from_release(made).fit(target=target),
        )
        np.testing.assert_allclose(one.params, other.params, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(one.cov_params(), other.cov_params(), rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(one.noise_share, other.noise_share, rtol=1e-8)
    one, other = release.regress(formula), pi.MomentOLS.from_release(made).fit()
    assert one.identification.statistic == pytest.approx(other.identification.statistic, rel=1e-9)
    assert one.score_test().statistic == pytest.approx(other.score_test().statistic, rel=1e-8)
    first, second = (fit._context.rsquared for fit in (one, other))  # None where the noise hides it
    assert first is second if first is None else first == pytest.approx(second, rel=1e-9)


@pytest.mark.parametrize("formula", FORMULAS[:12])
def test_without_noise_it_is_statsmodels(formula):
    fit = MECHANISM.release(ROWS, epsilon=math.inf).regress(formula)
    expected = smf.ols(formula, ROWS).fit()
    np.testing.assert_allclose(fit.params, expected.params, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(fit.bse, expected.bse, rtol=1e-2)
    assert list(fit.names) == list(expected.params.index)


@pytest.mark.parametrize(
    "formula", ["y ~ a + g - 1", "a ~ c + y - 1", "y ~ C(g, Treatment('top')) + b", "a ~ y"]
)
def test_noise_of_uncentred_columns_is_what_each_entry_moves(formula, release):
    """The scores are linear in the entries, whose noise is iid: their covariance is a sum over entries."""
    maps = sub_design(release.design, formula).maps
    system = moment_system(release, part_of(release, maps))
    b = np.linalg.solve(system.A, system.g)
    moved = []
    for entry in range(len(release.arrays["moments"])):
        moments = release.arrays["moments"].copy()
        moments[entry] += 1.0
        other = dataclasses.replace(release, arrays={**release.arrays, "moments": moments})
        there = moment_system(other, part_of(other, maps))
        moved.append((there.g - there.A @ b) - (system.g - system.A @ b))
    moved = release.noise_model["scale"] * np.array(moved).T
    np.testing.assert_allclose(system.noise_meat(b) / system.n, moved @ moved.T, rtol=1e-7, atol=1e-18)


def test_several_responses_and_lists(release):
    several = release.regress("a + y ~ b + c")
    assert list(several) == ["a", "y"]
    assert several["y"].params.equals(release.regress("y ~ b + c").params)
    listed = release.regress(["y ~ b", "y ~ b + c"])
    assert list(listed) == ["y ~ b", "y ~ b + c"]
    with pytest.raises(SchemaError, match="formula"):
        release.regress([])


def test_local_records_serve_every_regression_too():
    mechanism = pi.Moments(SCHEMA, columns=["a", "b", "g", "y"], trust="local")
    exact = mechanism.release(ROWS, epsilon=math.inf)
    for formula in ("y ~ a + C(g)", "a ~ y + b - 1", "b ~ C(g) - 1"):
        fit, expected = exact.regress(formula), smf.ols(formula, ROWS).fit(cov_type="HC0")
        np.testing.assert_allclose(fit.params, expected.params, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(fit.bse, expected.bse, rtol=1e-9)
    noisy = mechanism.release(ROWS, mu=40.0, rng=0)
    fit, truth = noisy.regress("a ~ y + b - 1"), exact.regress("a ~ y + b - 1").params
    assert fit.cov_type == "HC0"
    assert (np.abs(fit.params - truth) < 5 * fit.bse).all()


def test_a_release_for_one_formula_serves_the_others(release):
    own = pi.MomentOLS.from_formula("y ~ a + b + C(g)", ROWS, schema=SCHEMA).release(mu=5.0, rng=0)
    assert own.regress().names == ("Intercept", "C(g)[T.mid]", "C(g)[T.top]", "a", "b")
    np.testing.assert_allclose(own.regress("y ~ a + b + C(g)").params, own.regress().params, rtol=1e-12)
    np.testing.assert_allclose(own.regress("y ~ a + b + C(g)").bse, own.regress().bse, rtol=1e-9)
    assert own.regress("a ~ y").names == ("Intercept", "y")


def test_a_factor_with_numbers_as_levels_is_a_factor_and_a_number():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.uniform(0, 1, 3000), "s": rng.integers(0, 2, 3000)})
    rows = rows.assign(k=rng.choice([1, 2, 5], 3000), s2=2 * rows.s - 1)
    schema = pi.Schema({"x": (0, 1), "s": [0, 1], "k": [1, 2, 5], "s2": pi.Factor([-1, 1])})
    factors = pi.Moments(schema, columns=["x", "C(s)", "C(k)", "C(s2)"]).release(rows, epsilon=math.inf)
    numbers = pi.Moments(schema, columns=["x", "s", "k", "s2"]).release(rows, epsilon=math.inf)
    for formula in ("x ~ s", "x ~ C(s)", "x ~ C(s) - 1", "s ~ x", "x ~ C(s2)", "x ~ k", "k ~ x + s"):
        expected = smf.ols(formula, rows).fit().params
        for released in (factors, numbers):
            np.testing.assert_allclose(released.regress(formula).params, expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(
        factors.regress("x ~ C(k, Sum)").params, smf.ols("x ~ C(k, Sum)", rows).fit().params, atol=1e-9
    )
    with pytest.raises(
        NotAvailableError, match=r"'k' as a number, so write k in the formula.*declare C\(k\)"
    ):
        numbers.regress("x ~ C(k)")
    with pytest.raises(NotAvailableError, match="products, powers"):
        factors.regress("x ~ s*k")


def test_nested_fits_are_compared_by_the_law_of_the_noise(release):
    full, fewer = release.regress("y ~ a + b + C(g)"), release.regress("y ~ a")
    statistic, pvalue, df = full.compare_f_test(fewer)
    found = full.wald_test("b = 0, C(g)[T.mid] = 0, C(g)[T.top] = 0")
    assert (statistic, pvalue, df) == (pytest.approx(found.statistic), pytest.approx(found.pvalue), 3)
    with pytest.raises(ArgumentError, match="larger fit"):
        fewer.compare_f_test(full)
    with pytest.raises(ArgumentError, match="same columns, so there is nothing to test"):
        full.compare_f_test(full)
    with pytest.raises(ArgumentError, match="response"):
        full.compare_f_test(release.regress("b ~ a"))
    with pytest.raises(ArgumentError, match=r"different releases.*wald_test\('C\(g\)\[T.mid\] = C"):
        full.compare_f_test(MECHANISM.release(ROWS, mu=1.0, rng=0).regress("y ~ a"))


def test_without_noise_the_comparison_is_statsmodels():
    exact = MECHANISM.release(ROWS, epsilon=math.inf)
    statistic, pvalue, df = exact.regress("y ~ a + b + w").compare_f_test(exact.regress("y ~ a + b"))
    expected = smf.ols("y ~ a + b + w", ROWS).fit().compare_f_test(smf.ols("y ~ a + b", ROWS).fit())
    assert statistic == pytest.approx(expected[0], rel=1e-2)
    assert pvalue == pytest.approx(expected[1], rel=5e-2)
    assert df == expected[2]


@pytest.mark.parametrize(
    ("formula", "error", "words"),
    [
        ("y ~ np.log(c + 1)", NotAvailableError, "must be declared as columns"),
        ("y ~ b:c", NotAvailableError, "b:c"),
        ("y ~ a * c", NotAvailableError, "a:c"),
        ("y ~ g:h", NotAvailableError, "declared as columns"),
        ("y ~ other", NotAvailableError, "other"),
        ("y ~ y + a", SchemaError, "response"),
        ("g ~ a", SchemaError, "levels"),
        ("y ~ nothing", SchemaError, "nothing"),
        ("y", SchemaError, "response"),
        ("~ a", SchemaError, "response"),
        ("a:b ~ c", SchemaError, "one response"),
    ],
)
def test_what_was_not_released_is_refused_by_name(formula, error, words, release):
    with pytest.raises(error, match=words):
        release.regress(formula)


def test_other_refusals(release):
    with pytest.raises(ArgumentError, match="serves many regressions"):
        release.regress()
    with pytest.raises(NotAvailableError, match="HC0"):
        release.regress("y ~ a", cov_type="HC0")
    with pytest.raises(ArgumentError, match="stabilization"):
        release.regress("y ~ a", stabilisation="ridge")
    y, X = ROWS.y.to_numpy(), ROWS[["a", "b"]].to_numpy()
    arrays = pi.MomentOLS(y, X, bounds=[(-1, 3), (-2, 2)], y_bounds=(-4, 6)).release(mu=1.0, rng=0)
    with pytest.raises(NotAvailableError, match="with a schema"):
        arrays.regress("y ~ x1")
    examples = pi.LocalExamples(SCHEMA, "y ~ a").release(ROWS, epsilon_x=4, epsilon_y=4, delta=1e-6, rng=0)
    for task in ("means", "corr", "partial_corr"):
        with pytest.raises(NotAvailableError, match=task):
            getattr(examples, task)()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"columns": "a"}, SchemaError, "list"),
        ({"columns": []}, SchemaError, "list"),
        ({"columns": ["g", "h"]}, SchemaError, "private numeric column"),
        ({"columns": ["a", "nothing"]}, SchemaError, "nothing"),
        ({"columns": ["a", "b", "0"]}, SchemaError, "constant"),
        ({"columns": ["a"]}, pi.errors.SensitivityError, "at least two columns"),
        ({"columns": ["a", "b"], "response_weight": 2.0}, ArgumentError, "response_weight"),
        ({"columns": ["a", "b"], "formula": "a ~ b"}, ArgumentError, "formula"),
    ],
)
def test_columns_that_make_no_release(options, error, words):
    with pytest.raises(error, match=words):
        pi.Moments(SCHEMA, **options)


def test_interactions_with_a_factor_are_read_in_every_coding():
    mechanism = pi.Moments(SCHEMA, columns=["a", "g", "a:g", "y"])
    exact = mechanism.release(ROWS, epsilon=math.inf)
    for formula in ("y ~ a * g", "y ~ g:a", "y ~ g + g:a - 1", "y ~ a * C(g, Treatment('mid'))"):
        np.testing.assert_allclose(
            exact.regress(formula).params, smf.ols(formula, ROWS).fit().params, rtol=1e-8, atol=1e-9
        )


def test_release_and_results_save_and_load(release, tmp_path):
    release.save(tmp_path / "release.npz")
    again = pi.load_release(tmp_path / "release.npz")
    assert again.design == release.design
    for made in (
        lambda r: r.regress("y ~ a + g - 1"),
        lambda r: r.iv("y ~ b + [a ~ c + w]"),
        lambda r: r.means(),
    ):
        fit = made(again)
        assert fit.params.equals(made(release).params)
        fit.save(tmp_path / "fit.npz", overwrite=True)
        loaded = pi.load_results(tmp_path / "fit.npz")
        assert type(loaded) is type(fit)
        pd.testing.assert_frame_equal(loaded.cov_params(), fit.cov_params())
        if fit.model.endog_names == "y" and "Means" not in fit.model.name:
            assert loaded.score_test().statistic == fit.score_test().statistic
            assert loaded.conf_int(method="score").equals(fit.conf_int(method="score"))
        assert pickle.loads(pickle.dumps(fit)).params.equals(fit.params)
        assert str(loaded.summary()) == str(fit.summary())


def test_every_result_reports_the_cost_of_the_one_release(release):
    spent = release.privacy.epsilon(1e-6)
    for fit in (release.regress("y ~ a"), release.iv("y ~ [a ~ c]"), release.means(), release.corr()):
        assert fit.privacy.epsilon(1e-6) == spent
    assert "privacy cost above" in str(release.regress("y ~ a").summary(notes="all"))
