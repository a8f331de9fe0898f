"""The internal basis of products and powers: exact, inside its bounds, invisible but for its width."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import privinf as pi
from privinf.errors import SchemaError
from privinf.federation import InProcessFederation, Site, SitePolicy, pinned_keys
from privinf.mechanisms.rows import Rows
from privinf.schema import Design, splines
from privinf.schema.design import refuse_dependent

SCHEMA = pi.Schema(
    {
        "y": (-20.0, 40.0),
        "x": (10.0, 50.0),
        "z": (0.0, 1.0),
        "w": (1.0, 9.0),
        "g": ["a", "b", "c"],
        "h": [False, True],
    }
)


def rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(
        {
            "x": rng.uniform(10, 50, n),
            "z": rng.uniform(0, 1, n),
            "w": rng.uniform(1, 9, n),
            "g": rng.choice(["a", "b", "c"], n),
            "h": rng.choice([False, True], n),
        }
    )
    mean = 0.2 * data.x + 3 * data.z - 0.1 * data.x * data.z + 0.5 * (data.g == "b") * data.w
    return data.assign(y=(mean + rng.normal(0, 1, n)).clip(-20, 40))


CHANGED = {
    "y ~ x * z": ["x:z"],
    "y ~ x + I(x ** 2) + I(x**3)": ["I(x ** 2)", "I(x ** 3)"],
    "y ~ x + I(x * x / 100)": ["I(x * x / 100)"],
    "y ~ x * C(g)": ["x:C(g)[T.b]", "x:C(g)[T.c]"],
    "y ~ 0 + C(g) + x:C(g)": ["x:C(g)[a]", "x:C(g)[b]", "x:C(g)[c]"],
    "y ~ np.log(x) * z + I(np.log(x) ** 2)": ["np.log(x):z", "I(np.log(x) ** 2)"],
    "y ~ x * z * w": ["x:z", "x:w", "z:w", "x:z:w"],
    "y ~ x * bs(z, knots=[0.5], lower_bound=0, upper_bound=1, degree=1)": ["[0]", "[1]"],
    # Centring would change what these models say, or has nothing to do.
    "y ~ x:z": [],
    "y ~ 0 + x * z": [],
    "y ~ x + I(x ** 3)": [],
    "y ~ x + z + w + C(g) * h": [],
    "y ~ 0 + x + I(x ** 2)": [],
    "y ~ x + z + x:z:w": [],
}


@pytest.mark.parametrize("formula", CHANGED)
def test_the_formulas_columns_are_sums_of_the_internal_ones(formula):
    design = Design.from_formula(formula, SCHEMA)
    found = design.conditioned()
    changed = [a.name for a, b in zip(found.columns, design.columns, strict=True) if a != b]
    assert len(changed) == len(CHANGED[formula])
    assert all(name.endswith(end) for name, end in zip(changed, CHANGED[formula], strict=True))
    assert found.names == design.names
    if not changed:
        assert found == design
        return
    data = rows(300, seed=1)
    outside = data.assign(x=data.x * 3 - 60, z=data.z * 5 - 2)
    np.testing.assert_allclose(found.matrix(data), design.matrix(data), rtol=1e-13)
    for table in (data, outside):
        X = found.released(table)
        plain = np.array([column.plain for column in found.columns])
        assert ((found.low <= X) & (found.high >= X))[:, ~plain].all()
    exact = found.released(data) @ found.basis
    np.testing.assert_allclose(exact, design.matrix(data), rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(found.mapped(found.basis), np.eye(len(found.names)), atol=1e-9)
    again = Design.from_dict(found.to_dict())
    assert again == found
    assert again.digest == found.digest != design.digest
    assert found.conditioned() == found
    assert found.user == design


@pytest.mark.parametrize(
    ("formula", "named"),
    [
        ("y ~ x + I(2 * x)", "'x', 'I(2 * x)'"),
        ("y ~ x + w + I(x - w)", "'x', 'w', 'I(x - w)'"),
        ("y ~ x + I(x ** 2) + I((x - 30) ** 2)", "'Intercept', 'x', 'I(x ** 2)', 'I((x - 30) ** 2)'"),
        ("y ~ np.log(w) + np.log10(w) + C(g)", "'np.log(w)', 'np.log10(w)'"),
    ],
)
def test_dependent_columns_are_refused_before_a_charge(formula, named):
    ledger = pi.Ledger()
    data = rows().assign(y=0.0)
    for model in (pi.OLS, pi.MomentOLS, pi.ModulatedOLS):
        with pytest.raises(SchemaError, match="linearly dependent for all rows") as caught:
            model.from_formula(formula, data, schema=SCHEMA, ledger=ledger)
        assert f"the columns {named} of" in str(caught.value)
    assert len(ledger) == 0
    pi.DebiasedLasso.from_formula(formula, data, schema=SCHEMA)  # a sparse fit selects among columns


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ C(g) * C(h) * x + w",
        "y ~ 0 + C(g) + C(h)",
        "y ~ x + np.log(x) + np.sqrt(x) + I(x ** 2) + I(x ** 3) + I(x ** 4)",
        "y ~ I(x == 12) + I(x == 13) + I(x > 49.999)",  # steps are zero in nearly all simulated rows
        "y ~ x + bs(x, knots=[20], lower_bound=10, upper_bound=50)",  # left to the release
        "y ~ x * z * w + poly(x, 3)",
    ],
)
def test_columns_that_rows_can_tell_apart_are_not_refused(formula):
    if "poly" in formula:
        formula = formula.replace("x * z * w", "z * w")
    refuse_dependent(Design.from_formula(formula, SCHEMA))


def test_designs_of_very_many_columns_are_compared_by_their_numbers_alone_or_not_at_all():
    many = pi.Schema({"y": (0, 1), "x": (0, 9)} | {f"g{j}": list("abcdefghij") for j in range(9)})
    factors = " + ".join(f"C(g{j})" for j in range(9))
    refuse_dependent(Design.from_formula(f"y ~ x + {factors}", many))
    with pytest.raises(SchemaError, match="'x', 'I\\(2 \\* x\\)'"):
        refuse_dependent(Design.from_formula(f"y ~ x + I(2 * x) + {factors}", many))
    wide = pi.Schema({"y": (0, 1)} | {f"x{j}": (0, 1) for j in range(300)})
    numbers = " + ".join(f"x{j}" for j in range(300))
    refuse_dependent(Design.from_formula(f"y ~ {numbers}", wide))
    refuse_dependent(Design.from_formula("y ~ " + " + ".join(f"I(2 * x{j})" for j in range(300)), wide))
    with pytest.raises(SchemaError, match="columns 'x7', 'I\\(2 \\* x7\\)' of"):  # only x7 has two readers
        refuse_dependent(Design.from_formula(f"y ~ {numbers} + I(2 * x7)", wide))


def test_a_number_that_is_constant_in_double_precision_is_refused():
    nearly = pi.Schema({"y": (0, 1), "z": (0, 1), "x": (1e6, 1e6 + 1e-9)})
    with pytest.raises(SchemaError, match="columns 'Intercept', 'x' of"):
        refuse_dependent(Design.from_formula("y ~ x + z", nearly))
    refuse_dependent(Design.from_formula("y ~ 0 + x + z", nearly))


def test_bounds_of_legendres_polynomials_are_attained_and_never_passed():
    at = np.linspace(-1, 1, 20_001)
    for degree in range(1, splines.HIGHEST + 1):
        values = splines.legendre(degree, at)
        np.testing.assert_allclose(values, np.polynomial.Legendre.basis(degree)(at), atol=1e-13)
        for low, high in ((-1.0, 1.0), (-0.3, 0.9), (0.2, 1.7)):
            inside = splines.legendre(degree, np.linspace(low, high, 20_001))
            bounds = splines.legendre_interval(degree, low, high)
            assert bounds.low <= inside.min()
            assert inside.max() <= bounds.high
            # The ends alone would not do: powers turn inside.
            np.testing.assert_allclose([bounds.low, bounds.high], [inside.min(), inside.max()], atol=1e-6)
        assert splines.legendre(degree, np.ones(1)) == 1.0


def test_a_basis_from_elsewhere_must_be_one():
    design = Design.from_formula("y ~ x * z + I(x ** 2)", SCHEMA).conditioned()
    content = design.to_dict()
    place = design.names.index("x:z")

    def with_piece(**changes):
        columns = [dict(column) for column in content["columns"]]
        first, *rest = columns[place]["pieces"]
        columns[place] = columns[place] | {"pieces": [first | changes, *rest]}
        return content | {"columns": columns}

    for changes in (
        {"degree": 2},
        {"degree": 11},
        {"degree": 1.0},
        {"lower": 50.0},
        {"upper": math.inf},
        {"lower": 20.0},
        {"polynomial": "np.exp(z)"},
        {"polynomial": "__import__('os')"},
    ):
        with pytest.raises(SchemaError):
            Design.from_dict(with_piece(**changes))
    swapped = [*content["raw"]]
    swapped[place] = {"name": "x:z", "pieces": [{"column": "w"}]}
    with pytest.raises(SchemaError, match="not a linear combination"):
        Design.from_dict(content | {"raw": swapped})
    with pytest.raises(SchemaError, match="names"):
        Design.from_dict(content | {"raw": content["raw"][::-1]})


FORMULA = "y ~ x * C(g) + x:z + z + I(x ** 2)"


def sites(data):
    keys, roster = pinned_keys(["north", "south"])
    policy = SitePolicy(secure_sums=True, trusted_server=True, simulation=True)
    return InProcessFederation(
        {
            name: Site(Rows(data.iloc[i::2]), SCHEMA, policy=policy, key=key, roster=roster)
            for i, (name, key) in enumerate(keys.items())
        }
    )


def models():
    data = rows()
    return {
        "OLS": lambda: pi.OLS.from_formula(FORMULA, data, schema=SCHEMA),
        "OLS, server": lambda: pi.OLS.from_formula(FORMULA, sites(data), schema=SCHEMA),
        "OLS, secure sums": lambda: pi.OLS.from_formula(
            FORMULA, sites(data), schema=SCHEMA, trust="secure-sum"
        ),
        "moments": lambda: pi.MomentOLS.from_formula(FORMULA, data, schema=SCHEMA),
        "moments, local": lambda: pi.MomentOLS.from_formula(FORMULA, data, schema=SCHEMA, trust="local"),
        "moments, server": lambda: pi.MomentOLS.from_formula(
            FORMULA, sites(data), schema=SCHEMA, trust="server"
        ),
        "moments, secure sums": lambda: pi.MomentOLS.from_formula(FORMULA, sites(data), schema=SCHEMA),
    }


@pytest.mark.parametrize("name", models())
def test_without_noise_the_raw_parametrisation_is_statsmodels(name):
    data = rows()
    r = models()[name]().fit(epsilon=math.inf)
    theirs = smf.ols(FORMULA, data).fit(cov_type=r.cov_type)
    assert list(r.params.index) == list(theirs.params.index)
    np.testing.assert_allclose(r.params, theirs.params, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(r.bse, theirs.bse, rtol=1e-7)
    np.testing.assert_allclose(r.predict(data), theirs.fittedvalues, rtol=1e-8)
    np.testing.assert_allclose(r.rsquared, theirs.rsquared, rtol=1e-8)
    np.testing.assert_allclose(r.score_test(r.params[1:].to_numpy()).statistic, 0.0, atol=1e-6)
    assert r.score_test(1.3 * r.params[1:].to_numpy()).statistic > 1.0
    if name == "moments":  # without noise OLS has no score intervals
        low, high = r.conf_int(method="score").to_numpy().T
        assert ((low < r.params) & (r.params < high)).all()
        np.testing.assert_allclose((low + high) / 2, r.params, atol=0.2 * r.bse.max())


def test_without_noise_logistic_and_poisson_models_are_statsmodels():
    data = rows(3000)
    formula = "k ~ x * z + I(x ** 2)"
    rng = np.random.default_rng(2)
    eta = -2 + 0.05 * data.x + data.z - 0.02 * data.x * data.z
    for model, family, draw, high in (
        (pi.Logit, sm.families.Binomial(), lambda m: rng.uniform(size=3000) < m / (1 + m), 1.0),
        (pi.Poisson, sm.families.Poisson(), rng.poisson, 60.0),
    ):
        data["k"] = np.asarray(draw(np.exp(eta)), dtype=float)
        schema = pi.Schema({"k": (0.0, high), "x": (10.0, 50.0), "z": (0.0, 1.0)})
        r = model.from_formula(formula, data, schema=schema).fit(epsilon=math.inf)
        theirs = smf.glm(formula, data, family=family).fit(tol=1e-13, cov_type="HC0")
        np.testing.assert_allclose(r.params, theirs.params, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(r.bse, theirs.bse, rtol=1e-4)
        np.testing.assert_allclose(r.predict(data[:9]), theirs.predict(data[:9]), rtol=1e-6)
    # Named targets are the formula's own columns; so are those of a fit beside an exposure in a product.
    beside = "k ~ z + x:z + I(x ** 2)"
    with_exposure = pi.Poisson.from_formula(beside, data, schema=schema, exposure="x")
    assert with_exposure._rows.design.raw is None
    part = pi.FederatedGLM.from_formula(formula, data, schema=schema, family="poisson", trust="central")
    targets = part.fit(epsilon=math.inf, targets=["x", "x:z"], nuisance=["z", "I(x ** 2)"])
    np.testing.assert_allclose(targets.params, theirs.params[["x", "x:z"]], rtol=1e-4)


def test_analyses_of_one_release_are_of_the_formulas_columns():
    data = rows()
    release = pi.MomentOLS.from_formula(FORMULA, data, schema=SCHEMA).release(epsilon=math.inf)
    raw = pd.DataFrame(
        Design.from_formula(FORMULA, SCHEMA).matrix(data), columns=release.design.names
    ).assign(y=data.y)
    np.testing.assert_allclose(release.means().params, raw.mean().drop("Intercept"), rtol=1e-9)
    found = release.corr(["x", "I(x ** 2)", "x:z", "y"]).params
    np.testing.assert_allclose(found, raw[["x", "I(x ** 2)", "x:z", "y"]].corr(), rtol=1e-7)
    for formula in (FORMULA, "y ~ x * z", "y ~ x + I(x ** 2)"):
        theirs = smf.ols(formula, data).fit()
        np.testing.assert_allclose(release.regress(formula).params, theirs.params, rtol=1e-6)


def test_products_cost_little_more_than_columns_centred_by_hand():
    """With noise: the raw basis was four times as wide in products, and often had no estimate at all."""
    data = rows(20_000)
    by_hand = data.assign(x=data.x - 30, z=data.z - 0.5)
    centred = pi.Schema({"y": (-20.0, 40.0), "x": (-20.0, 20.0), "z": (-0.5, 0.5)})
    for model in (pi.OLS, pi.MomentOLS):
        fits = [
            model.from_formula("y ~ x * z", table, schema=schema).fit(mu=0.5, rng=1)
            for table, schema in ((data, SCHEMA), (by_hand, centred))
        ]
        at = fits[0].t_test("z + 30 * x:z"), fits[1].t_test("z")
        for ours, theirs in ((fits[0].bse["x:z"], fits[1].bse["x:z"]), (at[0].sd[0, 0], at[1].sd[0, 0])):
            assert ours < 1.1 * theirs
    release = pi.Moments(SCHEMA, "y ~ x * z")
    raw = pi.Moments(SCHEMA, columns=["y", "x", "z", "x:z"]).release(data, mu=0.5, rng=1)
    plain = raw.regress("y ~ x * z")
    assert release.design.raw is not None
    assert plain.bse["x:z"] > 2.0 * fits[0].bse["x:z"]
